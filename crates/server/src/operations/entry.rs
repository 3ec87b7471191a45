//! One entry of the table.

use std::marker::PhantomData;

use cofferdam_core::error::{ErrorCode, Problem};
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::context::OperationContext;

/// What a caller must be allowed to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Look at what is there; nothing changes.
    Read,
    /// Change files of the workspace.
    Write,
    /// Start processes, or reach into them.
    Execute,
    /// Answer questions in the owner's name: never given to whoever may have asked.
    Answer,
}

impl Scope {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Execute => "execute",
            Self::Answer => "answer",
        }
    }
}

/// What programs are told about an operation, so that they can tell people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotations {
    /// Nothing is changed.
    pub read_only: bool,
    /// Something may be lost by it.
    pub destructive: bool,
    /// Doing it twice is doing it once.
    pub idempotent: bool,
    /// It may reach the world outside of the workspace.
    pub open_world: bool,
}

impl Annotations {
    /// Of what only looks.
    pub const READS: Self = Self {
        read_only: true,
        destructive: false,
        idempotent: true,
        open_world: false,
    };
    /// Of what may do anything that the policy lets it do.
    pub const RUNS: Self = Self {
        read_only: false,
        destructive: true,
        idempotent: false,
        open_world: true,
    };
    /// Of what adds or changes, and takes nothing away.
    pub const CHANGES: Self = Self {
        read_only: false,
        destructive: false,
        idempotent: false,
        open_world: false,
    };
    /// Of what ends or removes, and does so once however often it is asked.
    pub const ENDS: Self = Self {
        read_only: false,
        destructive: true,
        idempotent: true,
        open_world: false,
    };
}

/// One operation: what it is called, what it takes and gives, who may, and what carries it out.
pub struct Operation {
    name: &'static str,
    summary: &'static str,
    description: &'static str,
    scope: Scope,
    annotations: Annotations,
    outlives_call: bool,
    handle: Box<dyn Handle>,
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Operation")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Operation {
    /// Makes an entry.
    ///
    /// `summary` is one line without a period; `description` is what whoever calls it has to know,
    /// in sentences. The handler blocks until it is done; it looks at
    /// [`OperationContext::control`] where it may take long.
    pub fn new<Request, Answer>(
        name: &'static str,
        summary: &'static str,
        description: &'static str,
        scope: Scope,
        annotations: Annotations,
        handler: fn(&OperationContext, Request) -> Result<Answer, Problem>,
    ) -> Self
    where
        Request: DeserializeOwned + JsonSchema + 'static,
        Answer: Serialize + JsonSchema + 'static,
    {
        Self {
            name,
            summary,
            description,
            scope,
            annotations,
            outlives_call: false,
            handle: Box::new(Typed {
                handler,
                types: PhantomData,
            }),
        }
    }

    /// Says that it is about something that outlives a call, such as a session: it needs a server
    /// that lives on.
    #[must_use]
    pub fn outliving(mut self) -> Self {
        self.outlives_call = true;
        self
    }

    /// Tells whether it is about something that outlives a call.
    pub const fn outlives_call(&self) -> bool {
        self.outlives_call
    }

    /// Gives the name: of the route, of the tool, of the form on the command line.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Gives one line about it.
    pub const fn summary(&self) -> &'static str {
        self.summary
    }

    /// Gives what whoever calls it has to know.
    pub const fn description(&self) -> &'static str {
        self.description
    }

    /// Tells what a caller must be allowed to do.
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// Tells what programs are told about it.
    pub const fn annotations(&self) -> Annotations {
        self.annotations
    }

    /// Gives the schema of the request, whole in itself.
    pub fn request_schema(&self) -> Value {
        // Without references: not every caller follows them.
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        self.handle.request_root(settings.into_generator())
    }

    /// Gives the schema of the result, whole in itself.
    pub fn result_schema(&self) -> Value {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None);
        self.handle.result_root(settings.into_generator())
    }

    /// Gives the schemas of request and result as parts of a larger document.
    pub(crate) fn subschemas(&self, generator: &mut SchemaGenerator) -> (Value, Value) {
        self.handle.subschemas(generator)
    }

    /// Carries it out: JSON in, JSON out.
    ///
    /// # Errors
    ///
    /// `invalid_request` for what is not a request of this operation, and those of the operation.
    pub fn call(&self, context: &OperationContext, request: &[u8]) -> Result<Vec<u8>, Problem> {
        self.handle.bytes(context, request)
    }

    /// The same with values.
    ///
    /// # Errors
    ///
    /// As [`Operation::call`].
    pub fn call_value(&self, context: &OperationContext, request: Value) -> Result<Value, Problem> {
        self.handle.value(context, request)
    }
}

