//! What is refused when a policy is read: fields that nothing enforces, values that contradict.

use super::document::{CommandDecision, CommandRule, Permission, PolicyDocument, ProviderChoice};
use super::effective::Layer;
use super::hosts::HostEntry;
use crate::bytes::BytePath;
use crate::commands::check_command_rules;
use crate::error::{ErrorCode, Problem};
use crate::ports::{PublishRule, ReachAddress};
use crate::spec::{Access, Network, ProviderKind};

fn unsupported(field: &str, instead: &str) -> Problem {
    Problem::new(
        ErrorCode::UnsupportedField,
        format!("this version does not enforce {field}"),
    )
    .with_field(field)
    .with_hint(instead)
}

fn contradiction(field: &str, text: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::PolicyContradiction, text).with_field(field)
}

fn invalid(field: &str, text: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::PolicyInvalidValue, text).with_field(field)
}

fn is_filled<T>(list: Option<&Vec<T>>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}

/// Refuses what this version does not enforce and what contradicts itself.
///
/// # Errors
///
/// `unsupported_field`, `policy_contradiction`, `policy_invalid_value`, each with the field.
pub fn check_document(document: &PolicyDocument, layer: Layer) -> Result<(), Problem> {
    check_support(document)?;
    if document.profile.is_some() && layer != Layer::CommandLine {
        return Err(unsupported(
            "profile",
            "name it on the command line: --profile NAME",
        ));
    }
    check_values(document, layer)?;
    check_contradictions(document, layer)
}

fn check_support(document: &PolicyDocument) -> Result<(), Problem> {
    if is_filled(document.network_deny.as_ref()) && document.network == Some(Network::Full) {
        return Err(unsupported(
            "network_deny",
            "use network = \"restricted\": only there a host is told from another",
        ));
    }
    if is_filled(document.seed.as_ref()) {
        return Err(unsupported(
            "seed",
            "name ignored files that a fresh tree needs in .worktreeinclude",
        ));
    }
    if is_filled(document.network_rules.as_ref()) && document.network == Some(Network::Full) {
        return Err(unsupported(
            "network_rules",
            "use network = \"restricted\": only there requests are seen",
        ));
    }
    if let Some(limits) = &document.limits
        && limits.disk.is_some()
    {
        return Err(unsupported(
            "limits.disk",
            "put the workspace on a file system of its own",
        ));
    }
    if let Some(allow) = &document.allow
        && is_filled(allow.devices.as_ref())
    {
        return Err(unsupported(
            "allow.devices",
            "run what needs the device by `direct`",
        ));
    }
    Ok(())
}

fn check_path(field: &str, path: &BytePath) -> Result<(), Problem> {
    let bytes = path.as_bytes();
    if bytes.is_empty() {
        return Err(invalid(field, format!("{field} holds an empty path")));
    }
    if bytes.contains(&0) {
        return Err(invalid(
            field,
            format!("{field} holds a path with a zero byte"),
        ));
    }
    if bytes
        .split(|byte| *byte == b'/')
        .any(|piece| piece == b"..")
    {
        return Err(invalid(
            field,
            format!("{field} holds {path}, and .. is not followed"),
        )
        .with_hint("write the path out from / or from ~/"));
    }
    Ok(())
}

fn check_name(field: &str, name: &str) -> Result<(), Problem> {
    let stem = name.strip_suffix('*').unwrap_or(name);
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if stem.bytes().all(good) && !name.is_empty() && name != "*" {
        return Ok(());
    }
    let text = format!("{field} holds {name:?}, which is no name of a variable");
    Err(invalid(field, text).with_hint("letters, digits and _, with * at the end only"))
}

fn check_values(document: &PolicyDocument, layer: Layer) -> Result<(), Problem> {
    for (field, paths) in [
        ("read", &document.read),
        ("write", &document.write),
        ("deny_read", &document.deny_read),
    ] {
        for path in paths.iter().flatten() {
            check_path(field, path)?;
        }
    }
    for (field, paths) in [("read", &document.read), ("write", &document.write)] {
        if let Some(path) = paths.iter().flatten().find(|path| has_pattern(path)) {
            return Err(invalid(field, format!("{field} holds the pattern {path}"))
                .with_hint("patterns are understood in deny_read only; name the directory"));
        }
    }
    for path in document
        .deny_read
        .iter()
        .flatten()
        .filter(|path| has_pattern(path))
    {
        let text = path.to_text();
        if path.is_absolute() || text.starts_with("~/") {
            return Err(invalid(
                "deny_read",
                format!("deny_read holds the pattern {path} outside of the workspace"),
            )
            .with_hint("patterns are relative to the workspace"));
        }
        if let Err(error) = globset::GlobBuilder::new(&text)
            .literal_separator(true)
            .build()
        {
            return Err(invalid("deny_read", format!("deny_read: {error}")));
        }
    }
    for rule in document.protect.iter().flatten() {
        check_path("protect", &rule.path)?;
    }
    for (field, entries) in [
        ("network_allow", &document.network_allow),
        ("network_deny", &document.network_deny),
    ] {
        for text in entries.iter().flatten() {
            text.parse::<HostEntry>()
                .map_err(|problem| problem.with_field(field))?;
        }
    }
    for rule in document.network_rules.iter().flatten() {
        rule.check()?;
    }
    for (name, secret) in document.secrets.iter().flatten() {
        secret.check(name)?;
    }
    if let Some(rules) = &document.commands {
        check_command_rules(rules, layer)?;
    }
    if let Some(reviewer) = &document.reviewer {
        reviewer.check()?;
    }
    for text in document.reach.iter().flatten() {
        text.parse::<ReachAddress>()?;
    }
    for text in document.publish.iter().flatten() {
        text.parse::<PublishRule>()?;
    }
    if let Some(env) = &document.env {
        for name in env.allow.iter().flatten() {
            check_name("env.allow", name)?;
        }
        for name in env.secrets.iter().flatten().map(|(name, _)| name) {
            check_name("env.secrets", name)?;
            if name.contains('*') || env.set.iter().flatten().any(|(set, _)| set == name) {
                return Err(invalid(
                    "env.secrets",
                    format!("env.secrets cannot set {name:?}, or env.set does"),
                ));
            }
        }
        for (name, value) in env.set.iter().flatten() {
            check_name("env.set", name)?;
            if name.contains('*') {
                return Err(invalid("env.set", format!("env.set cannot set {name:?}")));
            }
            if value.contains('\0') {
                return Err(invalid(
                    "env.set",
                    format!("env.set.{name} holds a zero byte"),
                ));
            }
        }
    }
    if let Some(allow) = &document.allow {
        for path in allow.sockets.iter().flatten() {
            check_path("allow.sockets", path)?;
        }
    }
    Ok(())
}

