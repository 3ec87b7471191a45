//! Reading a tool from text, with errors that name the key.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::fill::{Piece, pieces, texts};
use super::{ParameterKind, TOOL_SCHEMA, Tool};
use crate::error::{ErrorCode, Problem};
use crate::policy::unknown_key;

/// Gives the JSON Schema of a tool's file.
pub fn tool_schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<Tool>().to_value()
}

fn invalid(field: &str, text: impl std::fmt::Display) -> Problem {
    Problem::new(ErrorCode::PolicyInvalidValue, format!("{field}: {text}")).with_field(field)
}

/// Reads and checks a tool; `origin` names it in errors.
///
/// # Errors
///
/// `policy_unreadable` for what is not TOML, `policy_unknown_key` with the nearest known key, and
/// `policy_invalid_value`.
pub fn read_tool(text: &str, origin: &str) -> Result<Tool, Problem> {
    let in_file = |problem: Problem| Problem {
        message: format!("{origin}: {}", problem.message),
        ..problem
    };
    let unreadable = |error: String| {
        Problem::new(
            ErrorCode::PolicyUnreadable,
            format!("{origin} is not valid TOML: {}", error.trim_end()),
        )
    };
    let table: toml::Table = toml::from_str(text).map_err(|error| unreadable(error.to_string()))?;
    let value = serde_json::to_value(table).map_err(|error| unreadable(error.to_string()))?;
    let schema = tool_schema();
    unknown_key(&value, &schema, &schema, "").map_err(in_file)?;
    let tool: Tool = serde_json::from_value(value).map_err(|error| {
        in_file(Problem::new(
            ErrorCode::PolicyInvalidValue,
            error.to_string(),
        ))
    })?;
    check(&tool).map_err(in_file)?;
    Ok(tool)
}

fn is_name(name: &str) -> bool {
    let sign = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !name.is_empty() && name.len() <= 48 && name.bytes().all(sign)
}

