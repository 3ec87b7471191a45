//! The document of the surface, made from the types that the handlers send.

use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use crate::calls;
use crate::operations::{Operation, OperationTable};
use crate::problem::ProblemBody;
use crate::routes::{
    EventsView, EvidenceView, MessagesView, SummaryView, TopologyView, VerifierView,
};

/// Gives the address of a view.
pub(crate) fn path(view: &str) -> String {
    format!("/api/agents/visibility/{view}")
}

/// One address.
struct Row {
    view: &'static str,
    summary: &'static str,
    paged: bool,
    schema: fn(&mut SchemaGenerator) -> Value,
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

const ROWS: &[Row] = &[
    Row {
        view: "events",
        summary: "Events, oldest first, page by page",
        paged: true,
        schema: schema_of::<EventsView>,
    },
    Row {
        view: "topology",
        summary: "Who works for whom: conversations, agents, tasks, commands",
        paged: false,
        schema: schema_of::<TopologyView>,
    },
    Row {
        view: "tasks/{task_id}/evidence",
        summary: "What supports and what contradicts the claims about a task",
        paged: false,
        schema: schema_of::<EvidenceView>,
    },
    Row {
        view: "threads/{thread_id}/messages",
        summary: "The messages of a thread, page by page",
        paged: true,
        schema: schema_of::<MessagesView>,
    },
    Row {
        view: "verifier",
        summary: "What verifiers say, task by task",
        paged: false,
        schema: schema_of::<VerifierView>,
    },
    Row {
        view: "runtime-summary",
        summary: "Everything in figures, and what runs now",
        paged: false,
        schema: schema_of::<SummaryView>,
    },
];

/// Gives the OpenAPI document of the surface.
pub fn document() -> Value {
    let mut generator = SchemaGenerator::new(SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    }));
    let problem = schema_of::<ProblemBody>(&mut generator);
    let mut paths = Map::new();
    for row in ROWS {
        let schema = (row.schema)(&mut generator);
        let content = json!({"application/json": {"schema": schema}});
        paths.insert(
            path(row.view),
            operation(row.view, row.summary, row.paged, content, &problem),
        );
    }
    for operation in &OperationTable::new() {
        paths.insert(
            format!("{}{}", calls::PREFIX, operation.name()),
            call(operation, &mut generator, &problem),
        );
    }
    let stream = operation(
        "stream",
        "The events as they come (SSE): id <epoch>:<pos>, resumed with Last-Event-ID; frames reset, gap, lagged and watermark beside the events",
        true,
        json!({"text/event-stream": {"schema": {"type": "string"}}}),
        &problem,
    );
    paths.insert(path("stream"), stream);
    paths.insert(
        crate::routes::HEALTH.to_owned(),
        json!({"get": {"summary": "Whether the server is there", "security": [], "responses": {"200": {"description": "It is"}}}}),
    );
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Cofferdam",
            "summary": "What agents do on this machine, and the operations by which they do it",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": generator.take_definitions(false),
        },
    })
}

/// Tells of an operation of the table.
fn call(operation: &Operation, generator: &mut SchemaGenerator, problem: &Value) -> Value {
    let (request, result) = operation.subschemas(generator);
    let problem = |description: &str| {
        json!({
            "description": description,
            "content": {"application/problem+json": {"schema": problem}},
        })
    };
    json!({"post": {
        "operationId": operation.name(),
        "summary": operation.summary(),
        "description": operation.description(),
        "x-scope": operation.scope().as_str(),
        "requestBody": {"required": true, "content": {"application/json": {"schema": request}}},
        "responses": {
            "200": {"description": "The result", "content": {"application/json": {"schema": result}}},
            "400": problem("The request is wrong; `field` names where"),
            "401": problem("The token is missing or wrong"),
            "403": problem("The Host, Origin, scope, workspace or policy does not allow it"),
            "404": problem("There is no such thing"),
            "409": problem("It cannot be done in the state in which it is"),
            "413": problem("The request is too large"),
            "415": problem("The body is not said to be JSON"),
            "500": problem("Cofferdam itself failed"),
            "503": problem("Not now, or not on this host"),
        },
    }})
}

fn operation(view: &str, summary: &str, paged: bool, content: Value, problem: &Value) -> Value {
    let problem = |description: &str| {
        json!({
            "description": description,
            "content": {"application/problem+json": {"schema": problem}},
        })
    };
    json!({"get": {
        "summary": summary,
        "parameters": parameters(view, paged),
        "responses": {
            "200": {"description": "The view", "content": content},
            "400": problem("A parameter is wrong; `field` names it"),
            "401": problem("The token is missing or wrong"),
            "403": problem("The Host or Origin is not this server's"),
            "404": problem("There is no such thing"),
            "409": problem("The cursor is of another log, or of the future"),
        },
    }})
}

fn parameters(view: &str, paged: bool) -> Vec<Value> {
    let mut parameters: Vec<Value> = view
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    let time = json!({"type": "string", "format": "date-time"});
    let text = json!({"type": "string"});
    let mut query = vec![
        ("conversation_id", text.clone()),
        ("agent_id", text.clone()),
        ("thread_id", text.clone()),
        ("event_type", text.clone()),
        ("from", time.clone()),
        ("to", time),
    ];
    if paged {
        query.push(("cursor", text));
        query.push((
            "limit",
            json!({"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}),
        ));
    }
    parameters.extend(
        query
            .into_iter()
            .map(|(name, schema)| json!({"name": name, "in": "query", "schema": schema})),
    );
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gathers what is referred to.
    fn references(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    into.push(reference.clone());
                }
                fields.values().for_each(|value| references(value, into));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, into)),
            _ => {}
        }
    }

    #[test]
    fn everything_that_is_referred_to_is_there() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20, "{} references", found.len());
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("a reference within");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        let operations = OperationTable::new().iter().count();
        assert_eq!(
            document["paths"].as_object().map(Map::len),
            Some(8 + operations)
        );
    }
}
