//! From arguments to the words of a command.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Parameter, ParameterKind, Tool};
use crate::bytes::BytePath;
use crate::error::{ErrorCode, Problem};
use crate::limits::ARGUMENT_BYTES;

/// A piece of a word of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Parameter(String),
}

/// Splits a word of a template; `None` for a brace that is not closed.
pub(super) fn pieces(word: &str) -> Option<Vec<Piece>> {
    let mut found = Vec::new();
    let mut text = String::new();
    let mut signs = word.chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '{' if signs.next_if_eq(&'{').is_some() => text.push('{'),
            '}' => {
                signs.next_if_eq(&'}')?;
                text.push('}');
            }
            '{' => {
                let mut name = String::new();
                loop {
                    match signs.next()? {
                        '}' => break,
                        sign => name.push(sign),
                    }
                }
                if !text.is_empty() {
                    found.push(Piece::Text(std::mem::take(&mut text)));
                }
                found.push(Piece::Parameter(name));
            }
            sign => text.push(sign),
        }
    }
    if !text.is_empty() {
        found.push(Piece::Text(text));
    }
    Some(found)
}

fn wrong(name: &str, text: impl std::fmt::Display) -> Problem {
    Problem::new(ErrorCode::InvalidRequest, format!("{name}: {text}"))
        .with_field(format!("arguments.{name}"))
}

/// Checks arguments and gives the words of the command. Nothing is read by a shell.
///
/// # Errors
///
/// `invalid_request`, with the argument that is wrong or missing.
pub fn fill_tool(tool: &Tool, arguments: &Map<String, Value>) -> Result<Vec<BytePath>, Problem> {
    if let Some(name) = arguments
        .keys()
        .find(|name| !tool.parameters.contains_key(*name))
    {
        let known: Vec<&str> = tool.parameters.keys().map(String::as_str).collect();
        return Err(wrong(name, "the tool takes no such argument")
            .with_hint(format!("it takes: {}", known.join(", "))));
    }
    let mut values = BTreeMap::new();
    for (name, parameter) in &tool.parameters {
        let given = arguments.get(name).filter(|value| !value.is_null());
        match given.or(parameter.default.as_ref()) {
            Some(value) => {
                values.insert(name.as_str(), texts(name, parameter, value)?);
            }
            None if parameter.required => return Err(wrong(name, "it has to be given")),
            None => {}
        }
    }
    let mut words = Vec::new();
    for word in &tool.argv {
        fill_word(tool, word, &values, &mut words)?;
    }
    Ok(words.into_iter().map(BytePath::from_bytes).collect())
}

/// Gives the texts of a value: one of a text or number, none or one of a boolean, any of a list.
pub(super) fn texts(
    name: &str,
    parameter: &Parameter,
    value: &Value,
) -> Result<Vec<String>, Problem> {
    match (parameter.kind, value) {
        (ParameterKind::String, Value::String(text)) => Ok(vec![checked(name, parameter, text)?]),
        (ParameterKind::Strings, Value::Array(list)) => list
            .iter()
            .map(|one| match one {
                Value::String(text) => checked(name, parameter, text),
                other => Err(wrong(name, format!("{other} is no text"))),
            })
            .collect(),
        (ParameterKind::Boolean, Value::Bool(true)) => Ok(vec![String::new()]),
        (ParameterKind::Boolean, Value::Bool(false)) => Ok(Vec::new()),
        (ParameterKind::Integer, Value::Number(number)) => {
            let number = number
                .as_i64()
                .ok_or_else(|| wrong(name, format!("{number} is no whole number")))?;
            let above = parameter.minimum.is_none_or(|least| number >= least);
            let below = parameter.maximum.is_none_or(|most| number <= most);
            if above && below {
                Ok(vec![number.to_string()])
            } else {
                Err(wrong(name, format!("{number} is out of its bounds")))
            }
        }
        (kind, other) => Err(wrong(name, format!("{other} is not of the type {kind:?}"))),
    }
}

fn checked(name: &str, parameter: &Parameter, text: &str) -> Result<String, Problem> {
    if text.contains('\0') {
        return Err(wrong(name, "it holds a zero byte"));
    }
    if text.len() >= ARGUMENT_BYTES {
        return Err(wrong(name, "it is longer than the kernel takes"));
    }
    if !parameter.choices.is_empty() && !parameter.choices.iter().any(|one| one == text) {
        return Err(wrong(name, format!("{text:?} is none of what it may be"))
            .with_hint(parameter.choices.join(", ")));
    }
    Ok(text.to_owned())
}

fn fill_word(
    tool: &Tool,
    word: &str,
    values: &BTreeMap<&str, Vec<String>>,
    words: &mut Vec<String>,
) -> Result<(), Problem> {
    let pieces = pieces(word).unwrap_or_default();
    let after_end = words.iter().any(|one| one == "--");
    let begins_as_option = |text: &str| text.starts_with('-') && !after_end;
    let refused = |name: &str, text: &str| {
        wrong(name, format!("{text:?} would be taken for an option"))
            .with_hint("the tool can set options = true for it, or put it behind a word `--`")
    };
    let takes_options = |name: &str| tool.parameters.get(name).is_some_and(|one| one.options);
    if let [Piece::Parameter(name)] = pieces.as_slice() {
        let texts = values.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        let option = texts.iter().find(|text| begins_as_option(text));
        if let Some(text) = option
            && !takes_options(name)
        {
            return Err(refused(name, text));
        }
        words.extend(texts.iter().cloned());
        return Ok(());
    }
    let mut whole = String::new();
    for piece in &pieces {
        match piece {
            Piece::Text(text) => whole.push_str(text),
            Piece::Parameter(name) => {
                // What is not given takes its word with it.
                let Some(text) = values.get(name.as_str()).and_then(|texts| texts.first()) else {
                    return Ok(());
                };
                whole.push_str(text);
            }
        }
    }
    if let Some(Piece::Parameter(name)) = pieces.first()
        && begins_as_option(&whole)
        && !takes_options(name)
    {
        return Err(refused(name, &whole));
    }
    words.push(whole);
    Ok(())
}
