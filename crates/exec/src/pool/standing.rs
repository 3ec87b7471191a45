//! Places that several callers use at once, for what leaves nothing in them: files of the workspace
//! are served from such a place. Commands never run in one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::error::Problem;
use cofferdam_core::event::Subject;
use cofferdam_core::outcome::IsolationLevel;
use cofferdam_core::spec::{Digest, EnclosureSpec};

use super::{Key, Pool, sources};
use crate::enclosure::Enclosure;

/// Most places of this kind; the one that was used longest ago gives way.
const MOST: usize = 8;

/// A place that stays as long as somebody uses it.
#[derive(Debug)]
pub(super) struct Standing {
    key: Key,
    enclosure: Arc<Enclosure>,
    sources: u64,
    used: Instant,
}

impl Standing {
    /// Tells for how long nobody has asked for it.
    pub(super) fn idle(&self) -> Duration {
        self.used.elapsed()
    }
}

impl Pool {
    /// Gives the place of a plan that all callers share, and puts it up where it does not stand. `hash` is
    /// that of the plan.
    ///
    /// # Errors
    ///
    /// That the walls could not be put up.
    pub fn standing(
        &self,
        spec: &EnclosureSpec,
        hash: &Digest,
        requested: IsolationLevel,
    ) -> Result<Arc<Enclosure>, Problem> {
        let key = Key {
            hash: hash.clone(),
            requested,
        };
        let shown = sources(spec);
        {
            let mut state = self.shared.lock();
            let found = state.standing.iter_mut().find(|one| one.key == key);
            if let Some(found) = found.filter(|one| one.sources == shown) {
                found.used = Instant::now();
                return Ok(Arc::clone(&found.enclosure));
            }
        }
        // With a private place of its own, beside those of commands.
        let spec = spec.relocated(&self.shared.another_scratch(spec));
        let plane = &self.shared.plane;
        let enclosure = Arc::new(plane.enclose(spec, requested, &Subject::default())?);
        // Whoever still uses what gives way keeps it until he is done.
        let over = {
            let mut state = self.shared.lock();
            let (mut over, mut kept): (Vec<Standing>, Vec<Standing>) =
                std::mem::take(&mut state.standing)
                    .into_iter()
                    .partition(|one| one.key == key);
            if kept.len() >= MOST
                && let Some(oldest) = (0..kept.len()).max_by_key(|index| kept[*index].idle())
            {
                over.push(kept.swap_remove(oldest));
            }
            kept.push(Standing {
                key,
                enclosure: Arc::clone(&enclosure),
                sources: shown,
                used: Instant::now(),
            });
            state.standing = kept;
            over
        };
        drop(over);
        // It is taken down when nobody has used it for long.
        self.wake();
        Ok(enclosure)
    }
}
