//! From `--field value` to a request.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::PathBuf;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_server::{Field, FieldKind};
use serde_json::{Map, Value, json};

use super::utf8;

/// What stands behind the name of an operation.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) request: Map<String, Value>,
    pub(super) help: bool,
    pub(super) json: bool,
    pub(super) server: Option<String>,
    pub(super) token_file: Option<PathBuf>,
}

fn wrong(message: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::InvalidRequest, message)
}

/// Reads fields of a request.
pub(super) fn read(known: &[Field], words: &[OsString]) -> Result<Asked, Problem> {
    let mut asked = Asked::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let word = utf8(word)?;
        let Some(flag) = word.strip_prefix("--") else {
            return Err(if word == "-h" {
                asked.help = true;
                continue;
            } else {
                wrong(format!("{word:?} is no field: write --FIELD VALUE"))
                    .with_hint("a command line goes behind `--`")
            });
        };
        if flag.is_empty() {
            let rest: Vec<String> = words
                .by_ref()
                .map(|word| utf8(word).map(str::to_owned))
                .collect::<Result<_, _>>()?;
            if !known.iter().any(|field| field.name == "argv") {
                return Err(wrong("this operation takes no command line"));
            }
            asked.request.insert("argv".to_owned(), json!(rest));
            break;
        }
        let (name, given) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        match name {
            "help" => asked.help = true,
            "json" => asked.json = true,
            "server" => asked.server = Some(value(given, &mut words, name)?),
            "token-file" => asked.token_file = Some(value(given, &mut words, name)?.into()),
            "request" => {
                let text = value(given, &mut words, name)?;
                for (name, value) in whole(&text)? {
                    asked.request.insert(name, value);
                }
            }
            name => field(known, name, given, &mut words, &mut asked.request)?,
        }
    }
    Ok(asked)
}

fn value<'a>(
    given: Option<String>,
    words: &mut impl Iterator<Item = &'a OsString>,
    name: &str,
) -> Result<String, Problem> {
    if let Some(given) = given {
        return Ok(given);
    }
    let word = words
        .next()
        .ok_or_else(|| wrong(format!("--{name} has no value")).with_field(name))?;
    utf8(word).map(str::to_owned)
}

fn whole(text: &str) -> Result<Map<String, Value>, Problem> {
    let read;
    let text = if text == "-" {
        let mut all = String::new();
        std::io::stdin()
            .read_to_string(&mut all)
            .map_err(|error| wrong(format!("standard input cannot be read: {error}")))?;
        read = all;
        read.as_str()
    } else {
        text
    };
    serde_json::from_str(text).map_err(|error| {
        wrong(format!("the request is no JSON object: {error}")).with_field("request")
    })
}

fn field<'a>(
    known: &[Field],
    name: &str,
    given: Option<String>,
    words: &mut impl Iterator<Item = &'a OsString>,
    request: &mut Map<String, Value>,
) -> Result<(), Problem> {
    let name = name.replace('-', "_");
    let Some(field) = known.iter().find(|field| field.name == name) else {
        let names: Vec<&str> = known.iter().map(|field| field.name.as_str()).collect();
        return Err(wrong(format!("there is no field {name}"))
            .with_field(name)
            .with_hint(format!("fields are: {}", names.join(", "))));
    };
    let bad = |text: &str| {
        wrong(format!("{name} is no {}: {text:?}", field.kind.word())).with_field(name.clone())
    };
    let parsed = match &field.kind {
        FieldKind::Switch => match given.as_deref() {
            None | Some("true") => json!(true),
            Some("false") => json!(false),
            Some(text) => return Err(bad(text)),
        },
        FieldKind::Text | FieldKind::Word(_) => json!(value(given, words, &name)?),
        FieldKind::Integer => {
            let text = value(given, words, &name)?;
            json!(text.parse::<i64>().map_err(|_| bad(&text))?)
        }
        FieldKind::Number => {
            let text = value(given, words, &name)?;
            json!(text.parse::<f64>().map_err(|_| bad(&text))?)
        }
        FieldKind::Texts => {
            let text = value(given, words, &name)?;
            let list = request.entry(name.clone()).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(json!(text));
            }
            return Ok(());
        }
        FieldKind::Map => {
            let text = value(given, words, &name)?;
            let (key, one) = text.split_once('=').ok_or_else(|| {
                wrong(format!("--{name} is written NAME=VALUE")).with_field(&*name)
            })?;
            let map = request.entry(name.clone()).or_insert_with(|| json!({}));
            if let Some(map) = map.as_object_mut() {
                map.insert(key.to_owned(), json!(one));
            }
            return Ok(());
        }
        FieldKind::Json => {
            let text = value(given, words, &name)?;
            serde_json::from_str(&text).map_err(|_| bad(&text))?
        }
    };
    if request.insert(name.clone(), parsed).is_some() {
        return Err(wrong(format!("--{name} is given twice")).with_field(name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cofferdam_server::{OperationTable, fields};

    use super::*;

    fn read_words(text: &[&str]) -> Result<Value, Problem> {
        let table = OperationTable::new();
        let run = table.find("run_command").expect("an entry");
        let words: Vec<OsString> = text.iter().map(OsString::from).collect();
        read(&fields(&run.request_schema()), &words).map(|asked| Value::Object(asked.request))
    }

    #[test]
    fn flags_become_fields_of_their_types() {
        let request = read_words(&[
            "--timeout=5",
            "--idle-timeout",
            "2.5",
            "--env",
            "A=b=c",
            "--env",
            "B=",
            "--network",
            "none",
            "--",
            "grep",
            "--help",
        ]);
        assert_eq!(
            request.expect("a request"),
            json!({
                "timeout": 5.0, "idle_timeout": 2.5, "env": {"A": "b=c", "B": ""},
                "network": "none", "argv": ["grep", "--help"],
            })
        );
    }

    #[test]
    fn what_is_no_field_is_refused_with_its_name() {
        for (words, field) in [
            (&["--grants", "all"][..], Some("grants")),
            (&["--timeout", "soon"], Some("timeout")),
            (&["--timeout"], Some("timeout")),
            (&["true"], None),
            (&["--cwd", "a", "--cwd", "b"], Some("cwd")),
        ] {
            let problem = read_words(words).expect_err("a refusal");
            assert_eq!(problem.field.as_deref(), field, "{problem}");
        }
    }
}
