//! Fields of a request or a result, read from its schema: for the command line and the reference.

use serde_json::Value;

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldKind {
    /// Text.
    Text,
    /// One of these words.
    Word(Vec<String>),
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// Yes or no.
    Switch,
    /// Several texts.
    Texts,
    /// Names with texts.
    Map,
    /// Anything else, written as JSON.
    Json,
}

impl FieldKind {
    /// Gives a short word for people.
    pub fn word(&self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Word(words) => words.join(" \\| "),
            Self::Integer => "whole number".to_owned(),
            Self::Number => "number".to_owned(),
            Self::Switch => "true \\| false".to_owned(),
            Self::Texts => "list of texts".to_owned(),
            Self::Map => "object of texts".to_owned(),
            Self::Json => "object".to_owned(),
        }
    }
}

/// A field of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: FieldKind,
    /// Whether it must be there.
    pub required: bool,
    /// What it means, on one line.
    pub description: String,
}

/// Lists the fields of an object's schema, in order.
pub fn fields(schema: &Value) -> Vec<Field> {
    let required = |name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|names| names.iter().any(|one| one == name))
    };
    let Some(properties) = schema["properties"].as_object() else {
        return Vec::new();
    };
    properties
        .iter()
        .map(|(name, property)| Field {
            name: name.clone(),
            kind: kind(property, schema),
            required: required(name),
            description: property["description"]
                .as_str()
                .unwrap_or_default()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
        })
        .collect()
}

/// Follows a reference within the whole schema.
fn resolved<'a>(schema: &'a Value, whole: &'a Value) -> &'a Value {
    schema["$ref"]
        .as_str()
        .and_then(|reference| whole.pointer(reference.strip_prefix('#')?))
        .unwrap_or(schema)
}

fn kind(schema: &Value, whole: &Value) -> FieldKind {
    let schema = resolved(schema, whole);
    let choices = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    if let Some(choices) = choices {
        let real: Vec<&Value> = choices
            .iter()
            .map(|one| resolved(one, whole))
            .filter(|one| one["type"] != "null")
            .collect();
        if let [one] = real.as_slice() {
            return kind(one, whole);
        }
        let words: Option<Vec<String>> = real
            .iter()
            .map(|one| word(one))
            .collect::<Option<Vec<_>>>()
            .map(|lists| lists.concat());
        return words.map_or(FieldKind::Json, FieldKind::Word);
    }
    if let Some(words) = word(schema) {
        return FieldKind::Word(words);
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(many) => many
            .iter()
            .filter_map(Value::as_str)
            .filter(|one| *one != "null")
            .collect(),
        _ => Vec::new(),
    };
    match types.as_slice() {
        ["string"] => FieldKind::Text,
        ["integer"] => FieldKind::Integer,
        ["number"] => FieldKind::Number,
        ["boolean"] => FieldKind::Switch,
        ["array"] if resolved(&schema["items"], whole)["type"] == "string" => FieldKind::Texts,
        ["object"] if schema["additionalProperties"]["type"] == "string" => FieldKind::Map,
        _ => FieldKind::Json,
    }
}

/// Gives the words of a schema that names them.
fn word(schema: &Value) -> Option<Vec<String>> {
    if let Some(one) = schema["const"].as_str() {
        return Some(vec![one.to_owned()]);
    }
    let words: Vec<String> = schema["enum"]
        .as_array()?
        .iter()
        .filter_map(|one| one.as_str().map(str::to_owned))
        .collect();
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::super::OperationTable;
    use super::*;

    #[test]
    fn the_fields_of_a_command_are_told_with_their_kinds() {
        let table = OperationTable::new();
        let run = table.find("run_command").expect("an entry");
        let told: Vec<String> = fields(&run.request_schema())
            .iter()
            .map(|field| format!("{}: {}", field.name, field.kind.word()))
            .collect();
        insta::assert_snapshot!(told.join("\n"), @r"
        command: text
        argv: list of texts
        cwd: text
        timeout: number
        idle_timeout: number
        env: object of texts
        stdin: text
        network: none \| restricted \| full
        write_access: read \| write
        idempotency_key: text
        full_access: text
        workspace: text
        ");
    }
}
