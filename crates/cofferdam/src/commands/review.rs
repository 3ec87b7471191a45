//! `review`, and `merge`, `drop` and `undo` for several tasks.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::operation::ReleaseHeld;
use cofferdam_core::task::MergeStatus;
use cofferdam_runtime::{FrontDoor, MergeOptions, Runtime, TaskMerge, TaskReview};
use serde::Serialize;
use serde_json::json;

use crate::arguments::review::ReviewArguments;
use crate::arguments::task::{MergeHow, RepositoryMeant};
use crate::context::Context;
use crate::failure::{Ending, Failure, problem_exit_code};
use crate::render::{by_command, review as render, tasks};

/// Lines that are printed at once on a terminal whose height is not known.
const LINES_AT_ONCE: usize = 24;

/// Carries out `review`.
pub(crate) fn review(context: &Context, arguments: &ReviewArguments) -> Ending {
    if !arguments.apply_state.is_empty() {
        return apply_state(context, &arguments.tasks, &arguments.apply_state);
    }
    if arguments.commands {
        return commands(context, arguments.session.as_deref());
    }
    let runtime = context.task_runtime()?;
    let patch = !arguments.stat;
    let reviews = if arguments.tasks.is_empty() {
        runtime.review_open(patch)?
    } else {
        let named = arguments.tasks.iter();
        named
            .map(|task| runtime.review(task, patch))
            .collect::<Result<Vec<_>, _>>()?
    };
    if context.output.is_json() {
        context
            .output
            .result(&json!({"tasks": reviews}), |_| String::new())?;
        return Ok(exit::SUCCESS);
    }
    let text = if reviews.is_empty() {
        let last = runtime.tasks()?.last().map(|task| task.number);
        render::nothing(last)
    } else {
        render::reviews(&reviews)
    };
    show(context, &text, &reviews, !arguments.no_pager)
}

/// Shows which command changed which file of the checkout.
fn commands(context: &Context, session: Option<&str>) -> Ending {
    let here = context.current_dir()?;
    let review = context.task_runtime()?.review_commands(&here, session)?;
    let now = context.ambient.now();
    context
        .output
        .result(&review, |review| by_command::render(review, now))?;
    Ok(exit::SUCCESS)
}

/// Applies changes of an agent's own state, one after the other, until one is refused.
fn apply_state(context: &Context, tasks: &[String], paths: &[String]) -> Ending {
    let [task] = tasks else {
        return Err(Problem::new(
            ErrorCode::InvalidRequest,
            "--apply-state takes one task, not several",
        )
        .with_field("apply_state")
        .into());
    };
    let runtime = context.task_runtime()?;
    let mut applied = Vec::new();
    let mut refused = None;
    for path in paths {
        match runtime.apply_state(task, path) {
            Ok(done) => applied.push(done),
            Err(problem) => {
                refused = Some(problem);
                break;
            }
        }
    }
    let changes: Vec<_> = applied.iter().map(|one| &one.change).collect();
    context
        .output
        .result(&json!({"applied": changes}), |_| render::applied(&changes))?;
    match refused {
        None => Ok(exit::SUCCESS),
        Some(problem) => {
            context.output.explain(&problem);
            Ok(problem_exit_code(&problem))
        }
    }
}

/// Prints a text, through a pager where a person looks at more than a screen of it.
fn show(context: &Context, text: &str, reviews: &[TaskReview], pager: bool) -> Ending {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        // Patches as bytes for a program: what is no text stays as it is.
        context.output.text(text)?;
        let mut stream = stdout.lock();
        for review in reviews {
            if !review.changes.patch_bytes.is_empty() {
                stream.write_all(b"\n")?;
            }
            stream.write_all(&review.changes.patch_bytes)?;
        }
        stream.flush()?;
        drop(stream);
        let state: String = reviews.iter().map(render::state).collect();
        if !state.is_empty() {
            context.output.text(&state)?;
        }
        return Ok(exit::SUCCESS);
    }
    let whole = format!("{text}{}", render::patches(reviews));
    if pager && whole.lines().count() >= height() && paged(context, &whole)? {
        return Ok(exit::SUCCESS);
    }
    context.output.text(&whole)?;
    Ok(exit::SUCCESS)
}

/// Gives the height of the terminal in lines.
fn height() -> usize {
    rustix::termios::tcgetwinsize(rustix::stdio::stdout())
        .ok()
        .map(|size| usize::from(size.ws_row))
        .filter(|rows| *rows > 0)
        .unwrap_or(LINES_AT_ONCE)
}

/// Shows a text in the caller's pager; tells whether there was one.
fn paged(context: &Context, text: &str) -> Result<bool, Failure> {
    let named = context
        .variable("COFFERDAM_PAGER")
        .or_else(|| context.variable("PAGER"))
        .map(|name| name.to_string_lossy().into_owned());
    let command = named.unwrap_or_else(|| "less".to_owned());
    if command == "cat" {
        return Ok(false);
    }
    let mut environment = context.environment.clone();
    if context.variable("LESS").is_none() {
        // Ends where all fits, keeps colours, leaves the text on the screen.
        environment.push(("LESS".into(), "FRX".into()));
    }
    // Ctrl-C is for the pager; this program waits for it.
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let held = signal_hook::flag::register(signal_hook::consts::SIGINT, seen);
    let colours = anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never;
    let plain;
    let text = if colours {
        text
    } else {
        plain = anstream::adapter::strip_str(text).to_string();
        &plain
    };
    let shown = cofferdam_exec::page(&command, &environment, text.as_bytes());
    if let Ok(held) = held {
        signal_hook::low_level::unregister(held);
    }
    Ok(shown?)
}

