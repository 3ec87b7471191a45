//! `setup`: agents that their owner uses, put behind walls in one of three ways.

mod agents;
mod change;
mod configure;
mod document;
mod marks;
mod shim;
mod wrap;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;

use crate::arguments::setup::{Mode, SetupArguments};
use crate::context::Context;
use crate::failure::Ending;

/// Carries out `setup`.
pub(crate) fn setup(context: &Context, arguments: &SetupArguments) -> Ending {
    let mode = arguments.mode;
    if arguments.undo {
        let configured = configure::mode_of(context, arguments.agent)?;
        // Without a mode: all that was set up, and what would be said of none where none was.
        let means = |one| mode.is_none_or(|mode| mode == one);
        if let Some(one) = configured
            && means(one)
        {
            configure::undo(context, arguments.agent, one)?;
            if mode.is_some() || !wrap::is_wrapped(context, arguments.agent) {
                return Ok(exit::SUCCESS);
            }
        } else if let Some(mode @ (Mode::Hook | Mode::Mcp)) = mode {
            return configure::nothing_to_undo(context, arguments.agent, mode);
        }
        return wrap::undo(context, arguments.agent);
    }
    match mode.unwrap_or(Mode::Wrap) {
        Mode::Wrap if !arguments.walls.is_empty() => Err(Problem::new(
            ErrorCode::InvalidRequest,
            "flags for walls behind -- are for --mode mcp and --mode hook",
        )
        .with_field("walls")
        .with_hint("a wrapped agent takes its walls from your policy")
        .into()),
        Mode::Wrap => wrap::wrap(context, arguments),
        mode => configure::configure(context, arguments, mode),
    }
}

/// Tells where this program lies.
fn own_program() -> Result<std::path::PathBuf, Problem> {
    std::env::current_exe().map_err(|error| {
        Problem::new(
            ErrorCode::Internal,
            format!("this program does not know where it lies: {error}"),
        )
    })
}

/// Writes where this program lies as a word of a shell.
pub(super) fn own_word() -> Result<String, Problem> {
    Ok(quoted(plain_path(&own_program()?)?))
}

/// Gives a path as text that stands on one line.
pub(super) fn plain_path(path: &std::path::Path) -> Result<&str, Problem> {
    path.to_str()
        .filter(|path| !path.contains(['\n', '\r']))
        .ok_or_else(|| {
            Problem::new(
                ErrorCode::InvalidRequest,
                format!("{} cannot be written into a script", path.display()),
            )
            .with_hint("install Cofferdam at a path of plain text")
        })
}

/// Writes text as one word of a shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
