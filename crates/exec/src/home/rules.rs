//! The patterns of a profile, ready to be asked.

use std::path::Path;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::profile::{KeyRule, ProfileHome};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// What a file of the state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class<'a> {
    /// Some of its keys come back.
    Keys(&'a KeyRule),
    /// It belongs to a database.
    Database,
    /// It comes back: as a transcript, in a newer form, or either way.
    Back { transcript: bool, rewritten: bool },
    /// It is of no account.
    Ignored,
    /// Anything else: configuration.
    Other,
}

/// The patterns of a profile.
#[derive(Debug)]
pub(super) struct Rules<'a> {
    home: &'a ProfileHome,
    pub(super) never: Vec<GlobSet>,
    transcripts: GlobSet,
    rewritten: GlobSet,
    databases: GlobSet,
    ignore: GlobSet,
    secret: GlobSet,
}

/// Ends of the names that belong to a database.
pub(super) const DATABASE_PARTS: [&str; 3] = ["", "-wal", "-shm"];

impl<'a> Rules<'a> {
    pub(super) fn new(home: &'a ProfileHome, workspace: &str) -> Result<Self, Problem> {
        let set = |list: &[String]| glob_set(list.iter().map(String::as_str), workspace);
        let never = home.never.iter();
        Ok(Self {
            home,
            never: never
                .map(|one| glob_set([one.as_str()], workspace))
                .collect::<Result<_, _>>()?,
            transcripts: set(&home.transcripts)?,
            rewritten: set(&home.rewritten)?,
            databases: set(&home.databases)?,
            ignore: set(&home.ignore)?,
            secret: set(&home.secret)?,
        })
    }

    /// Gives the database to which a file belongs, as its name ends without `-wal` and `-shm`.
    pub(super) fn database(&self, path: &str) -> Option<String> {
        let main = path
            .strip_suffix("-wal")
            .or_else(|| path.strip_suffix("-shm"))
            .unwrap_or(path);
        self.databases.is_match(main).then(|| main.to_owned())
    }

    pub(super) fn is_secret(&self, path: &Path) -> bool {
        self.secret.is_match(path)
    }

    pub(super) fn is_back(&self, path: &Path) -> bool {
        self.transcripts.is_match(path) || self.rewritten.is_match(path)
    }

    pub(super) fn class(&self, path: &Path) -> Class<'a> {
        if let Some(rule) = self
            .home
            .keys
            .iter()
            .find(|rule| path == Path::new(&rule.file))
        {
            return Class::Keys(rule);
        }
        if path
            .to_str()
            .is_some_and(|path| self.database(path).is_some())
        {
            return Class::Database;
        }
        let transcript = self.transcripts.is_match(path);
        let rewritten = self.rewritten.is_match(path);
        if transcript || rewritten {
            return Class::Back {
                transcript,
                rewritten,
            };
        }
        if self.ignore.is_match(path) {
            Class::Ignored
        } else {
            Class::Other
        }
    }
}

/// Fills a pattern's places and compiles it.
pub(super) fn glob_set<'t>(
    list: impl IntoIterator<Item = &'t str>,
    workspace: &str,
) -> Result<GlobSet, Problem> {
    let bad = |error: globset::Error| {
        Problem::new(
            ErrorCode::PolicyInvalidValue,
            format!("a pattern of the profile: {error}"),
        )
    };
    let mut builder = GlobSetBuilder::new();
    for text in list {
        let text = text.replace("{workspace}", workspace);
        let glob = GlobBuilder::new(&text)
            .literal_separator(true)
            .build()
            .map_err(bad)?;
        builder.add(glob);
    }
    builder.build().map_err(bad)
}