trait Handle: Send + Sync {
    fn bytes(&self, context: &OperationContext, request: &[u8]) -> Result<Vec<u8>, Problem>;
    fn value(&self, context: &OperationContext, request: Value) -> Result<Value, Problem>;
    fn request_root(&self, generator: SchemaGenerator) -> Value;
    fn result_root(&self, generator: SchemaGenerator) -> Value;
    fn subschemas(&self, generator: &mut SchemaGenerator) -> (Value, Value);
}

struct Typed<Request, Answer> {
    handler: fn(&OperationContext, Request) -> Result<Answer, Problem>,
    types: PhantomData<fn(Request) -> Answer>,
}

impl<Request, Answer> Handle for Typed<Request, Answer>
where
    Request: DeserializeOwned + JsonSchema,
    Answer: Serialize + JsonSchema,
{
    fn bytes(&self, context: &OperationContext, request: &[u8]) -> Result<Vec<u8>, Problem> {
        // An operation without fields may be asked for without a body.
        let request = if request.is_empty() { b"{}" } else { request };
        let mut reader = serde_json::Deserializer::from_slice(request);
        let parsed = serde_path_to_error::deserialize(&mut reader).map_err(unreadable)?;
        reader.end().map_err(|error| invalid(error.to_string()))?;
        let answer = (self.handler)(context, parsed)?;
        serde_json::to_vec(&answer).map_err(inexpressible)
    }

    fn value(&self, context: &OperationContext, request: Value) -> Result<Value, Problem> {
        let parsed = serde_path_to_error::deserialize(request).map_err(unreadable)?;
        serde_json::to_value((self.handler)(context, parsed)?).map_err(inexpressible)
    }

    fn request_root(&self, generator: SchemaGenerator) -> Value {
        generator.into_root_schema_for::<Request>().to_value()
    }

    fn result_root(&self, generator: SchemaGenerator) -> Value {
        generator.into_root_schema_for::<Answer>().to_value()
    }

    fn subschemas(&self, generator: &mut SchemaGenerator) -> (Value, Value) {
        (
            generator.subschema_for::<Request>().to_value(),
            generator.subschema_for::<Answer>().to_value(),
        )
    }
}

fn invalid(message: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::InvalidRequest, message)
}

/// Tells what is wrong with a request, and where.
fn unreadable(error: serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let path = error.path().to_string();
    let text = error.inner().to_string();
    // `unknown field `x`, expected …`: the field is what is between the first back quotes.
    let named = text
        .strip_prefix("unknown field `")
        .or_else(|| text.strip_prefix("missing field `"))
        .and_then(|rest| rest.split('`').next());
    let field = match (path.as_str(), named) {
        (".", None) => None,
        (".", Some(name)) => Some(name.to_owned()),
        (path, _) => Some(path.to_owned()),
    };
    let problem = invalid(format!("the request cannot be read: {text}"));
    match field {
        Some(field) => problem.with_field(field),
        None => problem,
    }
}

fn inexpressible(error: serde_json::Error) -> Problem {
    Problem::new(
        ErrorCode::Internal,
        format!("the result cannot be expressed as JSON: {error}"),
    )
}
