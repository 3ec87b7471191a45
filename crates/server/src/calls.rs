//! Operations over HTTP: `POST /api/v1/<operation>` with a JSON object.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_exec::Control;

use crate::operations::{Operation, OperationContext, OperationHost, OperationTable, Scope};
use crate::problem::Refusal;
use crate::routes::App;

/// Where operations stand.
pub(crate) const PREFIX: &str = "/api/v1/";
/// Largest body of a request, in bytes: a script, or the content of a file.
const BODY_BYTES: usize = 32 * 1024 * 1024;

/// What the token of a request may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowed(pub(crate) Scope);

impl Allowed {
    /// Refuses what is beyond it: reading is below everything, and nothing else is below another.
    pub(crate) fn check(self, operation: &Operation) -> Result<(), Problem> {
        if operation.scope() <= self.0 {
            return Ok(());
        }
        Err(Problem::new(
            ErrorCode::ScopeMissing,
            format!(
                "{} needs the scope {}, and this token may only {}",
                operation.name(),
                operation.scope().as_str(),
                self.0.as_str()
            ),
        ))
    }
}

/// The operations of a server: the table, and with what they are carried out.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) table: OperationTable,
    /// Or why there are none here.
    pub(crate) host: Result<Arc<OperationHost>, Problem>,
}

impl Calls {
    pub(crate) fn new(host: Result<Arc<OperationHost>, Problem>) -> Self {
        Self {
            table: OperationTable::new(),
            host,
        }
    }

    pub(crate) fn find(&self, name: &str) -> Result<&Operation, Problem> {
        self.table.find(name).ok_or_else(|| {
            let name: String = name.chars().take(80).collect();
            Problem::new(
                ErrorCode::OperationUnknown,
                format!("there is no operation {name:?}"),
            )
            .with_hint("`cofferdam call --list` and /api/openapi.json name all of them")
        })
    }

    /// Gives what one call is carried out with.
    pub(crate) fn context(&self) -> Result<OperationContext, Problem> {
        self.host
            .as_ref()
            .map(OperationHost::context)
            .map_err(Clone::clone)
    }
}

/// Cancels a call when whoever waited for it has gone.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(pub(crate) Option<Control>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(control) = &self.0 {
            control.cancel();
        }
    }
}

pub(crate) async fn call(
    State(app): State<Arc<App>>,
    Extension(allowed): Extension<Allowed>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    // First of all, whatever is answered: a connection on which a request was not read to its end
    // cannot be used for another.
    let body = body(request).await?;
    allowed
        .check(app.calls.find(&name).map_err(Refusal::of)?)
        .map_err(Refusal::of)?;
    let context = app.calls.context().map_err(Refusal::of)?;
    if name == "approval_list" && allowed.0 == Scope::Answer {
        context.runtime().looked_at_approvals();
    }
    // The connection's end drops this future: then what it waits for ends too.
    let mut guard = CancelOnDrop(Some(context.control().clone()));
    let answer = tokio::task::spawn_blocking(move || {
        let operation = app.calls.find(&name)?;
        operation.call(&context, &body)
    })
    .await
    .unwrap_or_else(|_| {
        Err(Problem::new(
            ErrorCode::Internal,
            "a part of the server failed",
        ))
    });
    guard.0 = None;
    let mut response = Response::new(Body::from(answer.map_err(Refusal::of)?));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    Ok(response)
}

async fn body(request: Request) -> Result<Bytes, Refusal> {
    to_bytes(request.into_body(), BODY_BYTES)
        .await
        .map_err(|error| {
            let is_too_large = std::error::Error::source(&error)
                .is_some_and(|source| source.to_string().contains("length limit"));
            Refusal::of(if is_too_large {
                Problem::new(
                    ErrorCode::RequestTooLarge,
                    format!("the request is larger than {BODY_BYTES} bytes"),
                )
            } else {
                Problem::new(
                    ErrorCode::InvalidRequest,
                    format!("the request could not be received: {error}"),
                )
            })
        })
}
