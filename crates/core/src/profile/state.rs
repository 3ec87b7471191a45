//! Changes of an agent's state that do not come back by themselves.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bytes::BytePath;
use crate::spec::Digest;

/// What happened to a file of an agent's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateChangeKind {
    /// It is new.
    Added,
    /// It is another one.
    Modified,
    /// It is gone.
    Deleted,
    /// It would come back, and somebody else changed the real one meanwhile.
    Conflict,
    /// It is a link or something else that is no file.
    Special,
}

impl StateChangeKind {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
            Self::Conflict => "conflict",
            Self::Special => "special",
        }
    }
}

/// A key of a file that changed; a date of TOML is its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyChange {
    /// The key, part by part.
    pub key: Vec<String>,
    /// Its value before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Its value now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// Whether the values are not shown, because they look like secrets.
    #[serde(default)]
    pub masked: bool,
}

/// A content in the content store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateContent {
    /// Its digest.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
}

/// A change of an agent's state that did not come back: shown, and applied by the owner only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateChange {
    /// The file, relative to the home directory.
    pub path: BytePath,
    /// The file in the real home.
    pub host: BytePath,
    /// What happened to it.
    pub what: StateChangeKind,
    /// Whether it holds credentials; nothing of its content is kept then.
    pub secret: bool,
    /// The keys that changed, for a file of which some keys come back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyChange>,
    /// What stood there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<StateContent>,
    /// What the agent put there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<StateContent>,
    /// The difference as text, with what looks like a secret masked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub diff: String,
    /// Whether values that are known to be secret are masked in the contents, which are not what the
    /// agent wrote then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
}

impl StateChange {
    /// Tells whether the owner can apply it as it is kept.
    pub fn is_applicable(&self) -> bool {
        let is_kept_masked = self.masked && self.keys.is_empty();
        if self.secret || is_kept_masked {
            return false;
        }
        match self.what {
            StateChangeKind::Special | StateChangeKind::Conflict => false,
            StateChangeKind::Deleted => true,
            StateChangeKind::Added | StateChangeKind::Modified => {
                self.after.is_some()
                    || (!self.keys.is_empty() && self.keys.iter().all(|key| !key.masked))
            }
        }
    }
}
