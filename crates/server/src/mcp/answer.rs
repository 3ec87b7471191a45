//! Results as a client gets them: the value itself, and text for a model.

use std::fmt::Write as _;

use cofferdam_core::error::Problem;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

/// Gives what a client is answered.
pub(super) fn result(answer: Result<Value, Problem>) -> CallToolResult {
    match answer {
        Ok(value) => {
            let content = vec![ContentBlock::text(text(&value))];
            let mut result = if is_refusal(&value) {
                CallToolResult::error(content)
            } else {
                CallToolResult::success(content)
            };
            result.structured_content = Some(value);
            result
        }
        Err(problem) => {
            let mut result =
                CallToolResult::error(vec![ContentBlock::text(problem_text(&problem))]);
            result.structured_content = Some(json!({"error": problem}));
            result
        }
    }
}

/// Tells whether what was asked for did not happen. A command that ran and failed did happen.
fn is_refusal(value: &Value) -> bool {
    let value = value.get("result").unwrap_or(value);
    let status = value.get("status").and_then(Value::as_str);
    matches!(status, Some("error" | "denied"))
}

fn problem_text(problem: &Problem) -> String {
    let mut text = format!("{}: {}", problem.code, problem.message);
    if let Some(hint) = &problem.hint {
        let _ = write!(text, "\n{hint}");
    }
    text
}

/// Tells a result for a model or a person: what it says itself, the output of a command with how it
/// ended, or the whole as JSON.
pub fn text(value: &Value) -> String {
    if let Some(inner) = value.get("result").filter(|one| one.is_object()) {
        return text(inner);
    }
    let of = |name: &str| value.get(name).and_then(Value::as_str);
    if let Some(text) = of("text") {
        return text.to_owned();
    }
    let (Some(output), Some(status)) = (of("output"), of("status")) else {
        return value.to_string();
    };
    let mut text = output.trim_end().to_owned();
    if !text.is_empty() {
        text.push('\n');
    }
    let _ = write!(text, "[{status}");
    if let Some(code) = value.get("return_code").and_then(Value::as_i64) {
        let _ = write!(text, ", exit code {code}");
    }
    if let Some(signal) = of("signal") {
        let _ = write!(text, ", {signal}");
    }
    if let Some(elapsed) = value.get("elapsed_ms").and_then(Value::as_u64) {
        let _ = write!(text, ", {elapsed} ms");
    }
    if let Some(id) = of("command_id").filter(|_| status == "running") {
        let _ = write!(text, ", {id}");
    }
    if value.get("truncated") == Some(&Value::Bool(true)) {
        text.push_str(", only the end of the output");
    }
    text.push(']');
    if let Some(error) = value.get("error").and_then(|error| error.get("message")) {
        let _ = write!(text, "\n{}", error.as_str().unwrap_or_default());
    }
    for denial in value
        .get("denials")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let part = |name: &str| denial.get(name).and_then(Value::as_str).unwrap_or_default();
        let _ = write!(text, "\ndenied: {}; {}", part("subject"), part("instead"));
    }
    for hint in value
        .get("hints")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let said = hint.get("text").and_then(Value::as_str).unwrap_or_default();
        let _ = write!(text, "\nperhaps: {said}");
    }
    text
}

#[cfg(test)]
mod tests {
    use cofferdam_core::error::ErrorCode;

    use super::*;

    #[test]
    fn a_command_is_told_with_its_end() {
        let value = json!({
            "status": "failed", "output": "no\n", "return_code": 2, "elapsed_ms": 7,
            "denials": [{"subject": "/etc", "instead": "write the workspace"}],
        });
        let told = result(Ok(value));
        assert_eq!(told.is_error, Some(false));
        insta::assert_snapshot!(told.content[0].as_text().expect("text").text, @r"
        no
        [failed, exit code 2, 7 ms]
        denied: /etc; write the workspace
        ");
    }

    #[test]
    fn a_refusal_is_an_error_with_its_code() {
        let problem = Problem::new(ErrorCode::InvalidRequest, "no").with_hint("yes");
        let told = result(Err(problem));
        assert_eq!(told.is_error, Some(true));
        let code = &told.structured_content.expect("a value")["error"]["code"];
        assert_eq!(code, "invalid_request");
        let denied = result(Ok(json!({"status": "denied", "output": ""})));
        assert_eq!(denied.is_error, Some(true));
    }
}
