//! Files with keys: JSON, and TOML of which comments and order stay.

use std::path::Path;

use serde_json::{Map, Value, json};
use toml_edit::{DocumentMut, Item, TableLike};

/// How a file with keys is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// TOML.
    Toml,
}

impl Format {
    /// Tells the format by a file's name.
    pub fn of(path: &Path) -> Self {
        let end = path.extension();
        if end.is_some_and(|end| end.eq_ignore_ascii_case("toml")) {
            Self::Toml
        } else {
            Self::Json
        }
    }

    /// Gives its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Toml => "TOML",
        }
    }
}

/// A file with keys that was read.
#[derive(Debug, Clone)]
pub enum Document {
    /// JSON; its text is written anew.
    Json(Value),
    /// TOML; its comments and order stay.
    Toml(Box<DocumentMut>),
}

impl Document {
    /// Makes one without a key.
    pub fn empty(format: Format) -> Self {
        match format {
            Format::Json => Self::Json(json!({})),
            Format::Toml => Self::Toml(Box::default()),
        }
    }

    /// Reads one; `None` where it is not what its name says.
    pub fn read(format: Format, bytes: &[u8]) -> Option<Self> {
        match format {
            Format::Json => serde_json::from_slice(bytes).ok().map(Self::Json),
            Format::Toml => {
                let text = std::str::from_utf8(bytes).ok()?;
                let document: DocumentMut = text.parse().ok()?;
                Some(Self::Toml(Box::new(document)))
            }
        }
    }

    /// Gives all of its values. A date of TOML is its text.
    pub fn value(&self) -> Value {
        match self {
            Self::Json(value) => value.clone(),
            Self::Toml(document) => table_value(document.as_table()),
        }
    }

    /// Sets a value at a key, and makes what leads there; `None` removes it.
    pub fn set(&mut self, path: &[String], new: Option<&Value>) {
        match self {
            Self::Json(value) => set_json(value, path, new),
            Self::Toml(document) => set_toml(document.as_table_mut(), path, new),
        }
    }

    /// Gives the bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Json(value) => {
                let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
                text.push(b'\n');
                text
            }
            Self::Toml(document) => document.to_string().into_bytes(),
        }
    }
}

fn table_value(table: &dyn TableLike) -> Value {
    let fields = table.iter();
    let fields = fields.map(|(name, item)| (name.to_owned(), item_value(item)));
    Value::Object(fields.collect())
}

fn item_value(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => plain_value(value),
        Item::Table(table) => table_value(table),
        Item::ArrayOfTables(list) => list.iter().map(|one| table_value(one)).collect(),
    }
}

fn plain_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => text.value().as_str().into(),
        toml_edit::Value::Integer(number) => (*number.value()).into(),
        toml_edit::Value::Float(number) => (*number.value()).into(),
        toml_edit::Value::Boolean(value) => (*value.value()).into(),
        toml_edit::Value::Datetime(time) => time.value().to_string().into(),
        toml_edit::Value::Array(list) => list.iter().map(plain_value).collect(),
        toml_edit::Value::InlineTable(table) => table_value(table),
    }
}

/// Gives a value as TOML, which knows no null.
fn toml_value(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64()?.into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(list) => toml_edit::Value::Array(list.iter().filter_map(toml_value).collect()),
        Value::Object(fields) => {
            let mut table = toml_edit::InlineTable::new();
            for (name, value) in fields {
                if let Some(value) = toml_value(value) {
                    table.insert(name, value);
                }
            }
            table.into()
        }
    })
}

