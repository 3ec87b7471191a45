//! Tools of the owner's own: a named command template with parameters.
//!
//! A template is a list of words, never text for a shell. An argument takes the place of `{name}`
//! within one word and stays within it, whatever it holds; a list becomes words of its own.

mod fill;
mod read;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use fill::fill_tool;
pub use read::{read_tool, tool_schema};

/// The version of the format that this program reads.
pub const TOOL_SCHEMA: u32 = 1;

/// A named command template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Version of this format: 1.
    pub schema: u32,
    /// Its name: small letters, digits and `_`.
    pub name: String,
    /// What it does, for whoever chooses among tools.
    pub description: String,
    /// The words of the command. `{parameter}` is replaced, `{{` and `}}` are braces. A word that
    /// names a parameter which was not given is left out.
    pub argv: Vec<String>,
    /// What it takes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Parameter>,
    /// Seconds until it is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// What is said of it, for whether somebody is asked before it runs.
    #[serde(default, skip_serializing_if = "ToolHints::is_unsaid")]
    pub hints: ToolHints,
}

/// What is said of a tool, in the words of the Model Context Protocol. It is a claim, worth what its
/// author's word is; what is not said is taken for the worse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolHints {
    /// Nothing is changed by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Something may be lost by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// It reaches the world outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}

impl ToolHints {
    /// Tells whether nothing is said.
    pub const fn is_unsaid(&self) -> bool {
        self.read_only.is_none() && self.destructive.is_none() && self.open_world.is_none()
    }
}

/// What a tool takes under one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// What kind of value it is.
    #[serde(rename = "type")]
    pub kind: ParameterKind,
    /// What it means.
    pub description: String,
    /// Whether it has to be given.
    #[serde(default)]
    pub required: bool,
    /// The value when none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// The only values that are taken.
    #[serde(default, rename = "enum", skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// The smallest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<i64>,
    /// The largest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<i64>,
    /// Whether a value may begin with `-`, which the program would take for an option.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub options: bool,
}

/// The kinds of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParameterKind {
    /// Text, as one word or a part of one.
    String,
    /// A whole number.
    Integer,
    /// Where true, the word that names it stands with the name taken out; else it is left out.
    Boolean,
    /// Texts, each a word of its own.
    Strings,
}

impl Tool {
    /// Gives the JSON Schema of its arguments.
    pub fn argument_schema(&self) -> Value {
        let properties: serde_json::Map<String, Value> = self
            .parameters
            .iter()
            .map(|(name, parameter)| (name.clone(), parameter.schema()))
            .collect();
        let required: Vec<&String> = self
            .parameters
            .iter()
            .filter(|(_, parameter)| parameter.required)
            .map(|(name, _)| name)
            .collect();
        serde_json::json!({
            "type": "object",
            "additionalProperties": false,
            "properties": properties,
            "required": required,
        })
    }
}

impl Parameter {
    fn schema(&self) -> Value {
        let text = || {
            let mut text = serde_json::json!({"type": "string"});
            if !self.choices.is_empty() {
                text["enum"] = serde_json::json!(self.choices);
            }
            text
        };
        let mut schema = match self.kind {
            ParameterKind::String => text(),
            ParameterKind::Integer => serde_json::json!({"type": "integer"}),
            ParameterKind::Boolean => serde_json::json!({"type": "boolean"}),
            ParameterKind::Strings => serde_json::json!({"type": "array", "items": text()}),
        };
        schema["description"] = Value::from(self.description.clone());
        for (key, value) in [("minimum", self.minimum), ("maximum", self.maximum)] {
            if let Some(value) = value {
                schema[key] = Value::from(value);
            }
        }
        if let Some(default) = &self.default {
            schema["default"] = default.clone();
        }
        schema
    }
}