/// What was done with several tasks, in order.
#[derive(Debug, Serialize)]
struct Done<T> {
    /// What was done, and last what was refused.
    tasks: Vec<T>,
    /// Tasks that were not come to, as they were named.
    not_done: Vec<String>,
}

/// Does something with one task after the other, until one is refused.
///
/// With one task the result is that of `task …`; with several they stand in a list.
fn each<T: Serialize>(
    context: &Context,
    names: &[String],
    verb: &str,
    work: impl Fn(&Runtime, &str) -> Result<(T, Option<Problem>), Problem>,
    text: impl Fn(&T) -> String,
) -> Ending {
    let runtime = context.task_runtime()?;
    let mut done = Done {
        tasks: Vec::new(),
        not_done: Vec::new(),
    };
    let mut refused = None;
    for (index, name) in names.iter().enumerate() {
        match work(&runtime, name) {
            Ok((result, problem)) => {
                done.tasks.push(result);
                refused = problem;
            }
            Err(problem) if names.len() == 1 => return Err(problem.into()),
            Err(problem) => refused = Some(problem),
        }
        if refused.is_some() {
            done.not_done = names[index + 1..].to_vec();
            break;
        }
    }
    match done.tasks.as_slice() {
        [only] if names.len() == 1 => context.output.result(only, &text)?,
        _ => context.output.result(&done, |done| {
            done.tasks.iter().map(&text).collect::<Vec<_>>().join("\n")
        })?,
    }
    let Some(problem) = refused else {
        return Ok(exit::SUCCESS);
    };
    context.output.explain(&problem);
    if !done.not_done.is_empty() {
        let left = done.not_done.join(", ");
        context
            .output
            .note(&format!("not {verb} after that: {left}"));
    }
    Ok(problem_exit_code(&problem))
}

/// Gives the directory in the repository that is meant.
pub(super) fn meant(context: &Context, repository: &RepositoryMeant) -> Result<PathBuf, Problem> {
    let here = context.current_dir()?;
    Ok(match &repository.repository {
        Some(named) => here.join(named),
        None => here,
    })
}

/// Carries out `merge`.
pub(crate) fn merge(context: &Context, tasks: &[String], how: &MergeHow) -> Ending {
    let options = MergeOptions {
        into: how.into.clone(),
        allow_protected: how.allow_protected,
        from: Some(meant(context, &how.repository)?),
    };
    let here = context.current_dir()?;
    each(
        context,
        tasks,
        "merged",
        |runtime, name| {
            let mut merge = runtime.merge(name, &options)?;
            let mut problem = merge.problem.clone();
            if let Some(problem) = &mut problem
                && problem.hint.is_none()
            {
                let number = merge.number;
                problem.hint = Some(format!("cofferdam merge {number} --into BRANCH"));
            }
            if how.push && merge.merge.status == MergeStatus::Merged {
                problem = push_merged(runtime, &mut merge, name, how.remote.as_deref()).err();
            }
            Ok((merge, problem))
        },
        |merge| tasks::merged(merge, &here),
    )
}

/// Pushes the branch into which a task was merged. What does not get through stays held.
fn push_merged(
    runtime: &Runtime,
    merge: &mut TaskMerge,
    name: &str,
    remote: Option<&str>,
) -> Result<(), Problem> {
    let held = runtime.propose_merged(name, remote)?;
    let id = held.proposal.proposal_id.clone();
    merge.pushed = Some(held);
    let request = ReleaseHeld {
        proposal_ids: vec![id.clone()],
        task: None,
    };
    let released = runtime.release_held(&request, FrontDoor::CommandLine);
    merge.pushed = Some(runtime.held_one(&id)?);
    match released {
        // The same was pushed before.
        Err(problem) if problem.code == ErrorCode::ProposalDecided => Ok(()),
        Err(problem) => {
            let hint = format!("cofferdam outbox release {id}");
            Err(problem.with_hint(hint))
        }
        Ok(_) => Ok(()),
    }
}

/// Carries out `drop`.
pub(crate) fn drop_tasks(context: &Context, tasks: &[String]) -> Ending {
    let here = context.current_dir()?;
    let work = |runtime: &Runtime, name: &str| Ok((runtime.drop_task(name)?, None));
    let text = |dropped: &_| tasks::dropped(dropped, &here);
    each(context, tasks, "dropped", work, text)
}

/// Carries out `undo`.
pub(crate) fn undo(context: &Context, tasks: &[String], repository: &RepositoryMeant) -> Ending {
    let here = context.current_dir()?;
    let from = meant(context, repository)?;
    let work = |runtime: &Runtime, name: &str| Ok((runtime.undo(name, Some(&from))?, None));
    let text = |undone: &_| tasks::undone(undone, &here);
    each(context, tasks, "taken back", work, text)
}
