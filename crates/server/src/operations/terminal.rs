//! Persistent terminals (E7).

use cofferdam_core::error::Problem;
use cofferdam_core::operation::{
    TerminalChoice, TerminalClosed, TerminalInfo, TerminalInput, TerminalList, TerminalListRequest,
    TerminalOpen, TerminalOpened, TerminalOutput, TerminalReset, TerminalResize, TerminalScreen,
    TerminalSignal, TerminalSnapshot, TerminalWrite, TerminalWritten,
};
use cofferdam_runtime::{FrontDoor, TerminalRequest};

use super::context::OperationContext;
use super::entry::{Annotations, Operation, Scope};

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "terminal_open",
            "Open a terminal that stays, with a shell in it",
            "Opens a real terminal behind the walls, by a new name. Directory, variables and jobs \
             stay from one input to the next. What it may is fixed now: `write_access` read gives \
             one that cannot write the workspace. The first one becomes the active one, which \
             requests without a name mean.",
            Scope::Execute,
            Annotations::RUNS,
            open,
        ),
        Operation::new(
            "terminal_input",
            "Type into a terminal and wait for what comes of it",
            "Types `text`, Enter after it unless `enter` is false, and then `keys` (ctrl-c, up, tab, \
             escape, …). The answer comes as soon as it is known that nothing more comes by itself, \
             at the latest after `output_wait` seconds: a generous value costs nothing. `status` is \
             completed when the shell waits for the next command, awaiting_input when a program \
             waits for a line or for keys, timeout when it still runs; ask again without text to \
             wait on. `output` is what a person would see of it.",
            Scope::Execute,
            Annotations::RUNS,
            input,
        ),
        Operation::new(
            "terminal_write",
            "Type bytes into a terminal, without waiting",
            "Types bytes as they are, given in base64, for programs that pass a person's keyboard \
             on. What comes of it is in the terminal's stream.",
            Scope::Execute,
            Annotations::RUNS,
            write,
        ),
        Operation::new(
            "terminal_snapshot",
            "See what a terminal shows",
            "Gives the last lines of screen and history as plain text, with colours when `colors` is \
             true, and with the bytes as they came when `raw` is. Nothing is waited for.",
            Scope::Read,
            Annotations::READS,
            snapshot,
        ),
        Operation::new(
            "terminal_resize",
            "Give a terminal another size",
            "Changes height and width in characters; what runs in it is told.",
            Scope::Execute,
            Annotations::CHANGES,
            resize,
        ),
        Operation::new(
            "terminal_signal",
            "Send a signal to what runs in a terminal",
            "Sends a signal to the foreground, or to every process of the terminal when `target` is \
             all.",
            Scope::Execute,
            Annotations::RUNS,
            signal,
        ),
        Operation::new(
            "terminal_switch",
            "Make a terminal the active one",
            "Requests without a name mean the active terminal.",
            Scope::Execute,
            Annotations::CHANGES,
            switch,
        ),
        Operation::new(
            "terminal_reset",
            "Begin a terminal anew",
            "Closes it and opens it again with the same name, rights, directory and size. Everything \
             that runs in it is ended.",
            Scope::Execute,
            Annotations::ENDS,
            reset,
        ),
        Operation::new(
            "terminal_close",
            "Close a terminal",
            "Ends everything that runs in it and waits for that. The next one becomes the active one.",
            Scope::Execute,
            Annotations::ENDS,
            close,
        ),
        Operation::new(
            "terminal_list",
            "List the terminals that are open",
            "Gives each with what it is doing now, and which is the active one.",
            Scope::Read,
            Annotations::READS,
            list,
        ),
    ]
}

fn open(context: &OperationContext, request: TerminalOpen) -> Result<TerminalOpened, Problem> {
    context.check_workspace(request.workspace.as_deref())?;
    let mut open = request;
    if open.session.is_none() {
        // The top of the workspace: where this server was started is nobody's business.
        open.cwd
            .get_or_insert_with(|| context.workspace().as_path().display().to_string());
    }
    context.runtime().terminal_open(TerminalRequest {
        policy: context.policy(),
        open,
        front_door: FrontDoor::Protocol,
        control: context.control().clone(),
    })
}

fn input(context: &OperationContext, request: TerminalInput) -> Result<TerminalOutput, Problem> {
    context
        .runtime()
        .terminal_input(&request, context.control())
}

fn write(context: &OperationContext, request: TerminalWrite) -> Result<TerminalWritten, Problem> {
    context.runtime().terminal_write(&request)
}

fn snapshot(
    context: &OperationContext,
    request: TerminalSnapshot,
) -> Result<TerminalScreen, Problem> {
    context.runtime().terminal_snapshot(&request)
}

fn resize(context: &OperationContext, request: TerminalResize) -> Result<TerminalInfo, Problem> {
    context.runtime().terminal_resize(&request)
}

fn signal(context: &OperationContext, request: TerminalSignal) -> Result<TerminalInfo, Problem> {
    context.runtime().terminal_signal(&request)
}

fn switch(context: &OperationContext, request: TerminalChoice) -> Result<TerminalList, Problem> {
    context.runtime().terminal_switch(&request)
}

fn reset(context: &OperationContext, request: TerminalReset) -> Result<TerminalOpened, Problem> {
    context.runtime().terminal_reset(&request)
}

fn close(context: &OperationContext, request: TerminalChoice) -> Result<TerminalClosed, Problem> {
    context.runtime().terminal_close(&request)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the shape of every handler of the table"
)]
fn list(
    context: &OperationContext,
    TerminalListRequest {}: TerminalListRequest,
) -> Result<TerminalList, Problem> {
    Ok(context.runtime().terminal_list())
}
