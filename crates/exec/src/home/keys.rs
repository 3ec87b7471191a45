//! Single keys of files: which come back, which are of no account, which are shown.

use cofferdam_core::plan::looks_secret;
use cofferdam_core::profile::{KeyChange, KeyRule};
use serde_json::Value;

/// Levels that are looked into.
const DEPTH: usize = 24;
/// What stands for a value that is not shown.
pub(super) const MASKED: &str = "***";

/// A key with its value.
pub(super) type Pair = (Vec<String>, Value);

/// Tells whether a part of a key is what a pattern means; a star stands for anything at its end or
/// its beginning.
fn matches_part(pattern: &str, part: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(""), _) => true,
        (Some(rest), Some(_)) => part.contains(rest.strip_suffix('*').unwrap_or(rest)),
        (Some(end), None) => part.ends_with(end),
        (None, Some(start)) => part.starts_with(start),
        (None, None) => pattern == part,
    }
}

fn matches_top(pattern: &str, path: &[String]) -> bool {
    let mut parts = path.iter();
    pattern
        .split('.')
        .all(|one| parts.next().is_some_and(|part| matches_part(one, part)))
}

const fn is_plain(value: &Value) -> bool {
    !matches!(value, Value::Object(_))
}

/// Gives the values that come back by a rule, each with its key.
pub(super) fn group(value: &Value, rule: &KeyRule) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    for key in &rule.keys {
        let parts: Vec<&str> = key.split('.').collect();
        let Some((last, leading)) = parts.split_last() else {
            continue;
        };
        let mut at = Some(value);
        for part in leading {
            at = at.and_then(|at| at.get(part));
        }
        let Some(Value::Object(fields)) = at else {
            continue;
        };
        for (name, value) in fields {
            if (*last == "*" || name == last) && is_plain(value) {
                let path = leading.iter().map(|part| (*part).to_owned());
                pairs.push((path.chain([name.clone()]).collect(), value.clone()));
            }
        }
    }
    pairs.sort_by(|left, right| left.0.cmp(&right.0));
    pairs.dedup();
    pairs
}

fn get<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(value, |at, part| at.get(part))
}

/// What becomes of the keys that may come back.
#[derive(Debug, PartialEq)]
pub(super) enum Merged {
    /// There is nothing to do.
    Same,
    /// They are to be laid into the real file.
    New(Vec<Pair>),
    /// Somebody else changed them meanwhile, and theirs are newer or cannot be compared.
    Theirs,
}

/// Finds the keys of the layer that are to be laid into the real file.
pub(super) fn merge(rule: &KeyRule, seed: &Value, layer: &Value, real: &Value) -> Merged {
    let (old, new, now) = (group(seed, rule), group(layer, rule), group(real, rule));
    if new.is_empty() || new == old || new == now {
        return Merged::Same;
    }
    if now != old && !is_newer(rule, layer, real) {
        return Merged::Theirs;
    }
    Merged::New(new)
}

fn is_newer(rule: &KeyRule, layer: &Value, real: &Value) -> bool {
    let Some(key) = &rule.newer_by else {
        return false;
    };
    match (get(layer, key), get(real, key)) {
        (Some(Value::Number(layer)), Some(Value::Number(real))) => {
            layer.as_f64().unwrap_or(0.0) > real.as_f64().unwrap_or(0.0)
        }
        (Some(Value::String(layer)), Some(Value::String(real))) => layer > real,
        (Some(_), None) => true,
        _ => false,
    }
}

fn leaves(value: &Value, path: &mut Vec<String>, into: &mut Vec<Pair>) {
    match value {
        Value::Object(fields) if !fields.is_empty() && path.len() < DEPTH => {
            for (name, value) in fields {
                path.push(name.clone());
                leaves(value, path, into);
                path.pop();
            }
        }
        other => into.push((path.clone(), other.clone())),
    }
}

