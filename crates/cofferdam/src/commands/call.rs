//! `call`: any operation of the table from the command line.

mod request;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use cofferdam_client::Client;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::outcome::CommandOutcome;
use cofferdam_server::{
    FieldKind, Operation, OperationHost, OperationTable, fields, openapi_document, reference_page,
    result_text,
};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::living;
use crate::arguments::call::CallArguments;
use crate::context::Context;
use crate::failure::Ending;
use crate::launch;
use crate::output::{Format, Output};
use crate::render::table::Table;
use request::Asked;

/// Carries out `call`.
pub(crate) fn call(context: &Context, arguments: &CallArguments) -> Ending {
    let table = OperationTable::new();
    if arguments.openapi {
        context.output.line(&openapi_document())?;
        return Ok(exit::SUCCESS);
    }
    if arguments.reference {
        // As it is: the page is a file.
        std::io::stdout().write_all(reference_page(&table).as_bytes())?;
        return Ok(exit::SUCCESS);
    }
    let Some((name, rest)) = arguments.words.split_first() else {
        return if arguments.list {
            list(context, &table)
        } else {
            Err(
                Problem::new(ErrorCode::InvalidRequest, "no operation is named")
                    .with_hint("`cofferdam call --list` names all of them")
                    .into(),
            )
        };
    };
    let name = name.to_string_lossy();
    let operation = table.find(&name).ok_or_else(|| {
        Problem::new(
            ErrorCode::OperationUnknown,
            format!("there is no operation {name:?}"),
        )
        .with_hint("`cofferdam call --list` names all of them")
    })?;
    let known = fields(&operation.request_schema());
    let asked = request::read(&known, rest)?;
    if asked.help {
        help(operation)?;
        return Ok(exit::SUCCESS);
    }
    let output = if asked.json {
        Output::new(Format::Json)
    } else {
        context.output
    };
    match carry_out(context, arguments, operation, &asked) {
        Ok(answer) => finish(output, &answer),
        Err(problem) if output.is_json() => {
            let code = crate::failure::problem_exit_code(&problem);
            output.problem(&problem, &[("success", json!(false))]);
            Ok(code)
        }
        Err(problem) => Err(problem.into()),
    }
}

/// Carries an operation out: by a server where one was named or is needed, else here.
fn carry_out(
    context: &Context,
    arguments: &CallArguments,
    operation: &Operation,
    asked: &Asked,
) -> Result<Value, Problem> {
    let request = Value::Object(asked.request.clone());
    let server = asked.server.as_ref().or(arguments.server.as_ref());
    if let Some(server) = server {
        let file = asked.token_file.as_ref().or(arguments.token_file.as_ref());
        let file = file.ok_or_else(|| {
            Problem::new(
                ErrorCode::InvalidRequest,
                "a server is named, and no file with its token",
            )
            .with_field("token-file")
        })?;
        let client = Client::with_token_file(server, &context.absolute(file)?)?;
        return client.call(operation.name(), &request);
    }
    if operation.outlives_call() {
        return of_data_dir(context, arguments, operation)?.call(operation.name(), &request);
    }
    let policy = launch::task_policy(context, &arguments.walls)?;
    let runtime = Arc::new(context.runtime()?);
    let host = Arc::new(OperationHost::open(runtime, policy)?.for_owner());
    let call = host.context();
    let control = call.control().clone();
    let failed = |error: std::io::Error| {
        Problem::new(ErrorCode::Io, format!("signals cannot be watched: {error}"))
    };
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let handle = signals.handle();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                control.cancel();
            }
        })
        .map_err(failed)?;
    let answer = operation.call_value(&call, request);
    handle.close();
    answer
}

/// Finds the server of this data directory for what outlives a call.
fn of_data_dir(
    context: &Context,
    arguments: &CallArguments,
    operation: &Operation,
) -> Result<Client, Problem> {
    if launch::task_policy(context, &arguments.walls)?
        != cofferdam_runtime::PolicyRequest::default()
    {
        return Err(Problem::new(
            ErrorCode::InvalidRequest,
            format!(
                "{} is carried out by a server, whose workspace and walls are fixed",
                operation.name()
            ),
        )
        .with_hint("give the flags to `cofferdam serve`, or narrow with fields of the request"));
    }
    living::of_data_dir(context, &format!("what {} is about", operation.name()))
}

/// Prints a result; a command's exit code is its own.
fn finish(output: Output, answer: &Value) -> Ending {
    if output.is_json() {
        output.line(answer)?;
    } else {
        output.text(&result_text(answer))?;
    }
    let outcome = serde_json::from_value::<CommandOutcome>(answer.clone());
    Ok(outcome.map_or(exit::SUCCESS, |outcome| outcome.exit_code()))
}

fn list(context: &Context, table: &OperationTable) -> Ending {
    if context.output.is_json() {
        let operations: Vec<Value> = table
            .iter()
            .map(|one| {
                json!({
                    "name": one.name(),
                    "summary": one.summary(),
                    "scope": one.scope().as_str(),
                    "needs_server": one.outlives_call(),
                    "request": one.request_schema(),
                })
            })
            .collect();
        context.output.line(&json!({"operations": operations}))?;
        return Ok(exit::SUCCESS);
    }
    let mut rows = Table::new(&["operation", "scope", "what it does"]);
    for one in table {
        rows.row([
            one.name().to_owned(),
            one.scope().as_str().to_owned(),
            one.summary().to_owned(),
        ]);
    }
    let rows = rows.render();
    context
        .output
        .text(&format!("{rows}\nnext: cofferdam call OPERATION --help"))?;
    Ok(exit::SUCCESS)
}

/// Prints what an operation takes and gives.
fn help(operation: &Operation) -> Result<(), crate::failure::Failure> {
    let mut text = format!(
        "{}\n\n{}\n\nUsage: cofferdam call {} [--FIELD VALUE]...\n\nFields:\n",
        operation.summary(),
        operation.description(),
        operation.name()
    );
    for field in fields(&operation.request_schema()) {
        let value = match &field.kind {
            FieldKind::Switch => String::new(),
            FieldKind::Map => " NAME=VALUE".to_owned(),
            kind => format!(" <{}>", kind.word().replace("\\|", "|")),
        };
        let must = if field.required {
            " [must be there]"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "  --{}{value}{must}\n          {}",
            field.name.replace('_', "-"),
            field.description
        );
    }
    text.push_str(
        "\nAll fields at once: --request JSON, or --request - for standard input. Words behind `--` are argv.\n",
    );
    text.push_str("\nGives: ");
    let names: Vec<String> = fields(&operation.result_schema())
        .into_iter()
        .map(|field| field.name)
        .collect();
    text.push_str(&names.join(", "));
    text.push('\n');
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Text of a word; fields are text.
pub(super) fn utf8(word: &OsString) -> Result<&str, Problem> {
    word.to_str().ok_or_else(|| {
        Problem::new(
            ErrorCode::InvalidRequest,
            format!("{} is not UTF-8", word.to_string_lossy()),
        )
    })
}
