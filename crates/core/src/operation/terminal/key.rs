//! Keys by name, and the bytes that a terminal sends for them.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Says that a text is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no key: enter, tab, shift-tab, escape, space, backspace, delete, insert, up, down, left, right, home, end, page-up, page-down, f1 to f12, ctrl-a to ctrl-z, ctrl-[ ctrl-\\ ctrl-] ctrl-^ ctrl-_ ctrl-space, alt-CHARACTER"
)]
pub struct KeyError {
    /// The text that was read, shortened.
    pub text: String,
}

/// A key by its name, `enter` or `ctrl-c` for instance.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TerminalKey(String);

/// Keys that are an escape sequence: the name, what follows `ESC [`, and whether it follows `ESC O`
/// where a program wants application keys.
const SEQUENCES: &[(&str, &str, bool)] = &[
    ("up", "A", true),
    ("down", "B", true),
    ("right", "C", true),
    ("left", "D", true),
    ("home", "H", true),
    ("end", "F", true),
    ("insert", "2~", false),
    ("delete", "3~", false),
    ("page-up", "5~", false),
    ("page-down", "6~", false),
    ("shift-tab", "Z", false),
    ("f5", "15~", false),
    ("f6", "17~", false),
    ("f7", "18~", false),
    ("f8", "19~", false),
    ("f9", "20~", false),
    ("f10", "21~", false),
    ("f11", "23~", false),
    ("f12", "24~", false),
];

/// Keys that are always the same bytes.
const PLAIN: &[(&str, &str)] = &[
    ("enter", "\r"),
    ("tab", "\t"),
    ("escape", "\x1b"),
    ("space", " "),
    ("backspace", "\x7f"),
    ("f1", "\x1bOP"),
    ("f2", "\x1bOQ"),
    ("f3", "\x1bOR"),
    ("f4", "\x1bOS"),
    ("ctrl-space", "\0"),
];

impl TerminalKey {
    /// Reads a name; capitals, `_` for `-`, and the short forms `esc`, `return`, `pgup`, `pgdn` and
    /// `del` are understood.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let error = || KeyError {
            text: text.chars().take(40).collect(),
        };
        if let Some(rest) = text
            .strip_prefix("alt-")
            .or_else(|| text.strip_prefix("Alt-"))
        {
            // The character counts as it is.
            let mut characters = rest.chars();
            return match (characters.next(), characters.next()) {
                (Some(one), None) if !one.is_control() => Ok(Self(format!("alt-{one}"))),
                _ => Err(error()),
            };
        }
        let mut name = text.to_ascii_lowercase();
        if name.len() > 2 && !name.ends_with("-_") {
            name = name.replace('_', "-");
        }
        let name = match name.as_str() {
            "esc" => "escape",
            "return" => "enter",
            "pgup" | "pageup" => "page-up",
            "pgdn" | "pgdown" | "pagedown" => "page-down",
            "del" => "delete",
            other => other,
        };
        let key = Self(name.to_owned());
        if key.look_up(false).is_some() {
            Ok(key)
        } else {
            Err(error())
        }
    }

    /// Lends the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Gives the bytes that the key sends; `application` says whether the program in the terminal
    /// has asked for application keys.
    pub fn bytes(&self, application: bool) -> Vec<u8> {
        self.look_up(application).unwrap_or_default()
    }

    fn look_up(&self, application: bool) -> Option<Vec<u8>> {
        let name = self.0.as_str();
        if let Some((_, bytes)) = PLAIN.iter().find(|(key, _)| *key == name) {
            return Some(bytes.as_bytes().to_vec());
        }
        if let Some((_, rest, cursor)) = SEQUENCES.iter().find(|(key, ..)| *key == name) {
            let begin = if application && *cursor {
                "\x1bO"
            } else {
                "\x1b["
            };
            return Some(format!("{begin}{rest}").into_bytes());
        }
        if let Some(rest) = name.strip_prefix("alt-") {
            return Some(format!("\x1b{rest}").into_bytes());
        }
        match name.strip_prefix("ctrl-")?.as_bytes() {
            [letter @ b'a'..=b'z'] => Some(vec![letter - b'a' + 1]),
            [sign @ (b'[' | b'\\' | b']' | b'^' | b'_')] => Some(vec![sign & 0x1f]),
            _ => None,
        }
    }
}

impl TryFrom<String> for TerminalKey {
    type Error = KeyError;
    fn try_from(text: String) -> Result<Self, KeyError> {
        Self::parse(&text)
    }
}

impl std::str::FromStr for TerminalKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::parse(text)
    }
}

impl From<TerminalKey> for String {
    fn from(key: TerminalKey) -> Self {
        key.0
    }
}

impl fmt::Display for TerminalKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl JsonSchema for TerminalKey {
    fn schema_name() -> Cow<'static, str> {
        "TerminalKey".into()
    }
    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A key by name: enter, tab, escape, up, page-down, f1, ctrl-c, alt-b, …",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_bytes_that_a_terminal_sends() {
        let bytes = |name: &str| TerminalKey::parse(name).map(|key| key.bytes(false));
        assert_eq!(bytes("ctrl-c"), Ok(b"\x03".to_vec()));
        assert_eq!(bytes("Ctrl_C"), Ok(b"\x03".to_vec()));
        assert_eq!(bytes("ctrl-["), Ok(b"\x1b".to_vec()));
        assert_eq!(bytes("ctrl-_"), Ok(b"\x1f".to_vec()));
        assert_eq!(bytes("up"), Ok(b"\x1b[A".to_vec()));
        assert_eq!(bytes("PgDn"), Ok(b"\x1b[6~".to_vec()));
        assert_eq!(bytes("alt-B"), Ok(b"\x1bB".to_vec()));
        let up = TerminalKey::parse("up").expect("a key");
        assert_eq!(up.bytes(true), b"\x1bOA");
        for bad in ["", "ctrl-", "ctrl-ab", "alt-", "up up", "f13", "\u{3}"] {
            assert!(bytes(bad).is_err(), "{bad:?}");
        }
    }
}
