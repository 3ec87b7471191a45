//! Ids: a prefix that says what is named, and a UUIDv7 (RFC 9562) that sorts by time.
//!
//! Ids are made from a time and ten random bytes that the caller brings, never from a clock here.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Says that a text is no id of the kind that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no id of the form {prefix}_…")]
pub struct IdError {
    /// The text that was read.
    pub text: String,
    /// The prefix that it should begin with, without the underscore.
    pub prefix: &'static str,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The prefix of this kind of id, without the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// Makes an id from milliseconds since 1970 and ten random bytes.
            pub fn new(unix_milliseconds: u64, random: [u8; 10]) -> Self {
                let id = uuid::Builder::from_unix_timestamp_millis(unix_milliseconds, &random).into_uuid();
                Self(format!(concat!($prefix, "_{}"), id.simple()))
            }

            /// Reads an id; any non-empty word of letters, digits, `-`, `_` and `.` may follow the prefix.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                let good = text.strip_prefix(concat!($prefix, "_")).is_some_and(|rest| {
                    !rest.is_empty()
                        && rest.len() <= 128
                        && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
                });
                if good {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(IdError { text: text.to_owned(), prefix: $prefix })
                }
            }

            /// Lends the text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::parse(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": concat!("^", $prefix, "_[A-Za-z0-9._-]{1,128}$")})
            }
        }
    )*};
}

ids! {
    /// Names one event of the journal.
    EventId = "evt";
    /// Names one line of work with a root agent.
    ConversationId = "conv";
    /// Names a sequence of messages between participants.
    ThreadId = "thread";
    /// Names one agent, the root one included.
    AgentId = "agent";
    /// Names a goal that was given to a worker.
    TaskId = "task";
    /// Names one call of an operation.
    OperationId = "op";
    /// Names one command that was started, or was to be.
    CommandId = "cmd";
    /// Names one terminal, from its opening to its end.
    TerminalId = "term";
    /// Names one place behind walls, from its set-up to its end.
    EnclosureId = "encl";
    /// Names one change of files through the file door.
    ChangeId = "chg";
    /// Names one session: a place that is kept for many commands.
    SessionId = "sess";
    /// Names one question to whoever may answer it.
    ApprovalId = "appr";
    /// Names something that would leave the machine and is held.
    ProposalId = "out";
    /// An answer that is remembered.
    RuleId = "rule";
    /// Names one life of a plane: what holds a lease on its intents.
    LeaseId = "lease";
    /// Names one piece of evidence.
    EvidenceId = "evid";
    /// Names one message of a thread.
    MessageId = "msg";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_read_back() {
        let first = TaskId::new(1, [9; 10]);
        let second = TaskId::new(2, [0; 10]);
        assert!(first < second);
        assert_eq!(TaskId::parse(first.as_str()), Ok(first));
    }

    #[test]
    fn another_kind_is_refused() {
        let error = TaskId::parse("evt_1").unwrap_err();
        insta::assert_snapshot!(error, @r#""evt_1" is no id of the form task_…"#);
        assert!(TaskId::parse("task_../x").is_err());
    }
}
