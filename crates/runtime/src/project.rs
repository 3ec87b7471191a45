//! From the journal to what can be shown: a fold over the events that a filter lets through.

use cofferdam_core::error::Problem;
use cofferdam_core::event::EventFilter;
use cofferdam_core::limits;
use cofferdam_journal::{Head, Journal, Query, Window};
use cofferdam_visibility::{Meta, State};

/// A state, and what the journal was when it was made.
#[derive(Debug, Clone)]
pub struct Projected {
    /// The fold; its views are plain data.
    pub state: State,
    /// The newest event then.
    pub head: Head,
    /// Where the journal began then.
    pub window: Window,
}

impl Projected {
    /// Describes a view of it: where the log begins, how far it was read, whether something is
    /// missing.
    pub fn meta(&self) -> Meta {
        Meta::of_view(&self.head.epoch, self.window.first_pos, self.head.pos)
    }
}

/// Folds every event that a filter lets through, with its body.
///
/// # Errors
///
/// When the journal cannot be read.
pub fn project(journal: &dyn Journal, filter: EventFilter) -> Result<Projected, Problem> {
    let mut query = Query::of(filter).limit(limits::PAGE_EVENTS_CAP).resolved();
    let mut state = State::default();
    loop {
        let page = journal.read(&query).map_err(|error| error.to_problem())?;
        for event in &page.events {
            state.apply(event);
        }
        if let Some(pos) = page.next() {
            query.after = Some(pos);
            continue;
        }
        state.advance(page.head.pos);
        return Ok(Projected {
            state,
            head: page.head,
            window: page.window,
        });
    }
}