fn check(tool: &Tool) -> Result<(), Problem> {
    if tool.schema != TOOL_SCHEMA {
        return Err(invalid(
            "schema",
            format!("this program reads {TOOL_SCHEMA}"),
        ));
    }
    if !is_name(&tool.name) {
        return Err(invalid(
            "name",
            "small letters, digits and _ are taken, 48 at most",
        ));
    }
    if tool
        .timeout
        .is_some_and(|one| !(one.is_finite() && one > 0.0))
    {
        return Err(invalid(
            "timeout",
            "a number of seconds above zero is taken",
        ));
    }
    if tool.hints.read_only == Some(true) && tool.hints.destructive == Some(true) {
        return Err(invalid(
            "hints",
            "what only reads destroys nothing: say one of them",
        ));
    }
    match tool.argv.first().map(|program| pieces(program)) {
        Some(Some(pieces)) if matches!(pieces.as_slice(), [Piece::Text(_)]) => {}
        _ => {
            return Err(invalid(
                "argv",
                "the program is written out, not a parameter",
            ));
        }
    }
    let mut used = Vec::new();
    for word in &tool.argv {
        let Some(pieces) = pieces(word) else {
            return Err(invalid(
                "argv",
                format!("{word:?} has a brace that is not closed"),
            ));
        };
        let alone = pieces.len() == 1;
        for piece in pieces {
            let Piece::Parameter(name) = piece else {
                continue;
            };
            let Some(parameter) = tool.parameters.get(&name) else {
                return Err(invalid("argv", format!("{{{name}}} is no parameter")));
            };
            match parameter.kind {
                ParameterKind::Strings if !alone => {
                    return Err(invalid(
                        "argv",
                        format!("the list {{{name}}} is a word of its own"),
                    ));
                }
                ParameterKind::Boolean if alone => {
                    return Err(invalid(
                        "argv",
                        format!(
                            "{{{name}}} is yes or no: write it behind a word, as --fix{{{name}}}"
                        ),
                    ));
                }
                _ => used.push(name),
            }
        }
    }
    for (name, parameter) in &tool.parameters {
        if !is_name(name) {
            return Err(invalid("parameters", format!("{name:?} is no name")));
        }
        if !used.contains(name) {
            return Err(invalid("parameters", format!("argv does not use {name}")));
        }
        if let Some(default) = &parameter.default {
            texts(name, parameter, default)
                .map_err(|problem| invalid("parameters", problem.message))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fill_tool;
    use super::*;
    use crate::bytes::BytePath;

    const TOOL: &str = r#"
schema = 1
name = "lint"
description = "lints files"
argv = ["ruff", "check", "--fix{fix}", "--line-length={width}", "--", "{paths}"]
[parameters.fix]
type = "boolean"
description = "repair what can be"
[parameters.width]
type = "integer"
description = "longest line"
minimum = 40
default = 100
[parameters.paths]
type = "strings"
description = "files"
required = true
"#;

    fn filled(arguments: &Value) -> Result<Vec<String>, String> {
        let tool = read_tool(TOOL, "lint").expect("a tool");
        let arguments = arguments.as_object().expect("an object");
        fill_tool(&tool, arguments)
            .map(|words| {
                words
                    .iter()
                    .map(|word| word.to_text().into_owned())
                    .collect()
            })
            .map_err(|problem| problem.message)
    }

    #[test]
    fn row_122_arguments_reach_argv_unchanged() {
        let nasty = "a b; rm -rf / $(x) `y` {fix} 'q' \"z\" \n ü";
        let words = filled(&json!({"paths": [nasty, "-x"], "fix": true})).expect("words");
        assert_eq!(
            words,
            [
                "ruff",
                "check",
                "--fix",
                "--line-length=100",
                "--",
                nasty,
                "-x"
            ]
        );
        let words = filled(&json!({"paths": [], "width": 40})).expect("words");
        assert_eq!(words, ["ruff", "check", "--line-length=40", "--"]);
    }

    #[test]
    fn row_122_a_bad_argument_is_refused() {
        for arguments in [
            json!({}),
            json!({"paths": "a"}),
            json!({"paths": [1]}),
            json!({"paths": ["a\u{0}"]}),
            json!({"paths": [], "width": 1}),
            json!({"paths": [], "width": 1.5}),
            json!({"paths": [], "width": "40"}),
            json!({"paths": [], "fix": "yes"}),
            json!({"paths": [], "other": 1}),
        ] {
            assert!(filled(&arguments).is_err(), "{arguments}");
        }
        let refused = filled(&json!({"paths": [], "width": 1})).expect_err("out of bounds");
        assert!(refused.contains("width"), "{refused}");
        let open = TOOL.replace("\"--\", ", "");
        let tool = read_tool(&open, "lint").expect("a tool");
        let arguments = json!({"paths": ["--config=/evil"]});
        let refused = fill_tool(&tool, arguments.as_object().expect("an object"));
        assert_eq!(
            refused.expect_err("an option").field.as_deref(),
            Some("arguments.paths")
        );
    }

    #[test]
    fn a_word_that_begins_with_an_argument_is_no_option() {
        let text = "schema = 1\nname = \"a\"\ndescription = \"a\"\nargv = [\"cat\", \"{name}.txt\"]\n[parameters.name]\ntype = \"string\"\ndescription = \"a\"\nrequired = true\n";
        let tool = read_tool(text, "a").expect("a tool");
        let with = |name: &str| {
            let arguments = json!({"name": name});
            fill_tool(&tool, arguments.as_object().expect("an object"))
        };
        assert!(with("-rf").is_err());
        assert_eq!(
            with("b").expect("words"),
            ["cat", "b.txt"].map(BytePath::from)
        );
    }

    #[test]
    fn an_unknown_key_of_a_parameter_names_the_nearest() {
        let text = TOOL.replacen("minimum = 40", "minimun = 40", 1);
        let problem = read_tool(&text, "lint").expect_err("unknown");
        assert_eq!(problem.code, ErrorCode::PolicyUnknownKey);
        assert_eq!(problem.hint.as_deref(), Some("did you mean \"minimum\"?"));
    }

    #[test]
    fn a_template_that_cannot_be_filled_is_refused_when_it_is_read() {
        for (old, new) in [
            ("schema = 1", "schema = 2"),
            ("\"lint\"", "\"Lint it\""),
            ("\"ruff\"", "\"{paths}\""),
            ("\"{paths}\"", "\"a{paths}\""),
            ("\"{paths}\"", "\"{paths\""),
            ("\"{paths}\"", "\"{files}\""),
            ("\"--fix{fix}\"", "\"{fix}\""),
            ("default = 100", "default = 1"),
            ("minimum = 40", "minimun = 40"),
        ] {
            let text = TOOL.replacen(old, new, 1);
            assert_ne!(text, TOOL);
            assert!(read_tool(&text, "lint").is_err(), "{new}");
        }
    }

    #[test]
    fn the_schema_of_arguments_says_what_is_taken() {
        let tool = read_tool(TOOL, "lint").expect("a tool");
        let schema = tool.argument_schema();
        assert_eq!(schema["required"], json!(["paths"]));
        assert_eq!(schema["properties"]["width"]["minimum"], 40);
        assert_eq!(schema["properties"]["paths"]["items"]["type"], "string");
    }
}
