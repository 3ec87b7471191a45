//! Terminals of a running server: thin verbs over the operations.

use std::collections::BTreeMap;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::operation::{
    InputStatus, TerminalChoice, TerminalClosed, TerminalInfo, TerminalInput, TerminalKey,
    TerminalList, TerminalListRequest, TerminalName, TerminalOpen, TerminalOpened, TerminalOutput,
    TerminalResize, TerminalScreen, TerminalSignal, TerminalSnapshot, TerminalTarget,
};
use cofferdam_core::spec::Access;

use super::super::living;
use crate::arguments::policy::NetworkChoice;
use crate::arguments::terminal::{
    TerminalInputArguments, TerminalListArguments, TerminalNameArguments, TerminalOpenArguments,
    TerminalResizeArguments, TerminalSignalArguments, TerminalSnapshotArguments,
};
use crate::context::Context;
use crate::failure::Ending;
use crate::render::terminals as render;

/// Begins the sentence that tells that there is no server.
pub(in crate::commands) const WHAT: &str = "a terminal";

/// Reads the name of a terminal.
pub(in crate::commands) fn name(text: &str) -> Result<TerminalName, Problem> {
    TerminalName::parse(text).map_err(|error| {
        Problem::new(ErrorCode::InvalidRequest, error.to_string()).with_field("name")
    })
}

pub(super) fn open(context: &Context, arguments: &TerminalOpenArguments) -> Ending {
    let request = TerminalOpen {
        name: name(&arguments.name)?,
        cwd: arguments
            .cwd
            .as_ref()
            .map(|path| context.absolute(path))
            .transpose()?
            .map(|path| path.display().to_string()),
        argv: arguments.command.clone(),
        env: BTreeMap::new(),
        rows: Some(arguments.rows),
        columns: Some(arguments.columns),
        write_access: arguments.read_only.then_some(Access::Read),
        network: arguments.net.map(NetworkChoice::level),
        session: arguments.session.clone(),
        record: !arguments.no_record,
        workspace: None,
    };
    let client = living::client(context, &arguments.server, WHAT)?;
    let opened: TerminalOpened = client.call("terminal_open", &request)?;
    context.output.result(&opened, render::opened)?;
    Ok(exit::SUCCESS)
}

pub(super) fn list(context: &Context, arguments: &TerminalListArguments) -> Ending {
    let client = living::client(context, &arguments.server, WHAT)?;
    let list: TerminalList = client.call("terminal_list", &TerminalListRequest {})?;
    context.output.result(&list, render::list)?;
    Ok(exit::SUCCESS)
}

pub(super) fn input(context: &Context, arguments: &TerminalInputArguments) -> Ending {
    let keys: Result<Vec<TerminalKey>, Problem> = arguments
        .key
        .iter()
        .map(|key| {
            TerminalKey::parse(key).map_err(|error| {
                Problem::new(ErrorCode::InvalidRequest, error.to_string()).with_field("key")
            })
        })
        .collect();
    let request = TerminalInput {
        name: Some(name(&arguments.name)?),
        text: arguments.text.clone(),
        enter: arguments.no_enter.then_some(false),
        keys: keys?,
        output_wait: arguments.wait,
        raw: false,
    };
    let client = living::client_of_lasting(context, &arguments.server, &arguments.name, WHAT)?;
    let answer: TerminalOutput = client.call("terminal_input", &request)?;
    context.output.result(&answer, render::output)?;
    if !context.output.is_json() {
        context.output.note(&render::status(&answer));
    }
    Ok(match answer.status {
        InputStatus::Completed | InputStatus::AwaitingInput | InputStatus::OutputWithEcho => {
            exit::SUCCESS
        }
        InputStatus::Timeout | InputStatus::NoOutput | InputStatus::EchoLoop => exit::TIMEOUT,
        InputStatus::Error => exit::OWN_FAILURE,
    })
}

pub(super) fn snapshot(context: &Context, arguments: &TerminalSnapshotArguments) -> Ending {
    let request = TerminalSnapshot {
        name: Some(name(&arguments.name)?),
        lines: Some(arguments.lines),
        colors: arguments.colors,
        raw: false,
    };
    let client = living::client_of_lasting(context, &arguments.server, &arguments.name, WHAT)?;
    let screen: TerminalScreen = client.call("terminal_snapshot", &request)?;
    context
        .output
        .result(&screen, |screen| screen.text.clone())?;
    Ok(exit::SUCCESS)
}

pub(super) fn resize(context: &Context, arguments: &TerminalResizeArguments) -> Ending {
    let request = TerminalResize {
        name: Some(name(&arguments.name)?),
        rows: arguments.rows,
        columns: arguments.columns,
    };
    let client = living::client_of_lasting(context, &arguments.server, &arguments.name, WHAT)?;
    let info: TerminalInfo = client.call("terminal_resize", &request)?;
    context.output.result(&info, render::one)?;
    Ok(exit::SUCCESS)
}

pub(super) fn signal(context: &Context, arguments: &TerminalSignalArguments) -> Ending {
    let request = TerminalSignal {
        name: Some(name(&arguments.name)?),
        signal: arguments.signal.clone(),
        target: if arguments.all {
            TerminalTarget::All
        } else {
            TerminalTarget::Foreground
        },
    };
    let client = living::client_of_lasting(context, &arguments.server, &arguments.name, WHAT)?;
    let info: TerminalInfo = client.call("terminal_signal", &request)?;
    context.output.result(&info, render::one)?;
    Ok(exit::SUCCESS)
}

pub(super) fn reset(context: &Context, arguments: &TerminalNameArguments) -> Ending {
    let client = living::client_of_lasting(context, &arguments.server, &arguments.name, WHAT)?;
    let opened: TerminalOpened = client.call("terminal_reset", &choice(arguments)?)?;
    context.output.result(&opened, render::opened)?;
    Ok(exit::SUCCESS)
}

pub(super) fn close(context: &Context, arguments: &TerminalNameArguments) -> Ending {
    let client = living::client_of_lasting(context, &arguments.server, &arguments.name, WHAT)?;
    let closed: TerminalClosed = client.call("terminal_close", &choice(arguments)?)?;
    context.output.result(&closed, render::closed)?;
    Ok(exit::SUCCESS)
}

fn choice(arguments: &TerminalNameArguments) -> Result<TerminalChoice, Problem> {
    Ok(TerminalChoice {
        name: Some(name(&arguments.name)?),
    })
}
