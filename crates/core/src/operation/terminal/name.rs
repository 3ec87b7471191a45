//! What a terminal is called.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Says that a text is no name of a terminal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no name of a terminal: 1 to 64 letters, digits, `-`, `_` and `.`, the first a letter or digit"
)]
pub struct TerminalNameError {
    /// The text that was read, shortened.
    pub text: String,
}

/// The name of a terminal: 1 to 64 letters, digits, `-`, `_` and `.`, the first a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TerminalName(String);

impl TerminalName {
    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self, TerminalNameError> {
        let good = text.len() <= 64
            && text
                .bytes()
                .next()
                .is_some_and(|first| first.is_ascii_alphanumeric())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if good {
            Ok(Self(text.to_owned()))
        } else {
            Err(TerminalNameError {
                text: text.chars().take(80).collect(),
            })
        }
    }

    /// Lends the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TerminalName {
    type Error = TerminalNameError;
    fn try_from(text: String) -> Result<Self, TerminalNameError> {
        Self::parse(&text)
    }
}

impl std::str::FromStr for TerminalName {
    type Err = TerminalNameError;
    fn from_str(text: &str) -> Result<Self, TerminalNameError> {
        Self::parse(text)
    }
}

impl From<TerminalName> for String {
    fn from(name: TerminalName) -> Self {
        name.0
    }
}

impl fmt::Display for TerminalName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl JsonSchema for TerminalName {
    fn schema_name() -> Cow<'static, str> {
        "TerminalName".into()
    }
    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_word_that_fits_everywhere() {
        assert!(TerminalName::parse("build-1.x").is_ok());
        for bad in ["", ".x", "a/b", "a b", "é", &"x".repeat(65)] {
            assert!(TerminalName::parse(bad).is_err(), "{bad}");
        }
    }
}
