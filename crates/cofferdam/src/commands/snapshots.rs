//! Snapshots of the user's own checkout: kept around a command, listed, and gone back to.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::outcome::CommandOutcome;
use cofferdam_runtime::{CheckoutSnapshot, PolicyRequest, Runtime};
use serde_json::json;

use super::review;
use crate::arguments::review::UndoArguments;
use crate::context::Context;
use crate::failure::Ending;
use crate::render::snapshots as render;

/// The files of a checkout before a command.
pub(super) struct Kept {
    before: CheckoutSnapshot,
    words: String,
}

impl Kept {
    /// Keeps the files where that was asked for, or an agent is to run.
    ///
    /// What cannot be kept is refused only where it was asked for.
    pub(super) fn begin(
        runtime: &Runtime,
        policy: &PolicyRequest,
        is_asked: bool,
        words: &str,
    ) -> Result<Option<Self>, Problem> {
        let is_agent = policy
            .owner
            .profile
            .as_deref()
            .is_some_and(|name| name != "none");
        if !is_asked && !is_agent {
            return Ok(None);
        }
        let taken = runtime.take_snapshot(policy, &format!("before: {words}"));
        match taken {
            Ok(Some(before)) => Ok(Some(Self {
                before,
                words: words.to_owned(),
            })),
            Ok(None) if is_asked => Err(Problem::new(
                ErrorCode::NotARepository,
                "a snapshot needs a git repository with a commit",
            )
            .with_field("snapshot")
            .with_hint("leave --snapshot out, or commit once")),
            Err(problem) if is_asked => Err(problem),
            Ok(None) | Err(_) => Ok(None),
        }
    }

    /// Keeps the files after the command, and says how to go back; nothing where nothing changed.
    pub(super) fn end(
        self,
        runtime: &Runtime,
        policy: &PolicyRequest,
        outcome: &CommandOutcome,
    ) -> Option<String> {
        let taken = runtime
            .take_snapshot(policy, &format!("after: {}", self.words))
            .and_then(|after| {
                let Some(after) = after else { return Ok(0) };
                let command = (&outcome.command_id, self.words.as_str());
                runtime.credit_snapshot(policy, command, (&self.before, &after))
            });
        let name = &self.before.name;
        match taken {
            Ok(0) => None,
            Ok(1) => Some(format!(
                "1 file changed; cofferdam undo {name} puts it back"
            )),
            Ok(files) => Some(format!(
                "{files} files changed; cofferdam undo {name} puts them back"
            )),
            Err(problem) => Some(format!(
                "what changed could not be kept: {problem}; cofferdam undo {name} puts files back"
            )),
        }
    }
}

/// Tells the name of a snapshot from that of a task.
fn is_snapshot(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_prefix('s').is_some_and(is_number)
        || name
            .strip_prefix('t')
            .and_then(|rest| rest.rsplit_once('.'))
            .is_some_and(|(_, which)| which == "end" || is_number(which))
}

/// Carries out `undo`.
pub(crate) fn undo(context: &Context, arguments: &UndoArguments) -> Ending {
    if arguments.list {
        let from = review::meant(context, &arguments.repository)?;
        let list = context.task_runtime()?.snapshots(&from)?;
        let now = context.ambient.now().as_second();
        context
            .output
            .result(&json!({"snapshots": list}), |_| render::list(&list, now))?;
        return Ok(exit::SUCCESS);
    }
    if !arguments.tasks.iter().any(|name| is_snapshot(name)) {
        return review::undo(context, &arguments.tasks, &arguments.repository);
    }
    let [name] = arguments.tasks.as_slice() else {
        return Err(Problem::new(
            ErrorCode::InvalidRequest,
            "one snapshot can be gone back to, not several, and no task beside it",
        )
        .with_field("tasks")
        .into());
    };
    let from = review::meant(context, &arguments.repository)?;
    let restored = context.task_runtime()?.restore_snapshot(&from, name)?;
    context.output.result(&restored, render::restored)?;
    Ok(exit::SUCCESS)
}
