//! Events, one line each.

use std::fmt::Write as _;

use cofferdam_core::event::{Event, Severity, event_type};
use serde_json::Value;

use super::{BAD, CAUTION, FAINT, duration, one_line, paint};

/// Renders an event as one line: position, time of day, type, what it says.
pub(crate) fn line(event: &Event) -> String {
    let style = match event.severity {
        Severity::Error => BAD,
        Severity::Warning => CAUTION,
        Severity::Info => anstyle::Style::new(),
        Severity::Debug => FAINT,
    };
    let time = event.time.strftime("%H:%M:%S%.3f");
    format!(
        "{}  {}  {}  {}",
        paint(FAINT, format_args!("{:>6}", event.pos)),
        paint(FAINT, time),
        paint(style, format_args!("{:<20}", event.kind)),
        what(event)
    )
    .trim_end()
    .to_owned()
}

/// Gives what an event says in a few words.
fn what(event: &Event) -> String {
    let data = &event.data;
    let said = match event.kind.as_str() {
        event_type::EXEC_INTENDED => argv(data).unwrap_or_else(|| text(data, "summary")),
        event_type::EXEC_ENDED | event_type::EXEC_SETTLED => ended(data),
        event_type::EXEC_OUTPUT => format!(
            "{} +{} B at {}",
            text(data, "stream"),
            number(data, "bytes"),
            number(data, "offset")
        ),
        event_type::TASK_CREATED | event_type::CONVERSATION_STARTED => text(data, "goal"),
        event_type::TASK_STATE => text(data, "state"),
        event_type::TASK_ENDED => {
            let verifier = data["verification"]["status"]
                .as_str()
                .unwrap_or("not verified");
            format!(
                "{}, verifier {verifier}: {}",
                text(data, "status"),
                text(data, "summary")
            )
        }
        event_type::VERIFIER_CHECK => format!("{}: {}", text(data, "check"), text(data, "status")),
        event_type::POLICY_DENIED => format!("{} ({})", text(data, "subject"), text(data, "rule")),
        event_type::FILE_UNDONE => format!("{} ({})", text(data, "path"), text(data, "rule")),
        event_type::MESSAGE_SENT => format!(
            "{} → {}: {}",
            text(data, "from"),
            text(data, "to"),
            text(data, "text")
        ),
        _ => scalars(data),
    };
    one_line(&said, 110)
}

fn argv(data: &Value) -> Option<String> {
    let words: Vec<_> = data
        .get("argv")?
        .as_array()?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    Some(words.join(" "))
}

fn ended(data: &Value) -> String {
    let mut said = text(data, "status");
    if let Some(code) = data["return_code"].as_i64().filter(|code| *code != 0) {
        let _ = write!(said, ", exit {code}");
    }
    if let Some(signal) = data["signal"].as_str() {
        let _ = write!(said, ", {signal}");
    }
    if let Some(elapsed) = data["elapsed_ms"].as_u64() {
        let _ = write!(said, " in {}", duration(elapsed));
    }
    said
}

/// Gives the plain values of an object, for types that have no words of their own here.
fn scalars(data: &Value) -> String {
    let Some(object) = data.as_object() else {
        return String::new();
    };
    object
        .iter()
        .filter_map(|(name, value)| match value {
            Value::String(text) => Some(format!("{name} {text}")),
            Value::Number(number) => Some(format!("{name} {number}")),
            Value::Bool(true) => Some(name.clone()),
            _ => None,
        })
        .take(4)
        .collect::<Vec<_>>()
        .join(", ")
}

fn text(data: &Value, name: &str) -> String {
    data[name].as_str().unwrap_or_default().to_owned()
}

fn number(data: &Value, name: &str) -> u64 {
    data[name].as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::{fixtures, plain};

    fn event(pos: u64, kind: &str, severity: Severity, data: Value) -> Event {
        Event {
            pos,
            severity,
            ..fixtures::event(&json!({}), kind, data)
        }
    }

    #[test]
    fn each_event_is_one_line() {
        let events = [
            event(
                1,
                "exec.intended",
                Severity::Info,
                json!({"argv": ["make", "-s"], "cwd": "/w"}),
            ),
            event(
                2,
                "exec.ended",
                Severity::Error,
                json!({"status": "failed", "return_code": 2, "elapsed_ms": 1500}),
            ),
            event(
                30,
                "policy.denied",
                Severity::Warning,
                json!({"subject": "/etc/shadow", "rule": "secrets\n\u{1b}[2J"}),
            ),
            event(
                400,
                "future.thing",
                Severity::Info,
                json!({"name": "x", "deep": {"a": 1}, "n": 3}),
            ),
        ];
        let text = events.iter().map(line).collect::<Vec<_>>().join("\n");
        insta::assert_snapshot!(plain(&text), @r"
          1  00:00:00.000  exec.intended         make -s
          2  00:00:00.000  exec.ended            failed, exit 2 in 1.5 s
         30  00:00:00.000  policy.denied         /etc/shadow (secrets  [2J)
        400  00:00:00.000  future.thing          name x, n 3
        ");
    }
}
