use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::EventFilter;
use cofferdam_core::id::{AgentId, ConversationId, ThreadId};
use cofferdam_core::limits;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cursor::Cursor;

/// Says which part of a request is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The cursor is not one that was given out.
    #[error("{text:?} is no cursor")]
    InvalidCursor {
        /// What was sent.
        text: String,
    },
    /// A time is not RFC 3339 with an offset.
    #[error("{text:?} in {field} is no time of the form 2026-11-30T11:26:00Z")]
    InvalidTime {
        /// The field.
        field: &'static str,
        /// What was sent.
        text: String,
    },
    /// Another value is wrong.
    #[error("{text:?} in {field} is not {wanted}")]
    InvalidValue {
        /// The field.
        field: &'static str,
        /// What was sent.
        text: String,
        /// What it should be.
        wanted: &'static str,
    },
}

impl RequestError {
    /// Tells the failure in the common shape, with code and field.
    pub fn to_problem(&self) -> Problem {
        let (code, field) = match self {
            Self::InvalidCursor { .. } => (ErrorCode::InvalidCursor, "cursor"),
            Self::InvalidTime { field, .. } => (ErrorCode::InvalidTime, *field),
            Self::InvalidValue { field, .. } => (ErrorCode::InvalidRequest, *field),
        };
        let problem = Problem::new(code, self.to_string()).with_field(field);
        match self {
            Self::InvalidCursor { .. } => {
                problem.with_hint("leave it out to begin with the oldest event")
            }
            _ => problem,
        }
    }
}

/// What can be asked of every view, as it comes in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VisibilityRequest {
    /// Only of this conversation.
    pub conversation_id: Option<String>,
    /// Only of this agent.
    pub agent_id: Option<String>,
    /// Only of this thread.
    pub thread_id: Option<String>,
    /// Only of this type (`exec.ended`), or of this area (`exec`).
    pub event_type: Option<String>,
    /// Not before this time, RFC 3339.
    pub from: Option<String>,
    /// Before this time, RFC 3339.
    pub to: Option<String>,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// Most events of a page, 1 to 1000; 100 when it is left out.
    pub limit: Option<String>,
}

/// A request that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Which events.
    pub filter: EventFilter,
    /// Where to go on.
    pub cursor: Option<Cursor>,
    /// Most events of a page.
    pub limit: usize,
}

impl VisibilityRequest {
    /// Reads every part, and names the first that is wrong.
    pub fn check(&self) -> Result<Checked, RequestError> {
        let filter = EventFilter {
            conversation: id(
                "conversation_id",
                self.conversation_id.as_deref(),
                "an id of a conversation",
                ConversationId::parse,
            )?,
            agent: id(
                "agent_id",
                self.agent_id.as_deref(),
                "an id of an agent",
                AgentId::parse,
            )?,
            thread: id(
                "thread_id",
                self.thread_id.as_deref(),
                "an id of a thread",
                ThreadId::parse,
            )?,
            task: None,
            event_type: self.event_type.as_deref().map(event_type).transpose()?,
            from: time("from", self.from.as_deref())?,
            to: time("to", self.to.as_deref())?,
        };
        if let (Some(from), Some(to)) = (filter.from, filter.to)
            && from >= to
        {
            return Err(RequestError::InvalidValue {
                field: "to",
                text: self.to.clone().unwrap_or_default(),
                wanted: "later than from",
            });
        }
        let limit = match self.limit.as_deref() {
            None => limits::PAGE_EVENTS,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=limits::PAGE_EVENTS_CAP).contains(limit))
                .ok_or_else(|| RequestError::InvalidValue {
                    field: "limit",
                    text: cut(text),
                    wanted: "a number from 1 to 1000",
                })?,
        };
        Ok(Checked {
            filter,
            cursor: self.cursor.as_deref().map(str::parse).transpose()?,
            limit,
        })
    }
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

fn id<T, E>(
    field: &'static str,
    text: Option<&str>,
    wanted: &'static str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, RequestError> {
    text.map(|text| {
        parse(text).map_err(|_| RequestError::InvalidValue {
            field,
            text: cut(text),
            wanted,
        })
    })
    .transpose()
}

fn event_type(text: &str) -> Result<String, RequestError> {
    let word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    if text.len() <= 64 && text.split('.').count() <= 2 && text.split('.').all(word) {
        return Ok(text.to_owned());
    }
    Err(RequestError::InvalidValue {
        field: "event_type",
        text: cut(text),
        wanted: "a type such as exec.ended or an area such as exec",
    })
}

fn time(field: &'static str, text: Option<&str>) -> Result<Option<Timestamp>, RequestError> {
    text.map(|text| parse_time(field, text)).transpose()
}

/// Reads a time, RFC 3339 with an offset; the error names the field.
pub fn parse_time(field: &'static str, text: &str) -> Result<Timestamp, RequestError> {
    text.parse().map_err(|_| RequestError::InvalidTime {
        field,
        text: cut(text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c100_what_is_wrong_is_named() {
        type Set = fn(&mut VisibilityRequest, String);
        let wrong: [(&str, &str, &str, Set); 11] = [
            ("from", "yesterday", "invalid_time", |request, text| {
                request.from = Some(text);
            }),
            (
                "to",
                "2026-13-01T00:00:00Z",
                "invalid_time",
                |request, text| request.to = Some(text),
            ),
            (
                "to",
                "2026-11-30T11:26:00",
                "invalid_time",
                |request, text| request.to = Some(text),
            ),
            ("from", "", "invalid_time", |request, text| {
                request.from = Some(text);
            }),
            ("cursor", "7", "invalid_cursor", |request, text| {
                request.cursor = Some(text);
            }),
            ("limit", "0", "invalid_request", |request, text| {
                request.limit = Some(text);
            }),
            ("limit", "1001", "invalid_request", |request, text| {
                request.limit = Some(text);
            }),
            ("limit", "ten", "invalid_request", |request, text| {
                request.limit = Some(text);
            }),
            ("agent_id", "conv_1", "invalid_request", |request, text| {
                request.agent_id = Some(text);
            }),
            (
                "event_type",
                "exec.ended.now",
                "invalid_request",
                |request, text| {
                    request.event_type = Some(text);
                },
            ),
            (
                "thread_id",
                "thread_../x",
                "invalid_request",
                |request, text| {
                    request.thread_id = Some(text);
                },
            ),
        ];
        for (field, text, code, set) in wrong {
            let mut request = VisibilityRequest::default();
            set(&mut request, text.to_owned());
            let problem = request.check().expect_err(text).to_problem();
            assert_eq!(
                (problem.code.as_str(), problem.field.as_deref()),
                (code, Some(field))
            );
        }
    }

    #[test]
    fn a_good_request_is_read() {
        let request = VisibilityRequest {
            event_type: Some("exec".to_owned()),
            from: Some("2026-11-30T11:26:00+01:00".to_owned()),
            to: Some("2026-11-30T10:26:00.5Z".to_owned()),
            limit: Some("7".to_owned()),
            cursor: Some("ab:3".to_owned()),
            ..VisibilityRequest::default()
        };
        let checked = request.check().expect("good");
        assert_eq!((checked.limit, checked.cursor.map(|c| c.pos)), (7, Some(3)));
        let reversed = VisibilityRequest {
            from: request.to,
            to: request.from,
            ..request
        };
        assert_eq!(
            reversed
                .check()
                .expect_err("reversed")
                .to_problem()
                .field
                .as_deref(),
            Some("to")
        );
    }
}
