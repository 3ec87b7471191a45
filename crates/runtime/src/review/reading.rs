//! Events of other parts, read by what they say.

use cofferdam_core::event::{Event, event_type};
use serde_json::Value;

use super::model::{
    HostVerdict, ProtectedOutcome, ReviewedHost, ReviewedName, ReviewedStateChange,
};

/// Gives the first of several keys that holds text.
pub(super) fn text(data: &Value, keys: &[&str]) -> Option<String> {
    keys.iter()
        .find_map(|key| data.get(key).and_then(Value::as_str))
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

/// Takes a decision about a connection.
pub(super) fn host(hosts: &mut Vec<ReviewedHost>, event: &Event) {
    if event.kind != event_type::NET_DECIDED {
        return;
    }
    let data = &event.data;
    let Some(host) = text(data, &["host", "address", "subject"]) else {
        return;
    };
    let port = data.get("port").and_then(Value::as_u64);
    let reason = text(data, &["reason", "why"]);
    // Whatever does not say that it went on did not.
    let verdict = match (text(data, &["verdict"]).as_deref(), reason.as_deref()) {
        (Some("allowed" | "allow" | "reached"), _) => HostVerdict::Reached,
        (_, Some("resolve_failed" | "dial_failed" | "dial_timeout" | "upstream_invalid")) => {
            HostVerdict::Failed
        }
        _ => HostVerdict::Refused,
    };
    let known = hosts.iter_mut().find(|known| {
        known.host == host
            && known.port == port
            && known.verdict == verdict
            && known.reason == reason
    });
    if let Some(known) = known {
        known.times += 1;
        return;
    }
    hosts.push(ReviewedHost {
        host,
        port,
        verdict,
        reason,
        rule: text(data, &["rule"]),
        times: 1,
        pos: event.pos,
    });
}

/// Takes a protected name that was put back.
pub(super) fn undone(names: &mut Vec<ReviewedName>, event: &Event) {
    if event.kind != event_type::FILE_UNDONE {
        return;
    }
    if let Some(path) = text(&event.data, &["path"]) {
        names.push(ReviewedName {
            path,
            rule: text(&event.data, &["rule"]),
            what: text(&event.data, &["what"]),
            outcome: ProtectedOutcome::Undone,
            pos: Some(event.pos),
        });
    }
}

/// Evidence and changes of files that are about the agent's own state say this as their kind.
const AGENT_STATE: &str = "agent_state";

/// Takes what an event says about the agent's own state: changes that were held back, what came back
/// by the profile, and what the owner applied since.
pub(super) fn agent_state(changes: &mut Vec<ReviewedStateChange>, event: &Event) {
    let data = &event.data;
    let step = text(data, &["step"]).unwrap_or_default();
    let list = |keys: &[&str]| -> Option<Vec<Value>> {
        let list = keys.iter().find_map(|key| data.get(key)?.as_array())?;
        (!list.is_empty()).then(|| list.clone())
    };
    let is_about = text(data, &["kind"]).is_some_and(|kind| kind.starts_with(AGENT_STATE));
    match event.kind.as_str() {
        event_type::AGENT_HOME if step == "applied" => {
            let path = text(data, &["path"]);
            for change in changes.iter_mut().filter(|one| one.path == path) {
                change.applied = Some(true);
            }
        }
        event_type::AGENT_HOME => {
            let Some(back) = list(&["came_back"]) else {
                return;
            };
            let word = if back.len() == 1 { "file" } else { "files" };
            changes.push(ReviewedStateChange {
                summary: format!("{} {word} came back, as its profile says", back.len()),
                path: None,
                applied: Some(true),
                pos: event.pos,
                data: data.clone(),
            });
        }
        event_type::FILE_CHANGED if is_about => {
            let told = list(&["state", "changes", "files"]).unwrap_or_default();
            changes.extend(told.into_iter().map(|one| state_change(one, event.pos)));
        }
        // Shown by an event of its own: that one is more.
        event_type::EVIDENCE_RECORDED if is_about && data.get("shown_by").is_none() => {
            changes.push(state_change(data.clone(), event.pos));
        }
        _ => {}
    }
}

fn state_change(data: Value, pos: u64) -> ReviewedStateChange {
    let path = data
        .as_str()
        .map(str::to_owned)
        .or_else(|| text(&data, &["path", "file"]));
    let what = text(&data, &["what", "change"]);
    let summary = text(&data, &["summary"]).unwrap_or_else(|| match (&path, &what) {
        (Some(path), Some(what)) => format!("~/{path} {what}"),
        (Some(path), None) => format!("~/{path}"),
        (None, what) => what.clone().unwrap_or_else(|| "changed".to_owned()),
    });
    let applied = data.get("applied").and_then(Value::as_bool);
    ReviewedStateChange {
        summary,
        path,
        // What is listed did not come back, unless it says so.
        applied: Some(applied.unwrap_or_default()),
        pos,
        data,
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_core::ambient::{Ambient as _, FixedAmbient};
    use cofferdam_core::event::{NewEvent, Severity, Subject};
    use cofferdam_core::id::EventId;
    use cofferdam_journal::{Journal, MemoryJournal, Query};
    use serde_json::json;

    use super::*;

    fn events(list: &[(&str, Value)]) -> Vec<Event> {
        let journal = MemoryJournal::new(std::sync::Arc::new(FixedAmbient::default()));
        for (number, (kind, data)) in list.iter().enumerate() {
            let event = NewEvent {
                id: EventId::new(number as u64, [0; 10]),
                time: FixedAmbient::default().now(),
                kind: (*kind).to_owned(),
                subject: Subject::default(),
                causation: None,
                severity: Severity::Info,
                data: data.clone(),
                redactions: 0,
            };
            journal.append(&[event]).unwrap();
        }
        journal.read(&Query::default()).unwrap().events
    }

    #[test]
    fn decisions_about_one_host_are_counted_and_unknown_words_are_refusals() {
        let mut hosts = Vec::new();
        let said = |verdict: &str| {
            let data = json!({"host": "a.example", "port": 443, "verdict": verdict});
            ("net.decided", data)
        };
        for event in events(&[
            said("allowed"),
            said("allowed"),
            said("refused"),
            said("new word"),
            ("net.closed", json!({"host": "b.example"})),
        ]) {
            host(&mut hosts, &event);
        }
        let told: Vec<_> = hosts.iter().map(|one| (one.verdict, one.times)).collect();
        assert_eq!(told, [(HostVerdict::Reached, 2), (HostVerdict::Refused, 2)]);
    }

    #[test]
    fn what_was_held_of_the_agents_state_is_told_once_and_marked_when_applied() {
        let held =
            json!([{"path": ".x/a.json", "what": "modified"}, {"path": ".x/b", "what": "added"}]);
        let list = events(&[
            ("agent.home", json!({"step": "seeded", "profile": "x"})),
            (
                "agent.home",
                json!({"step": "collected", "came_back": ["t.jsonl"]}),
            ),
            (
                "file.changed",
                json!({"kind": "agent_state", "state": held}),
            ),
            (
                "evidence.recorded",
                json!({"kind": "agent_state", "summary": "it changed", "shown_by": 3}),
            ),
            (
                "evidence.recorded",
                json!({"kind": "command", "summary": "x"}),
            ),
            ("file.changed", json!({"added": ["y"]})),
            ("agent.home", json!({"step": "applied", "path": ".x/b"})),
        ]);
        let mut changes = Vec::new();
        for event in &list {
            agent_state(&mut changes, event);
        }
        let said: Vec<_> = changes
            .iter()
            .map(|one| (one.summary.as_str(), one.applied))
            .collect();
        assert_eq!(
            said,
            [
                ("1 file came back, as its profile says", Some(true)),
                ("~/.x/a.json modified", Some(false)),
                ("~/.x/b added", Some(true)),
            ]
        );
    }
}
