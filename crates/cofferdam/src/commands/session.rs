//! `session …`: sessions of a running server, as thin verbs over the operations.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::operation::{
    ListSessions, OpenSession, ReadSessionLog, RunInSession, SessionClosed, SessionList,
    SessionLogPage, SessionMode, SessionReference, SessionResult, SessionView,
};
use cofferdam_core::spec::Access;

use super::living;
use crate::arguments::policy::NetworkChoice;
use crate::arguments::session::{
    SessionCloseArguments, SessionCommand, SessionListArguments, SessionLogArguments,
    SessionOpenArguments, SessionRunArguments,
};
use crate::context::Context;
use crate::failure::Ending;
use crate::render::outcome::notes;
use crate::render::sessions as render;

/// Begins the sentence that tells that there is no server.
const WHAT: &str = "a session";

/// Carries out `session …`.
pub(crate) fn session(context: &Context, command: &SessionCommand) -> Ending {
    match command {
        SessionCommand::Open(arguments) => open(context, arguments),
        SessionCommand::Run(arguments) => run(context, arguments),
        SessionCommand::List(arguments) => list(context, arguments),
        SessionCommand::Log(arguments) => log(context, arguments),
        SessionCommand::Close(arguments) => close(context, arguments),
    }
}

fn open(context: &Context, arguments: &SessionOpenArguments) -> Ending {
    let request = OpenSession {
        name: arguments.name.clone(),
        mode: if arguments.plain {
            SessionMode::Plain
        } else {
            SessionMode::Shell
        },
        network: arguments.net.map(NetworkChoice::level),
        write_access: arguments.read_only.then_some(Access::Read),
        idle_limit: arguments.idle_limit,
        lifetime: arguments.lifetime,
        workspace: None,
    };
    let client = living::client(context, &arguments.server, WHAT)?;
    let view: SessionView = client.call("session_open", &request)?;
    context.output.result(&view, render::opened)?;
    Ok(exit::SUCCESS)
}

fn run(context: &Context, arguments: &SessionRunArguments) -> Ending {
    let stdin = if arguments.stdin {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| {
                Problem::new(
                    ErrorCode::InvalidRequest,
                    format!("standard input cannot be read as text: {error}"),
                )
            })?;
        Some(text)
    } else {
        None
    };
    let request = RunInSession {
        session: arguments.session.clone(),
        command: arguments.script.clone(),
        argv: arguments
            .script
            .is_none()
            .then(|| arguments.command.clone()),
        cwd: arguments
            .cwd
            .as_ref()
            .map(|path| context.absolute(path))
            .transpose()?
            .map(|path| path.display().to_string()),
        timeout: arguments.limits.timeout,
        idle_timeout: arguments.limits.idle_timeout,
        env: variables(&arguments.env)?,
        stdin,
        aside: arguments.aside,
    };
    let client = living::client_of_session(context, &arguments.server, &arguments.session, WHAT)?;
    let mut answer: SessionResult = client.call("session_run", &request)?;
    if let [word] = arguments.command.as_slice()
        && word.contains(char::is_whitespace)
        && let Some(problem) = &mut answer.result.error
        && problem.code == ErrorCode::NotFound
    {
        problem.hint = Some(format!(
            "words behind -- are no text for a shell; try: cofferdam session run {} -c {}",
            arguments.session,
            super::setup::quoted(word)
        ));
    }
    show(context, &answer)
}

/// Prints how a command of a session ended; gives its exit code.
pub(super) fn show(context: &Context, answer: &SessionResult) -> Ending {
    let outcome = &answer.result;
    if context.output.is_json() {
        context.output.result(answer, |_| String::new())?;
    } else {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(outcome.stdout.as_bytes())?;
        stdout.flush()?;
        // A closed standard error is no reason to stop.
        let _ = std::io::stderr().write_all(outcome.stderr.as_bytes());
    }
    if answer.session_reset {
        context
            .output
            .note("the walls of the session were put up anew: jobs and private files are gone");
    }
    if let Some(reason) = &answer.state_reason {
        context
            .output
            .note(&format!("directory and variables are as before: {reason}"));
    }
    for line in notes(outcome) {
        context.output.note(&line);
    }
    if let Some(problem) = &outcome.error {
        context.output.explain(problem);
    }
    Ok(outcome.exit_code())
}

fn variables(given: &[String]) -> Result<BTreeMap<String, String>, Problem> {
    given
        .iter()
        .map(|pair| {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Problem::new(
                    ErrorCode::InvalidRequest,
                    format!("{pair:?} is no NAME=VALUE"),
                )
                .with_field("env")
            })?;
            Ok((name.to_owned(), value.to_owned()))
        })
        .collect()
}

fn list(context: &Context, arguments: &SessionListArguments) -> Ending {
    let client = living::client(context, &arguments.server, WHAT)?;
    let list: SessionList = client.call("session_list", &ListSessions {})?;
    context.output.result(&list, render::list)?;
    Ok(exit::SUCCESS)
}

fn log(context: &Context, arguments: &SessionLogArguments) -> Ending {
    let request = ReadSessionLog {
        session: arguments.session.clone(),
        offset: arguments.offset,
    };
    let client = living::client_of_session(context, &arguments.server, &arguments.session, WHAT)?;
    let page: SessionLogPage = client.call("session_log", &request)?;
    context.output.result(&page, |page| page.text.clone())?;
    Ok(exit::SUCCESS)
}

fn close(context: &Context, arguments: &SessionCloseArguments) -> Ending {
    let request = SessionReference {
        session: arguments.session.clone(),
    };
    let client = living::client_of_session(context, &arguments.server, &arguments.session, WHAT)?;
    let closed: SessionClosed = client.call("session_close", &request)?;
    context.output.result(&closed, render::closed)?;
    Ok(exit::SUCCESS)
}
