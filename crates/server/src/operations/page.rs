//! The reference page, made from the table.

use std::fmt::Write as _;

use super::fields::{Field, fields};
use super::{Operation, OperationTable};

const HEAD: &str = "# Operations

Every operation is told once, in the table of `crates/server/src/operations`; this page, the HTTP
routes, the MCP tools, the forms on the command line and `docs/openapi.json` come from it. This page
is written by `cargo xtask write`.

| Way | How |
|---|---|
| HTTP | `cofferdam serve`, then `POST /api/v1/<operation>` with a JSON object, `Content-Type: application/json` and `Authorization: Bearer <token>` |
| MCP | `cofferdam mcp` on standard input and output: each operation is a tool of the same name |
| Command line | `cofferdam call <operation> --field value`, or `--request '<JSON>'` |

Workspace and walls are fixed by whoever starts the server; a request only narrows them. Nothing in
a request says who asks. A request that names another workspace is refused, and so is a field that
nobody knows.

A failure over HTTP is `application/problem+json` with `code`, `detail`, `hint` and `field`, over MCP
a result with `isError` and the same under `error`; the codes are in [errors](errors.md). A command
that ran and failed is no failure of the operation: it is a result with its `status`.

When the caller of an operation that waits goes away (its connection ends, its MCP request is
cancelled), what it waited for is ended, with everything that was started for it. What was started to
outlive the call goes on.

";

/// Gives the page.
pub fn reference_page(table: &OperationTable) -> String {
    let mut page = HEAD.to_owned();
    page.push_str("| Operation | Does | Scope |\n|---|---|---|\n");
    for operation in table {
        let name = operation.name();
        let _ = writeln!(
            page,
            "| [`{name}`](#{name}) | {} | {} |",
            operation.summary(),
            operation.scope().as_str()
        );
    }
    for operation in table {
        tell(&mut page, operation);
    }
    page
}

fn tell(page: &mut String, operation: &Operation) {
    let _ = write!(
        page,
        "\n## {}\n\n{}.\n\n",
        operation.name(),
        operation.summary()
    );
    page.push_str(operation.description());
    page.push_str("\n\n");
    let told = operation.annotations();
    let mut words = vec![format!("Scope {}", operation.scope().as_str())];
    if told.read_only {
        words.push("changes nothing".to_owned());
    }
    if told.destructive {
        words.push("may destroy".to_owned());
    }
    if told.idempotent {
        words.push("twice is once".to_owned());
    }
    if operation.outlives_call() {
        words.push("needs a server that lives on".to_owned());
    }
    let _ = write!(page, "{}.\n\n", words.join(", "));
    list(page, "Request", &fields(&operation.request_schema()));
    list(page, "Result", &fields(&operation.result_schema()));
}

fn list(page: &mut String, title: &str, fields: &[Field]) {
    if fields.is_empty() {
        let _ = write!(page, "{title}: no fields.\n\n");
        return;
    }
    let _ = write!(page, "| {title} | Type | |\n|---|---|---|\n");
    for field in fields {
        let must = if field.required && title == "Request" {
            " (must be there)"
        } else {
            ""
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {}{must} |",
            field.name,
            field.kind.word(),
            field.description.replace('|', "\\|")
        );
    }
    page.push('\n');
}
