//! Configuration files of agents: single keys and elements are put in and taken out, and every other
//! byte stays as it is.

use cofferdam_exec::home::{Document as TomlDocument, Format as TomlFormat};
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// JSON without comments.
    Json,
    /// JSON with comments.
    Commented,
    /// JSON with comments, and commas before a closing bracket.
    Jsonc,
    /// TOML.
    Toml,
    /// A file that is ours as a whole.
    Whole,
}

/// A file with keys.
pub(super) enum Document {
    Json(CstRootNode),
    Toml(TomlDocument),
}

impl Document {
    /// Reads one; the error is what is wrong with it.
    pub(super) fn read(kind: Kind, text: &str) -> Result<Self, String> {
        if kind == Kind::Toml {
            return TomlDocument::read(TomlFormat::Toml, text.as_bytes())
                .map(Self::Toml)
                .ok_or_else(|| "it is no TOML".to_owned());
        }
        let options = ParseOptions {
            allow_comments: kind != Kind::Json,
            allow_trailing_commas: kind == Kind::Jsonc,
            allow_loose_object_property_names: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };
        let text = if text.trim().is_empty() { "{}\n" } else { text };
        if kind == Kind::Json {
            // Whoever reads it knows nothing but JSON.
            serde_json::from_str::<Value>(text).map_err(|error| error.to_string())?;
        }
        let root = CstRootNode::parse(text, &options).map_err(|error| error.to_string())?;
        if root.object_value().is_none() {
            return Err("it holds no object".to_owned());
        }
        Ok(Self::Json(root))
    }

    /// Gives the value at a key.
    pub(super) fn get(&self, path: &[String]) -> Option<Value> {
        match self {
            Self::Json(root) => {
                let (last, leading) = path.split_last()?;
                let mut at = root.object_value()?;
                for part in leading {
                    at = at.object_value(part)?;
                }
                at.get(last)?.value()?.to_serde_value()
            }
            Self::Toml(document) => path
                .iter()
                .try_fold(document.value(), |at, part| at.get(part).cloned()),
        }
    }

    /// Sets a key, and makes what leads there. False where what leads there is something else.
    pub(super) fn set(&mut self, path: &[String], value: &Value) -> bool {
        match self {
            Self::Json(root) => {
                let Some((last, leading)) = path.split_last() else {
                    return false;
                };
                let Some(at) = reach(root, leading) else {
                    return false;
                };
                match at.get(last) {
                    Some(there) => there.set_value(input(value)),
                    None => drop(at.append(last, input(value))),
                }
                true
            }
            Self::Toml(document) => {
                let blocked = (1..path.len()).any(|end| {
                    let value = path[..end]
                        .iter()
                        .try_fold(document.value(), |at, part| at.get(part).cloned());
                    value.is_some_and(|value| !value.is_object())
                });
                if blocked {
                    return false;
                }
                match value.as_object() {
                    // A heading of its own instead of braces.
                    Some(fields) => {
                        for (name, value) in fields {
                            document.set(&[path, std::slice::from_ref(name)].concat(), Some(value));
                        }
                    }
                    None => document.set(path, Some(value)),
                }
                true
            }
        }
    }

    /// Takes a key out.
    pub(super) fn remove(&mut self, path: &[String]) {
        match self {
            Self::Json(root) => {
                if let Some((last, leading)) = path.split_last()
                    && let Some(at) = find(root, leading)
                    && let Some(there) = at.get(last)
                {
                    there.remove();
                }
            }
            Self::Toml(document) => document.set(path, None),
        }
    }

    /// Puts a value at the end of a list, and makes the list. False where something else is there.
    pub(super) fn append(&mut self, path: &[String], value: &Value) -> bool {
        let Self::Json(root) = self else {
            return false;
        };
        let Some((last, leading)) = path.split_last() else {
            return false;
        };
        let list = reach(root, leading).and_then(|at| at.array_value_or_create(last));
        list.map(|list| list.append(input(value))).is_some()
    }

    /// Takes a value out of a list, where it is; the last one that is equal.
    pub(super) fn take_out(&mut self, path: &[String], value: &Value) {
        let Self::Json(root) = self else {
            return;
        };
        if let Some(element) = element(root, path, value) {
            element.remove();
        }
    }