fn set_toml(table: &mut dyn TableLike, path: &[String], new: Option<&Value>) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    if rest.is_empty() {
        let Some(mut new) = new.and_then(toml_value) else {
            table.remove(first);
            return;
        };
        match table.get_mut(first) {
            Some(Item::Value(old)) => {
                // A date was handed on as its text.
                if let (toml_edit::Value::Datetime(_), Some(text)) = (&*old, new.as_str())
                    && let Ok(time) = text.parse::<toml_edit::Datetime>()
                {
                    new = time.into();
                }
                *new.decor_mut() = old.decor().clone();
                *old = new;
            }
            _ => {
                table.insert(first, Item::Value(new));
            }
        }
        return;
    }
    let is_table = table.get(first).is_some_and(Item::is_table_like);
    if !is_table {
        if new.is_none() {
            return;
        }
        let mut between = toml_edit::Table::new();
        // Its own heading would say nothing.
        between.set_implicit(true);
        table.insert(first, Item::Table(between));
    }
    if let Some(below) = table.get_mut(first).and_then(Item::as_table_like_mut) {
        set_toml(below, rest, new);
    }
}

fn set_json(value: &mut Value, path: &[String], new: Option<&Value>) {
    let Some((last, leading)) = path.split_last() else {
        return;
    };
    let mut at = value;
    for part in leading {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(fields) = at else { return };
        at = fields.entry(part.clone()).or_insert(Value::Null);
    }
    if !at.is_object() {
        *at = Value::Object(Map::new());
    }
    let Value::Object(fields) = at else { return };
    match new {
        Some(new) => {
            fields.insert(last.clone(), new.clone());
        }
        None => {
            fields.shift_remove(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# what I like
model = \"a\" # for now
since = 2026-01-02

[projects.\"/code/app\"]
trust_level = \"trusted\"

[notice]
seen = { a = 1 }
";

    fn key(parts: &[&str]) -> Vec<String> {
        parts.iter().map(|part| (*part).to_owned()).collect()
    }

    fn toml(text: &str) -> Document {
        Document::read(Format::Toml, text.as_bytes()).expect("TOML")
    }

    #[test]
    fn toml_has_the_values_of_json() {
        let expected = json!({
            "model": "a", "since": "2026-01-02",
            "projects": {"/code/app": {"trust_level": "trusted"}},
            "notice": {"seen": {"a": 1}},
        });
        assert_eq!(toml(TEXT).value(), expected);
    }

    #[test]
    fn comments_and_order_of_toml_stay() {
        let mut document = toml(TEXT);
        document.set(&key(&["model"]), Some(&json!("b")));
        document.set(&key(&["since"]), Some(&json!("2026-02-03")));
        document.set(&key(&["notice", "seen", "b"]), Some(&json!(true)));
        document.set(
            &key(&["projects", "/x.y", "trust_level"]),
            Some(&json!("untrusted")),
        );
        let text = String::from_utf8(document.bytes()).expect("text");
        assert_eq!(
            text,
            "\
# what I like
model = \"b\" # for now
since = 2026-02-03

[projects.\"/code/app\"]
trust_level = \"trusted\"

[projects.\"/x.y\"]
trust_level = \"untrusted\"

[notice]
seen = { a = 1 , b = true }
"
        );
    }

    #[test]
    fn a_key_goes_and_nothing_is_made_for_it() {
        for (format, text) in [(Format::Toml, TEXT), (Format::Json, "{\"model\": \"a\"}")] {
            let mut document = Document::read(format, text.as_bytes()).expect("good");
            document.set(&key(&["model"]), None);
            assert!(document.value().get("model").is_none(), "{format:?}");
        }
        let mut document = toml(TEXT);
        document.set(&key(&["none", "such"]), None);
        assert_eq!(document.bytes(), TEXT.as_bytes());
    }

    #[test]
    fn an_empty_document_of_either_kind_takes_keys() {
        for format in [Format::Json, Format::Toml] {
            let mut document = Document::empty(format);
            document.set(&key(&["a", "b"]), Some(&json!([1, "x"])));
            let again = Document::read(format, &document.bytes()).expect("good");
            assert_eq!(again.value(), json!({"a": {"b": [1, "x"]}}), "{format:?}");
        }
    }
}
