//! The stored form of an event: the bytes that the hash covers, and what is read from them.

use cofferdam_core::event::{ENVELOPE_VERSION, Event, NewEvent, Severity};
use cofferdam_core::id::{AgentId, ConversationId, EventId, OperationId, TaskId, ThreadId};
use cofferdam_core::limits;
use cofferdam_core::spec::Digest;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// What chains an event to the one before: a SHA-256, as bytes.
pub(crate) type Hash = [u8; 32];

/// An event, serialised but for what only the moment of appending can say.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Everything from `"id"` on, the closing brace included.
    tail: Vec<u8>,
    /// The body that goes to the content store.
    pub(crate) content: Option<Vec<u8>>,
    /// Digests of the content store that the event names.
    pub(crate) uses: Vec<String>,
    /// Whose numbers it counts among.
    pub(crate) conversation: Option<ConversationId>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    id: &'a EventId,
    time: Timestamp,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<&'a ConversationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<&'a ThreadId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_agent: Option<&'a AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'a TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_task: Option<&'a TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    op: Option<&'a OperationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    causation: Option<&'a EventId>,
    severity: Severity,
    redactions: u32,
}

impl Prepared {
    pub(crate) fn new(event: &NewEvent) -> Self {
        let mut data = serde_json::to_vec(&event.data).expect("a JSON value is JSON");
        let mut uses = Vec::new();
        let mut content = None;
        if data.len() > limits::INLINE_BODY_BYTES {
            let digest = Digest::of(&data);
            let reference = serde_json::json!({"content": digest, "bytes": data.len()});
            uses.push(digest.0);
            content = Some(std::mem::replace(
                &mut data,
                serde_json::to_vec(&reference).expect("a JSON value is JSON"),
            ));
        }
        collect_digests(&event.data, &mut uses);
        let subject = &event.subject;
        let envelope = Envelope {
            id: &event.id,
            time: event.time,
            kind: &event.kind,
            conversation: subject.conversation.as_ref(),
            thread: subject.thread.as_ref(),
            agent: subject.agent.as_ref(),
            root_agent: subject.root_agent.as_ref(),
            task: subject.task.as_ref(),
            parent_task: subject.parent_task.as_ref(),
            op: subject.op.as_ref(),
            causation: event.causation.as_ref(),
            severity: event.severity,
            redactions: event.redactions,
        };
        let mut tail = serde_json::to_vec(&envelope).expect("an envelope is JSON");
        tail.pop();
        tail.extend_from_slice(b",\"data\":");
        tail.extend_from_slice(&data);
        tail.push(b'}');
        Self {
            tail,
            content,
            uses,
            conversation: subject.conversation.clone(),
        }
    }

    /// Gives the stored bytes.
    pub(crate) fn finish(&self, pos: u64, epoch: &str, seq: u64) -> Vec<u8> {
        let mut bytes = format!(
            "{{\"v\":{ENVELOPE_VERSION},\"pos\":{pos},\"epoch\":\"{epoch}\",\"seq\":{seq},"
        )
        .into_bytes();
        bytes.extend_from_slice(&self.tail[1..]);
        bytes
    }
}

/// Gathers what the data names in the content store: `content` and `digest` keys with a digest.
pub(crate) fn collect_digests(data: &Value, into: &mut Vec<String>) {
    match data {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text)
                        if (key == "content" || key == "digest") && unhex(text).is_some() =>
                    {
                        into.push(text.clone());
                    }
                    Value::Object(_) | Value::Array(_) => collect_digests(value, into),
                    _ => {}
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_digests(item, into)),
        _ => {}
    }
}

/// Gives the digest of a body that was moved to the content store.
pub(crate) fn moved_body(data: &Value) -> Option<Digest> {
    let fields = data.as_object().filter(|fields| fields.len() == 2)?;
    fields.get("bytes")?.as_u64()?;
    let text = fields.get("content")?.as_str()?;
    unhex(text).map(|_| Digest(text.to_owned()))
}

/// Chains stored bytes to the event before.
pub(crate) fn chain(previous: &Hash, stored: &[u8]) -> Hash {
    let mut digest = Sha256::new();
    digest.update(previous);
    digest.update(stored);
    digest.finalize().into()
}

/// The hash on which the first event of a new log is chained.
pub(crate) fn genesis(epoch: &str) -> Hash {
    Sha256::digest(epoch.as_bytes()).into()
}

/// Gives one line of an export: the stored bytes with both hashes added.
pub(crate) fn line(stored: &[u8], previous: &Hash, hash: &Hash) -> Vec<u8> {
    let cut = stored.len().saturating_sub(1);
    let mut line = Vec::with_capacity(stored.len() + SUFFIX_BYTES);
    line.extend_from_slice(&stored[..cut]);
    line.extend_from_slice(b",\"prev_hash\":\"");
    line.extend_from_slice(hex(previous).as_bytes());
    line.extend_from_slice(b"\",\"hash\":\"");
    line.extend_from_slice(hex(hash).as_bytes());
    line.extend_from_slice(b"\"}");
    line
}

/// Bytes that [`line`] adds before the closing brace, and the brace.
const SUFFIX_BYTES: usize = 14 + 64 + 10 + 64 + 2;

/// Takes a line apart into stored bytes, hash of the event before, and hash.
pub(crate) fn split_line(line: &[u8]) -> Option<(Vec<u8>, Hash, Hash)> {
    let cut = line.len().checked_sub(SUFFIX_BYTES)?;
    let suffix = std::str::from_utf8(&line[cut..]).ok()?;
    let rest = suffix.strip_prefix(",\"prev_hash\":\"")?;
    let (previous, rest) = rest.split_at_checked(64)?;
    let hash = rest.strip_prefix("\",\"hash\":\"")?.strip_suffix("\"}")?;
    let mut stored = line[..cut].to_vec();
    stored.push(b'}');
    Some((stored, unhex(previous)?, unhex(hash)?))
}

/// Reads an event from its stored bytes.
pub(crate) fn decode(
    stored: &[u8],
    previous: &Hash,
    hash: &Hash,
) -> Result<Event, serde_json::Error> {
    serde_json::from_slice(&line(stored, previous, hash))
}

/// Writes a hash.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| {
            [
                char::from(DIGITS[usize::from(byte >> 4)]),
                char::from(DIGITS[usize::from(byte & 15)]),
            ]
        })
        .collect()
}

/// Reads a hash; only the form that [`hex`] writes.
pub(crate) fn unhex(text: &str) -> Option<Hash> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_apart_again() {
        let stored = br#"{"v":1,"x":"unknown"}"#;
        let (previous, hash) = (genesis("a"), genesis("b"));
        let line = line(stored, &previous, &hash);
        assert_eq!(split_line(&line), Some((stored.to_vec(), previous, hash)));
        assert_eq!(split_line(b"{}"), None);
    }

    #[test]
    fn hexadecimal_reads_back_in_one_form_only() {
        let hash = genesis("x");
        assert_eq!(unhex(&hex(&hash)), Some(hash));
        assert_eq!(unhex(&hex(&hash).to_uppercase()), None);
    }
}