    /// Tells whether a list holds a value.
    pub(super) fn holds(&self, path: &[String], value: &Value) -> bool {
        match self {
            Self::Json(root) => element(root, path, value).is_some(),
            Self::Toml(_) => false,
        }
    }

    /// Gives the whole text.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Json(root) => root.to_string(),
            Self::Toml(document) => String::from_utf8_lossy(&document.bytes()).into_owned(),
        }
    }
}

fn find(root: &CstRootNode, path: &[String]) -> Option<CstObject> {
    path.iter()
        .try_fold(root.object_value()?, |at, part| at.object_value(part))
}

fn reach(root: &CstRootNode, path: &[String]) -> Option<CstObject> {
    path.iter().try_fold(root.object_value()?, |at, part| {
        at.object_value_or_create(part)
    })
}

fn element(root: &CstRootNode, path: &[String], value: &Value) -> Option<CstNode> {
    let (last, leading) = path.split_last()?;
    let list: CstArray = find(root, leading)?.array_value(last)?;
    let mut elements = list.elements();
    elements.retain(|one| one.to_serde_value().as_ref() == Some(value));
    elements.pop()
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(list) => CstInputValue::Array(list.iter().map(input).collect()),
        Value::Object(fields) => CstInputValue::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), input(value)))
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(parts: &[&str]) -> Vec<String> {
        parts.iter().map(|part| (*part).to_owned()).collect()
    }

    #[test]
    fn comments_and_order_stay_and_what_is_put_in_is_taken_out() {
        let text = "{\n    // mine\n    \"b\": 1, /* two */ \"a\": [1,\n 2],\n}\n";
        let mut document = Document::read(Kind::Jsonc, text).expect("good");
        assert!(document.set(&key(&["x", "y"]), &json!({"command": "c"})));
        assert!(document.append(&key(&["a"]), &json!("Bash")));
        let with = document.text();
        assert!(
            with.contains("// mine\n    \"b\": 1, /* two */ \"a\": [1,\n 2"),
            "{with}"
        );
        let mut document = Document::read(Kind::Jsonc, &with).expect("good");
        assert_eq!(document.get(&key(&["x", "y", "command"])), Some(json!("c")));
        assert!(document.holds(&key(&["a"]), &json!("Bash")));
        document.take_out(&key(&["a"]), &json!("Bash"));
        document.remove(&key(&["x"]));
        let after = Document::read(Kind::Jsonc, &document.text()).expect("good");
        assert_eq!(after.get(&key(&["a"])), Some(json!([1, 2])));
        assert_eq!(after.get(&key(&["x"])), None);
        assert!(document.text().contains("// mine"));
    }

    #[test]
    fn what_is_no_object_is_refused_and_what_stands_in_the_way_too() {
        for text in ["[1]", "{", "{\"a\": 1,}", "// x\n{}", "{'a': 1}"] {
            assert!(Document::read(Kind::Json, text).is_err(), "{text}");
        }
        assert!(Document::read(Kind::Commented, "{\"a\": 1,}").is_err());
        assert!(Document::read(Kind::Commented, "// x\n{}").is_ok());
        let mut document = Document::read(Kind::Json, "{\"a\": 1}").expect("good");
        assert!(!document.set(&key(&["a", "b"]), &json!(2)));
        assert!(!document.append(&key(&["a"]), &json!(2)));
        assert_eq!(document.text(), "{\"a\": 1}");
        let mut document = Document::read(Kind::Toml, "a = 1\n").expect("good");
        assert!(!document.set(&key(&["a", "b"]), &json!(2)));
        assert!(Document::read(Kind::Toml, "a = ").is_err());
    }

    #[test]
    fn toml_gets_headings() {
        let mut document = Document::read(Kind::Toml, "model = \"m\" # mine\n").expect("good");
        let server = json!({"command": "c", "args": ["mcp"]});
        assert!(document.set(&key(&["mcp_servers", "cofferdam"]), &server));
        assert!(document.set(&key(&["features", "shell_tool"]), &json!(false)));
        insta::assert_snapshot!(document.text(), @r#"
        model = "m" # mine

        [mcp_servers.cofferdam]
        command = "c"
        args = ["mcp"]

        [features]
        shell_tool = false
        "#);
        assert_eq!(
            document.get(&key(&["mcp_servers", "cofferdam"])),
            Some(server)
        );
    }
}
