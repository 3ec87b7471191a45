//! Reading a document from text, with errors that name the field.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::check::check_document;
use super::document::{POLICY_SCHEMA, PolicyDocument};
use super::effective::Layer;
use crate::error::{ErrorCode, Problem};

/// In what notation a policy is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyFormat {
    /// TOML.
    Toml,
    /// JSON.
    Json,
}

impl PolicyFormat {
    /// Tells the notation by the end of a file's name; what is not `.json` is TOML.
    pub fn of_name(name: &[u8]) -> Self {
        if name.ends_with(b".json") {
            Self::Json
        } else {
            Self::Toml
        }
    }
}

/// Reads and checks one layer's text; `origin` names it in errors.
///
/// # Errors
///
/// `policy_unreadable` for what is not TOML or JSON, `policy_unknown_key` with the nearest known key,
/// `policy_invalid_value`, `unsupported_field` and `policy_contradiction`.
pub fn read_policy(
    text: &str,
    format: PolicyFormat,
    layer: Layer,
    origin: &str,
) -> Result<PolicyDocument, Problem> {
    let value = match format {
        PolicyFormat::Json => serde_json::from_str::<Value>(text)
            .map_err(|error| unreadable(origin, "JSON", &error.to_string()))?,
        PolicyFormat::Toml => {
            let table = toml::from_str::<toml::Table>(text)
                .map_err(|error| unreadable(origin, "TOML", error.to_string().trim_end()))?;
            serde_json::to_value(table)
                .map_err(|error| unreadable(origin, "TOML", &error.to_string()))?
        }
    };
    let in_file = |problem: Problem| Problem {
        message: format!("{origin}: {}", problem.message),
        ..problem
    };
    let document = from_value(&value).map_err(in_file)?;
    match document.schema {
        Some(POLICY_SCHEMA) => {}
        Some(other) => {
            return Err(in_file(
                Problem::new(
                    ErrorCode::PolicyInvalidValue,
                    format!("schema is {other}, this version reads {POLICY_SCHEMA}"),
                )
                .with_field("schema"),
            ));
        }
        None => {
            return Err(in_file(
                Problem::new(ErrorCode::PolicyInvalidValue, "schema is missing")
                    .with_field("schema")
                    .with_hint("begin the policy with schema = 1"),
            ));
        }
    }
    check_document(&document, layer).map_err(in_file)?;
    Ok(document)
}

fn unreadable(origin: &str, notation: &str, detail: &str) -> Problem {
    Problem::new(
        ErrorCode::PolicyUnreadable,
        format!("{origin} is not valid {notation}: {detail}"),
    )
}

fn from_value(value: &Value) -> Result<PolicyDocument, Problem> {
    // Nothing, and a number that is none, would be read as if the key were absent.
    if let Some(key) = empty_value(value, "") {
        let text = format!("{key} has no value");
        return Err(Problem::new(ErrorCode::PolicyInvalidValue, text).with_field(key));
    }
    if let Ok(document) = serde_json::from_value(value.clone()) {
        return Ok(document);
    }
    // Something is wrong: only now is it worth finding out what.
    let Value::Object(fields) = value else {
        return Err(Problem::new(
            ErrorCode::PolicyInvalidValue,
            "a policy is a table of keys",
        ));
    };
    let schema = policy_schema();
    unknown_key(value, &schema, &schema, "")?;
    for (name, field) in fields {
        let mut one = Map::new();
        one.insert(name.clone(), field.clone());
        if let Err(error) = serde_json::from_value::<PolicyDocument>(Value::Object(one)) {
            return Err(
                Problem::new(ErrorCode::PolicyInvalidValue, format!("{name}: {error}"))
                    .with_field(name),
            );
        }
    }
    Err(Problem::new(
        ErrorCode::PolicyInvalidValue,
        "the policy has a value that its key cannot have",
    ))
}

/// Finds a key whose value is null, which is also what `nan` and `inf` of TOML become.
fn empty_value(value: &Value, at: &str) -> Option<String> {
    match value {
        Value::Null => Some(at.to_owned()),
        Value::Object(fields) => fields.iter().find_map(|(name, field)| {
            let full = if at.is_empty() {
                name.clone()
            } else {
                format!("{at}.{name}")
            };
            empty_value(field, &full)
        }),
        Value::Array(entries) => entries.iter().find_map(|entry| empty_value(entry, at)),
        _ => None,
    }
}

/// Gives the JSON Schema of the document.
pub fn policy_schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator
        .into_root_schema_for::<PolicyDocument>()
        .to_value()
}

/// Follows a reference to its definition.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let mut schema = schema;
    if let Some(options) = schema.get("anyOf").and_then(Value::as_array) {
        // An optional value: the definition or null.
        schema = options
            .iter()
            .find(|one| one.get("$ref").is_some())
            .unwrap_or(schema);
    }
    schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|path| root.pointer(path.trim_start_matches('#')))
        .unwrap_or(schema)
}

pub(crate) fn unknown_key(
    value: &Value,
    schema: &Value,
    root: &Value,
    at: &str,
) -> Result<(), Problem> {
    let schema = resolve(schema, root);
    match value {
        Value::Object(fields) => {
            let Some(known) = schema.get("properties").and_then(Value::as_object) else {
                // Of a table with names of its own, each value has the same form.
                if let Some(inner) = schema
                    .get("additionalProperties")
                    .filter(|one| one.is_object())
                {
                    for (name, field) in fields {
                        unknown_key(field, inner, root, &format!("{at}.{name}"))?;
                    }
                }
                return Ok(());
            };
            for (name, field) in fields {
                let full = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                let Some(inner) = known.get(name) else {
                    let problem =
                        Problem::new(ErrorCode::PolicyUnknownKey, format!("unknown key {full:?}"))
                            .with_field(&full);
                    return Err(match nearest(name, known.keys()) {
                        Some(near) => problem.with_hint(format!("did you mean {near:?}?")),
                        None => problem,
                    });
                };
                unknown_key(field, inner, root, &full)?;
            }
            Ok(())
        }
        Value::Array(entries) => {
            let Some(inner) = schema.get("items") else {
                return Ok(());
            };
            entries
                .iter()
                .try_for_each(|entry| unknown_key(entry, inner, root, at))
        }
        _ => Ok(()),
    }
}

/// Gives the known name that differs least.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    // A word that was cut short is nearer than one that happens to be as long.
    let is_cut = |one: &str| one.starts_with(name) || name.starts_with(one);
    known
        .map(|one| (!is_cut(one), distance(name, one), one.as_str()))
        .min()
        .map(|(_, _, one)| one)
}

/// Counts the edits between two words, where `-` and `_`, upper and lower case are the same.
fn distance(left: &str, right: &str) -> usize {
    let plain = |text: &str| -> Vec<char> {
        let same = |letter: char| match letter {
            '-' => '_',
            other => other.to_ascii_lowercase(),
        };
        text.chars().map(same).collect()
    };
    let (left, right) = (plain(left), plain(right));
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, a) in left.iter().enumerate() {
        let mut corner = line;
        row[0] = line + 1;
        for (column, b) in right.iter().enumerate() {
            let here = (corner + usize::from(a != b))
                .min(row[column] + 1)
                .min(row[column + 1] + 1);
            corner = row[column + 1];
            row[column + 1] = here;
        }
    }
    row[right.len()]
}
