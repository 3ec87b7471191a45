//! Secrets that the owner lends to hosts and never to commands.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::document::Seconds;
use crate::bytes::BytePath;
use crate::error::{ErrorCode, Problem};
use crate::hosts::HostRule;

/// What a placeholder begins with; the name of the secret follows.
pub const PLACEHOLDER_PREFIX: &str = "cofferdam-secret-";

/// How long a command has that gives a secret, unless the policy says it.
const LIMIT: Duration = Duration::from_secs(30);

/// The longest name of a secret, in bytes.
const MAX_NAME: usize = 64;

/// Fields of a request that say what it is or where it goes, and never hold a secret.
const NO_FIELDS: &[&str] = &[
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "expect",
    "upgrade",
    "te",
    "trailer",
    "accept-encoding",
    "range",
];

/// A secret: where its value is found outside, which hosts it is for, and how they are told it.
///
/// Inside stands a placeholder, `cofferdam-secret-NAME`. In requests to these hosts the proxy puts
/// the value in its place, over verified TLS only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretDocument {
    /// A file that holds it, absolute or from `~/`. This, `env` or `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<BytePath>,
    /// A variable of the caller that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// A program and its arguments: what it prints is the value. It runs as the owner, without walls,
    /// once per process of Cofferdam and only when the secret is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Seconds that `command` has; 30 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Seconds>,
    /// The hosts that are told it: `api.example.com`, `*.example.com`, with or without `:PORT`.
    pub hosts: Vec<String>,
    /// Where in a request it stands; `bearer` unless said.
    #[serde(default, rename = "as", skip_serializing_if = "SecretForm::is_bearer")]
    pub form: SecretForm,
    /// The name of the header, or of the parameter of the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The user's name beside it, where it is put in by `always` as `basic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Whether it is put in also where a request has neither the placeholder nor anything else in
    /// that place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub always: bool,
}

/// Where in a request a secret stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SecretForm {
    /// In `Authorization`, behind a word such as `Bearer`.
    #[default]
    Bearer,
    /// In `Authorization`, as the password of `Basic`.
    Basic,
    /// In the header that `field` names.
    Header,
    /// In the parameter of the query that `field` names.
    Query,
}

impl SecretForm {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde hands over a reference"
    )]
    fn is_bearer(&self) -> bool {
        *self == Self::Bearer
    }

    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bearer => "bearer",
            Self::Basic => "basic",
            Self::Header => "header",
            Self::Query => "query",
        }
    }
}

fn invalid(name: &str, text: impl std::fmt::Display) -> Problem {
    Problem::new(
        ErrorCode::PolicyInvalidValue,
        format!("secrets.{name} {text}"),
    )
    .with_field("secrets")
}

/// Gives what stands inside in the place of a secret.
pub fn placeholder(name: &str) -> String {
    format!("{PLACEHOLDER_PREFIX}{name}")
}

impl SecretDocument {
    /// Gives how long its command has.
    pub fn limit(&self) -> Duration {
        self.timeout
            .and_then(|timeout| Duration::try_from_secs_f64(timeout.get()).ok())
            .unwrap_or(LIMIT)
    }

    /// Gives the hosts, which were checked with the document.
    pub fn host_rules(&self) -> Vec<HostRule> {
        let rules = self.hosts.iter();
        rules.filter_map(|text| text.parse().ok()).collect()
    }

    /// Refuses what is no secret.
    pub(super) fn check(&self, name: &str) -> Result<(), Problem> {
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(letters) {
            return Err(invalid(name, "has no name that a placeholder can hold")
                .with_hint("letters, digits, _ and -, at most 64"));
        }
        let sources = [
            self.file.is_some(),
            self.env.is_some(),
            self.command.is_some(),
        ];
        if sources.iter().filter(|one| **one).count() != 1 {
            return Err(invalid(name, "has file, env or command, one of them"));
        }
        if let Some(file) = &self.file {
            let bytes = file.as_bytes();
            let parts = || bytes.split(|byte| *byte == b'/');
            let is_whole = file.is_absolute() || bytes.starts_with(b"~/");
            if !is_whole || bytes.contains(&0) || parts().any(|part| part == b"..") {
                return Err(invalid(name, format_args!("has the file {file}"))
                    .with_hint("write the path out from / or from ~/"));
            }
        }
        if let Some(env) = &self.env {
            let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if env.is_empty() || !env.bytes().all(letters) {
                return Err(invalid(
                    name,
                    format_args!("has env = {env:?}, which is no name of a variable"),
                ));
            }
        }
        let is_blank = |command: &Vec<String>| command.first().is_none_or(String::is_empty);
        if self.command.as_ref().is_some_and(is_blank) {
            return Err(invalid(name, "has a command that names no program"));
        }
        if self.timeout.is_some() && self.command.is_none() {
            return Err(invalid(name, "has a timeout, which is a command's"));
        }
        if self.hosts.is_empty() {
            return Err(invalid(name, "names no host"));
        }
        for text in &self.hosts {
            text.parse::<HostRule>().map_err(|error| {
                let problem = invalid(name, format_args!("has a host that is none: {error}"));
                match error.hint() {
                    Some(hint) => problem.with_hint(hint),
                    None => problem.with_hint("each host is named: sets such as @dev are not"),
                }
            })?;
        }
        self.check_form(name)
    }

    fn check_form(&self, name: &str) -> Result<(), Problem> {
        let word = self.form.as_str();
        match (self.form, &self.field) {
            (SecretForm::Header | SecretForm::Query, None) => {
                return Err(invalid(name, format_args!("is a {word} and has no field"))
                    .with_hint("field is the name of the header or of the parameter"));
            }
            (SecretForm::Bearer | SecretForm::Basic, Some(_)) => {
                return Err(
                    invalid(name, format_args!("has a field, and {word} needs none"))
                        .with_hint("say as = \"header\" or as = \"query\""),
                );
            }
            (SecretForm::Header, Some(field)) => {
                let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
                let low = field.to_ascii_lowercase();
                if field.is_empty()
                    || !field.bytes().all(is_token)
                    || NO_FIELDS.contains(&low.as_str())
                {
                    return Err(invalid(
                        name,
                        format_args!("has field = {field:?}, which is no header for a secret"),
                    ));
                }
            }
            (SecretForm::Query, Some(field)) => {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
                if field.is_empty() || !field.bytes().all(is_plain) {
                    return Err(invalid(
                        name,
                        format_args!("has field = {field:?}, which is no plain parameter"),
                    ));
                }
            }
            (SecretForm::Bearer | SecretForm::Basic, None) => {}
        }
        match &self.username {
            Some(_) if self.form != SecretForm::Basic => {
                Err(invalid(name, "has a username, which only basic has"))
            }
            Some(user) if user.contains(':') || user.chars().any(char::is_control) => {
                Err(invalid(name, "has a username that no request can hold"))
            }
            None if self.form == SecretForm::Basic && self.always => Err(invalid(
                name,
                "is basic and always put in, and has no username",
            )),
            _ => Ok(()),
        }
    }
}