/// Lists the keys that changed and neither come back nor are of no account.
pub(super) fn changes(rule: &KeyRule, seed: &Value, layer: &Value) -> Vec<KeyChange> {
    let flat = |value: &Value| {
        let mut pairs = Vec::new();
        leaves(value, &mut Vec::new(), &mut pairs);
        pairs.retain(|(path, value)| {
            let comes_back =
                is_plain(value) && rule.keys.iter().any(|key| matches_whole(key, path));
            !path.is_empty() && !comes_back && !rule.ignore.iter().any(|one| matches_top(one, path))
        });
        pairs
    };
    let (old, new) = (flat(seed), flat(layer));
    let mut changes = Vec::new();
    let empty =
        |value: &Value| matches!(value, Value::Object(_)) || *value == Value::Array(Vec::new());
    for (path, value) in &new {
        let before = old
            .iter()
            .find(|(one, _)| one == path)
            .map(|(_, value)| value);
        // An empty place for something says nothing.
        if before != Some(value) && !(before.is_none() && empty(value)) {
            changes.push(change(path, before, Some(value)));
        }
    }
    for (path, value) in &old {
        let gone = !new
            .iter()
            .any(|(one, _)| one == path || one.starts_with(path));
        if gone && !empty(value) {
            changes.push(change(path, Some(value), None));
        }
    }
    changes
}

fn matches_whole(key: &str, path: &[String]) -> bool {
    key.split('.').count() == path.len() && matches_top(key, path)
}

fn change(path: &[String], before: Option<&Value>, after: Option<&Value>) -> KeyChange {
    let secret = path.iter().any(|part| looks_secret(part));
    let shown = |value: Option<&Value>| {
        value.map(|value| {
            if secret && !value.is_boolean() && !value.is_null() {
                Value::from(MASKED)
            } else {
                value.clone()
            }
        })
    };
    KeyChange {
        key: path.to_vec(),
        before: shown(before),
        after: shown(after),
        masked: secret,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule() -> KeyRule {
        KeyRule {
            file: "a.json".to_owned(),
            keys: vec!["oauth.*".to_owned(), "user".to_owned()],
            newer_by: Some("oauth.expires".to_owned()),
            ignore: vec!["count*".to_owned(), "projects.*.last*".to_owned()],
        }
    }

    #[test]
    fn a_renewed_token_is_laid_into_the_real_file() {
        let seed = json!({"oauth": {"token": "a", "expires": 1}, "theme": "dark"});
        let layer =
            json!({"oauth": {"token": "b", "expires": 2}, "theme": "dark", "hooks": {"x": 1}});
        let real = json!({"oauth": {"token": "a", "expires": 1}, "theme": "light"});
        let key = |name: &str| vec!["oauth".to_owned(), name.to_owned()];
        assert_eq!(
            merge(&rule(), &seed, &layer, &real),
            Merged::New(vec![(key("expires"), json!(2)), (key("token"), json!("b"))])
        );
    }

    #[test]
    fn of_two_renewed_tokens_the_newer_stays() {
        let seed = json!({"oauth": {"expires": 1}});
        let layer = json!({"oauth": {"expires": 2}});
        let real = json!({"oauth": {"expires": 3}});
        assert_eq!(merge(&rule(), &seed, &layer, &real), Merged::Theirs);
        let key = vec!["oauth".to_owned(), "expires".to_owned()];
        assert_eq!(
            merge(&rule(), &seed, &real, &layer),
            Merged::New(vec![(key, json!(3))])
        );
        assert_eq!(merge(&rule(), &seed, &seed, &real), Merged::Same);
    }

    #[test]
    fn objects_do_not_come_back_as_values() {
        let seed = json!({});
        let layer = json!({"oauth": {"nested": {"x": 1}}, "user": {"y": 1}});
        assert_eq!(merge(&rule(), &seed, &layer, &seed), Merged::Same);
    }

    #[test]
    fn what_neither_comes_back_nor_is_of_no_account_is_shown() {
        let seed = json!({"user": "a", "countX": 1, "old": 1});
        let layer = json!({
            "user": "b", "countX": 2,
            "mcpServers": {"evil": {"command": "sh", "env": {"API_KEY": "k"}}},
            "projects": {"/w": {"lastCost": 1, "trusted": true}},
        });
        let changes = changes(&rule(), &seed, &layer);
        let keys: Vec<String> = changes.iter().map(|one| one.key.join("/")).collect();
        assert_eq!(
            keys,
            [
                "mcpServers/evil/command",
                "mcpServers/evil/env/API_KEY",
                "projects//w/trusted",
                "old"
            ]
        );
        assert_eq!(changes[1].after, Some(json!(MASKED)));
        assert!(changes[1].masked);
        assert_eq!(changes[3].after, None);
    }
}
