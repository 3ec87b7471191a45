//! The state that unfiltered views are made from, folded further with each request.

use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_core::event::EventFilter;
use cofferdam_core::limits;
use cofferdam_journal::{Journal, JournalError, Query};
use cofferdam_visibility::{Meta, State};

/// A fold that goes on where it stood.
#[derive(Debug)]
pub(crate) struct Projection {
    journal: Arc<dyn Journal>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    epoch: String,
    window_start: u64,
    state: State,
}

impl Projection {
    pub(crate) fn new(journal: Arc<dyn Journal>) -> Self {
        Self {
            journal,
            known: Mutex::default(),
        }
    }

    /// Makes a view of the events that a filter accepts. It reads the journal and blocks meanwhile.
    pub(crate) fn view<T>(
        &self,
        filter: &EventFilter,
        view: impl FnOnce(&State) -> T,
    ) -> Result<(T, Meta), JournalError> {
        if *filter != EventFilter::default() {
            let mut state = State::default();
            let meta = self.go_on(&mut state, filter)?;
            return Ok((view(&state), meta));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let head = self.journal.head()?;
        let window = self.journal.window()?;
        if head.epoch != known.epoch || window.first_pos != known.window_start {
            // Another log, or one that lost its beginning: a state equals a fresh fold, always.
            *known = Known {
                epoch: head.epoch,
                window_start: window.first_pos,
                state: State::default(),
            };
        }
        let meta = self.go_on(&mut known.state, filter)?;
        Ok((view(&known.state), meta))
    }

    fn go_on(&self, state: &mut State, filter: &EventFilter) -> Result<Meta, JournalError> {
        let mut query = Query::of(filter.clone())
            .after(state.as_of())
            .limit(limits::PAGE_EVENTS_CAP)
            .resolved();
        loop {
            let page = self.journal.read(&query)?;
            for event in &page.events {
                state.apply(event);
            }
            if let Some(pos) = page.next() {
                query.after = Some(pos);
                continue;
            }
            state.advance(page.head.pos);
            return Ok(Meta::of_view(
                &page.head.epoch,
                page.window.first_pos,
                page.head.pos,
            ));
        }
    }
}
