//! Whoever stands in the door: asked before each change, with all that is known of it.

use std::fmt::Debug;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::spec::Digest;

use super::FileDoor;
use super::path::Located;

/// A change that is about to be made. Nothing of it has happened, and the journal has no intent yet.
#[derive(Debug, Clone, Copy)]
pub struct FileIntent<'a> {
    /// The operation's name.
    pub operation: &'static str,
    /// The paths that it makes, changes or removes, as commands see them; of what goes with a folder
    /// only the folder.
    pub paths: &'a [BytePath],
    /// The bytes before and after, where it is about one file's.
    pub bytes: Option<(&'a [u8], &'a [u8])>,
}

/// Decides about changes one by one. It may wait as long as it likes: what has changed meanwhile is
/// a conflict.
pub trait FileGate: Debug + Send + Sync {
    /// Lets a change through.
    ///
    /// # Errors
    ///
    /// Why not; the change is not made then.
    fn pass(&self, intent: FileIntent<'_>) -> Result<(), Problem>;
}

impl FileDoor<'_> {
    /// Refuses to go on where a file is another one than what was shown to whoever stands in the
    /// door; `shown` is its digest then, `None` where nothing stood.
    pub(super) fn still(&self, at: &Located, shown: Option<&Digest>) -> Result<(), Problem> {
        if self.gate.is_none() {
            return Ok(());
        }
        let now = match self.look(at)? {
            Some(_) => {
                let whole = self.whole_of(at, self.terms.bounds.written_bytes)?;
                Some(self.digest_to_act(&whole))
            }
            None => None,
        };
        if now.as_ref() == shown {
            return Ok(());
        }
        Err(Problem::new(
            ErrorCode::FileConflict,
            format!(
                "{} has changed while somebody was asked about it",
                at.shown()
            ),
        )
        .with_field("path")
        .with_hint("read the file again, and decide anew"))
    }
}
