//! What is made of the whole journal: topology, evidence, threads, verifier, summary.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::limits;
use cofferdam_journal::{Journal, Query};
use cofferdam_server::View;
use cofferdam_visibility::{Meta, State};
use serde::Serialize;

use super::reference;
use crate::arguments::view::{EvidenceArguments, ThreadsArguments};
use crate::context::Context;
use crate::failure::{Ending, Failure};
use crate::render::view as render;

/// A journal folded up to its head.
#[derive(Debug)]
struct Folded {
    state: State,
    meta: Meta,
}

fn fold(journal: &dyn Journal) -> Result<Folded, Problem> {
    let mut state = State::default();
    let mut query = Query::default().limit(limits::PAGE_EVENTS_CAP).resolved();
    loop {
        let page = journal.read(&query).map_err(|error| error.to_problem())?;
        for event in &page.events {
            state.apply(event);
        }
        let Some(next) = page.next() else {
            let meta = Meta::of_view(&page.head.epoch, page.window.first_pos, page.head.pos);
            return Ok(Folded { state, meta });
        };
        query.after = Some(next);
    }
}

/// Prints a view: for programs with where the journal stood, as the server gives it.
pub(super) fn show<T: Serialize>(
    context: &Context,
    meta: Meta,
    data: T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    context
        .output
        .result(&View { data, meta }, |view| text(&view.data))
}

/// Carries out `topology`.
pub(crate) fn topology(context: &Context) -> Ending {
    let Folded { state, meta } = fold(context.journal()?.as_ref())?;
    show(context, meta, state.topology(), render::topology)?;
    Ok(exit::SUCCESS)
}

/// Renders the topology of a journal.
pub(crate) fn topology_text(journal: &dyn Journal) -> Result<String, Problem> {
    Ok(render::topology(&fold(journal)?.state.topology()))
}

/// Carries out `evidence`.
pub(crate) fn evidence(context: &Context, arguments: &EvidenceArguments) -> Ending {
    let journal = context.journal()?;
    let task = reference::task(journal.as_ref(), &arguments.task)?;
    let Folded { state, meta } = fold(journal.as_ref())?;
    let evidence = state.evidence(task.as_str()).ok_or_else(|| {
        Problem::new(
            ErrorCode::TaskUnknown,
            format!("the journal tells nothing about {task}"),
        )
    })?;
    show(context, meta, evidence, render::evidence)?;
    Ok(exit::SUCCESS)
}

/// Carries out `threads`.
pub(crate) fn threads(context: &Context, arguments: &ThreadsArguments) -> Ending {
    let Folded { state, meta } = fold(context.journal()?.as_ref())?;
    if let Some(thread) = &arguments.thread {
        let messages = state.thread(thread).ok_or_else(|| {
            Problem::new(
                ErrorCode::NoSuchResource,
                format!("there is no thread {thread:?}"),
            )
            .with_field("thread")
            .with_hint("`cofferdam threads` lists them")
        })?;
        show(context, meta, messages, render::messages)?;
    } else {
        show(context, meta, state.threads(), |threads| {
            render::threads(threads)
        })?;
    }
    Ok(exit::SUCCESS)
}

/// Carries out `verifier`.
pub(crate) fn verifier(context: &Context) -> Ending {
    let Folded { state, meta } = fold(context.journal()?.as_ref())?;
    show(context, meta, state.verifier_summary(), render::verifier)?;
    Ok(exit::SUCCESS)
}

/// Carries out `summary`.
pub(crate) fn summary(context: &Context) -> Ending {
    let Folded { state, meta } = fold(context.journal()?.as_ref())?;
    show(context, meta, state.summary(), render::summary)?;
    Ok(exit::SUCCESS)
}