/// Tells whether a path holds a character of patterns.
pub(crate) fn has_pattern(path: &BytePath) -> bool {
    path.as_bytes().iter().any(|byte| b"*?[]{}".contains(byte))
}

fn check_contradictions(document: &PolicyDocument, layer: Layer) -> Result<(), Problem> {
    if document.provider == Some(ProviderChoice::Direct)
        && document
            .permission
            .is_some_and(|one| one != Permission::Unrestricted)
    {
        return Err(contradiction(
            "permission",
            "permission holds changes back by walls, and provider = \"direct\" has none",
        )
        .with_hint("leave provider out, or say permission = \"unrestricted\""));
    }
    if document.require.is_some() && layer != Layer::Managed {
        return Err(contradiction(
            "require",
            format!("only the managed policy may require, this is the {layer} layer"),
        ));
    }
    let names_secrets = document.secrets.iter().flatten().next().is_some()
        || document
            .env
            .as_ref()
            .is_some_and(|env| env.secrets.iter().flatten().next().is_some());
    if layer == Layer::Managed && names_secrets {
        return Err(contradiction(
            "secrets",
            "the managed policy grants nothing, and it names secrets",
        )
        .with_hint("a secret stands in the user's policy"));
    }
    let allows = |rule: &CommandRule| rule.decision == CommandDecision::Allow;
    if layer == Layer::Managed && document.commands.iter().flatten().any(allows) {
        return Err(contradiction(
            "commands",
            "the managed policy grants nothing, and a rule about commands allows",
        )
        .with_hint("say ask or deny; what is to be allowed stands in the user's policy"));
    }
    for denied in document.deny_read.iter().flatten() {
        for (field, paths) in [("read", &document.read), ("write", &document.write)] {
            if paths.iter().flatten().any(|path| path == denied) {
                return Err(contradiction(
                    field,
                    format!("{denied} stands in both {field} and deny_read"),
                ));
            }
        }
    }
    let allows = document.network_allow.iter().flatten().next().is_some();
    if let (Some(Network::None), true) = (document.network, allows) {
        return Err(contradiction(
            "network_allow",
            "network none allows no host, and network_allow names some".to_owned(),
        ));
    }
    for rule in document.protect.iter().flatten() {
        if document
            .write
            .iter()
            .flatten()
            .any(|path| *path == rule.path)
        {
            let path = &rule.path;
            return Err(contradiction(
                "protect",
                format!("{path} stands in both write and protect"),
            ));
        }
    }
    if let Some(fallback) = &document.fallback {
        if fallback.contains(&ProviderKind::Memory) {
            return Err(contradiction(
                "fallback",
                "memory runs nothing and cannot take the place of a provider that does",
            ));
        }
        if let Some(own) = document.provider.and_then(ProviderChoice::named)
            && fallback.contains(&own)
        {
            return Err(contradiction(
                "fallback",
                format!("{own} cannot take its own place"),
            ));
        }
    }
    // On a command line the same is `unenforceable`: the plan says so, with the flag to leave out.
    if matches!(layer, Layer::Managed | Layer::User | Layer::Project) {
        check_provider(document)?;
    }
    Ok(())
}

fn check_provider(document: &PolicyDocument) -> Result<(), Problem> {
    match document.provider {
        Some(ProviderChoice::Direct) => {
            if let Some(network @ (Network::None | Network::Restricted)) = document.network {
                let word = network.as_str();
                return Err(contradiction(
                    "network",
                    format!("direct has no walls and cannot hold network = \"{word}\""),
                ));
            }
            if document.workspace == Some(Access::Read) {
                return Err(contradiction(
                    "workspace",
                    "direct has no walls and cannot hold the workspace read-only",
                ));
            }
            if is_filled(document.deny_read.as_ref()) {
                return Err(contradiction(
                    "deny_read",
                    "direct has no walls and cannot deny a path",
                ));
            }
            Ok(())
        }
        Some(ProviderChoice::Landlock) if document.network == Some(Network::Restricted) => {
            Err(contradiction(
                "network",
                "landlock cannot tell allowed hosts apart and cannot hold network = \"restricted\"",
            ))
        }
        _ => Ok(()),
    }
}
