//! Reads what an event says, and takes what is missing or strange for unsaid.

use cofferdam_core::outcome::Status;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Longest line that is made of what an event says, in characters.
const LINE_CHARACTERS: usize = 200;

pub(crate) fn text<'a>(data: &'a Value, key: &str) -> Option<&'a str> {
    data.get(key)?.as_str()
}

pub(crate) fn owned(data: &Value, key: &str) -> Option<String> {
    text(data, key).map(str::to_owned)
}

pub(crate) fn number(data: &Value, key: &str) -> Option<u64> {
    data.get(key)?.as_u64()
}

pub(crate) fn list<'a>(data: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    data.get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Reads a part as a type of the vocabulary.
pub(crate) fn part<T: DeserializeOwned>(data: &Value, key: &str) -> Option<T> {
    T::deserialize(data.get(key)?).ok()
}

pub(crate) fn status(data: &Value) -> Option<Status> {
    part(data, "status")
}

/// Gives an argument vector, or whatever else says what was run, as one short line.
pub(crate) fn command_line(data: &Value) -> Option<String> {
    let words: Vec<&str> = list(data, "argv").filter_map(Value::as_str).collect();
    if words.is_empty() {
        let command = data.get("command")?;
        let line = command
            .as_str()
            .or_else(|| text(command, "shell"))
            .map(line);
        return line.or_else(|| {
            let words: Vec<&str> = list(command, "argv").filter_map(Value::as_str).collect();
            (!words.is_empty()).then(|| line_of(&words.join(" ")))
        });
    }
    Some(line_of(&words.join(" ")))
}

fn line(text: &str) -> String {
    line_of(text)
}

/// Cuts a text to one line of bounded length.
pub(crate) fn line_of(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let mut line: String = first.chars().take(LINE_CHARACTERS).collect();
    if line.len() < text.trim_end().len() {
        line.push('…');
    }
    line
}
