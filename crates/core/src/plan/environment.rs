//! The environment of a command: an allow-list, and what is put right for the inside.

use std::collections::BTreeMap;

use super::egress::{placeholders, variables};
use super::mounts::{PRIVATE_TMP, inside_home};
use super::reach::{Reach, has_layer, is_cache_shown};
use super::view::WorkspaceView;
use crate::bytes::BytePath;
use crate::facts::HostFacts;
use crate::policy::{EffectivePolicy, Inherit};
use crate::spec::{EgressSpec, ProviderKind, Variable};

/// Where the portable git configuration stands in a mount namespace.
pub(super) const GIT_CONFIG_INSIDE: &str = "/run/cofferdam/gitconfig";

/// Names that every program needs, whatever the policy inherits.
const NEEDED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TERM",
    "COLORTERM",
    "TZ",
];

/// Further names of the built-in list: how to print, how to build, which certificates to trust.
const LISTED: &[&str] = &[
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "CI",
    "SOURCE_DATE_EPOCH",
    "RUST_BACKTRACE",
    "CARGO_TERM_COLOR",
    "CARGO_BUILD_JOBS",
    "CARGO_NET_OFFLINE",
    "RUSTUP_TOOLCHAIN",
    "RUSTFLAGS",
    "MAKEFLAGS",
    "CC",
    "CXX",
    "CFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
    "GOFLAGS",
    "GOTOOLCHAIN",
    "NODE_ENV",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED",
    "PYENV_VERSION",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_DATE",
];

/// Names that say nothing inside, or lead to services of the host, and are never inherited by a
/// general rule.
const NEVER: &[&str] = &[
    "_",
    "SHLVL",
    "PWD",
    "OLDPWD",
    "TMPDIR",
    "TMP",
    "TEMP",
    "TEMPDIR",
    "TMPPREFIX",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "TMUX",
    "TMUX_PANE",
    "STY",
    "DOCKER_HOST",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "GIT_*",
    "XDG_*",
    "COFFERDAM*",
];

/// Parts of a name that make it look like a secret.
const SECRET_PARTS: &[&str] = &[
    "SECRET",
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "PASSCODE",
    "CREDENTIAL",
    "APIKEY",
    "API_KEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "SIGNING_KEY",
    "ENCRYPTION_KEY",
    "AUTH",
    "COOKIE",
    "SESSION_KEY",
    "CONNECTION_STRING",
    "CONNECTIONSTRING",
    "WEBHOOK",
];

/// Whole words of a name, between underscores, that make it look like a secret.
const SECRET_WORDS: &[&str] = &[
    "KEY",
    "PAT",
    "PWD",
    "PASS",
    "PGPASSWORD",
    "DSN",
    "JWT",
    "CERT_PASS",
];

/// Names that hold an address, which often holds a password.
const SECRET_ADDRESSES: &[&str] = &[
    "DATABASE_URL",
    "DB_URL",
    "REDIS_URL",
    "MONGO_URL",
    "MONGODB_URI",
    "AMQP_URL",
    "RABBITMQ_URL",
    "POSTGRES_URL",
    "MYSQL_URL",
    "SENTRY_DSN",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "UV_INDEX_URL",
    "GOPROXY",
];

/// Names that look like a secret and are none.
const HARMLESS: &[&str] = &[
    "PWD",
    "OLDPWD",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
];

/// Tells whether a variable's name looks as if its value were a secret.
pub fn looks_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    if HARMLESS.contains(&upper.as_str()) {
        return false;
    }
    SECRET_ADDRESSES.contains(&upper.as_str())
        || SECRET_PARTS.iter().any(|part| upper.contains(part))
        || upper.split('_').any(|word| SECRET_WORDS.contains(&word))
        || upper.ends_with("PASSWORD")
}

/// Tells whether a name is one that `pattern` means; a trailing `*` stands for any ending.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(stem) => name.starts_with(stem),
        None => name == pattern,
    }
}

fn any_matches(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, name))
}

/// Tells whether a policy lets a variable of the caller come along.
///
/// A secret comes along only where the policy writes its whole name out.
pub fn is_inheritable(policy: &EffectivePolicy, name: &str) -> bool {
    let named = |pattern: &str| {
        if looks_secret(name) {
            pattern == name
        } else {
            matches(pattern, name)
        }
    };
    if policy.env.allow.iter().any(|one| named(&one.value)) {
        return true;
    }
    if looks_secret(name) {
        return false;
    }
    if any_matches(NEEDED, name) {
        return true;
    }
    match policy.env.inherit.value {
        Inherit::None => false,
        Inherit::Listed => any_matches(LISTED, name),
        Inherit::All => any_matches(LISTED, name) || !any_matches(NEVER, name),
    }
}

/// Settings that hold inside whatever a configuration says: nothing that would need the host.
const GIT_SETTINGS: &[(&str, &str)] = &[
    ("commit.gpgsign", "false"),
    ("tag.gpgsign", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
];

/// What of the place itself shows in the environment.
pub(super) struct Surround<'a> {
    pub(super) reach: &'a Reach,
    pub(super) egress: Option<&'a EgressSpec>,
    pub(super) provider: ProviderKind,
    pub(super) scratch: &'a BytePath,
}

/// Builds the environment that every command of an enclosure begins with, sorted by name.
pub(super) fn environment(
    policy: &EffectivePolicy,
    view: &WorkspaceView,
    facts: &HostFacts,
    surround: &Surround<'_>,
) -> Vec<Variable> {
    let &Surround {
        reach,
        egress,
        provider,
        scratch,
    } = surround;
    let mut map: BTreeMap<BytePath, BytePath> = BTreeMap::new();
    let mut put = |name: &str, value: BytePath| map.insert(BytePath::from(name), value);
    let walled = provider != ProviderKind::Direct;
    for variable in &facts.environment {
        let name = variable.name.to_text();
        if is_inheritable(policy, &name) {
            put(&name, variable.value.clone());
        }
    }
    if walled {
        let shown = facts.toolchains.iter().filter(|one| {
            let layered = has_layer(one, policy, facts, provider);
            one.caches.is_empty() || !one.read.is_empty() || is_cache_shown(one, policy, layered)
        });
        for variable in shown.flat_map(|one| &one.environment) {
            put(&variable.name.to_text(), variable.value.clone());
        }
    }
    let (home, tmp, git_config) = match provider {
        ProviderKind::Direct => (facts.owner.home.clone(), scratch.join("tmp"), None),
        ProviderKind::Landlock => (
            scratch.join("home"),
            scratch.join("tmp"),
            Some(scratch.join("gitconfig")),
        ),
        _ => (
            inside_home(facts),
            BytePath::from(PRIVATE_TMP),
            Some(BytePath::from(GIT_CONFIG_INSIDE)),
        ),
    };
    put("HOME", home);
    for name in ["TMPDIR", "TMP", "TEMP"] {
        put(name, tmp.clone());
    }
    put("TMPPREFIX", tmp.join("zsh"));
    put("USER", BytePath::from(facts.owner.name.as_str()));
    put("LOGNAME", BytePath::from(facts.owner.name.as_str()));
    put("PAGER", BytePath::from("cat"));
    put("GIT_PAGER", BytePath::from("cat"));
    put("GIT_TERMINAL_PROMPT", BytePath::from("0"));
    put("COFFERDAM", BytePath::from("1"));
    if let Some(egress) = egress {
        variables(egress, facts, &mut |name, value| {
            put(name, value);
        });
    }
    if let Some(git_config) = git_config {
        if !facts.git_config.is_empty() {
            put("GIT_CONFIG_GLOBAL", git_config);
        }
        put("GIT_CONFIG_NOSYSTEM", BytePath::from("1"));
        put(
            "GIT_CONFIG_COUNT",
            BytePath::from(GIT_SETTINGS.len().to_string()),
        );
        for (number, (key, value)) in GIT_SETTINGS.iter().enumerate() {
            put(&format!("GIT_CONFIG_KEY_{number}"), BytePath::from(*key));
            put(
                &format!("GIT_CONFIG_VALUE_{number}"),
                BytePath::from(*value),
            );
        }
    }
    let path = map
        .get(&BytePath::from("PATH"))
        .cloned()
        .unwrap_or_default();
    let path = clean_path(&path, view, facts, reach, provider);
    map.insert(BytePath::from("PATH"), path);
    let has = |name: &str| map.contains_key(&BytePath::from(name));
    if !has("LANG") && !has("LC_ALL") && !has("LC_CTYPE") {
        map.insert(BytePath::from("LANG"), BytePath::from("C.UTF-8"));
    }
    // A variable that holds a secret of hosts stays outside, whatever lets it in.
    for secret in policy.secrets.values() {
        if let Some(name) = &secret.value.env {
            map.remove(&BytePath::from(name.as_str()));
        }
    }
    if egress.is_some() {
        for (name, placeholder) in placeholders(policy) {
            map.insert(
                BytePath::from(name.as_str()),
                BytePath::from(placeholder.as_str()),
            );
        }
    }
    for (name, value) in &policy.env.set {
        map.insert(
            BytePath::from(name.as_str()),
            BytePath::from(value.value.as_str()),
        );
    }
    map.into_iter()
        .map(|(name, value)| Variable { name, value })
        .collect()
}

/// Keeps the entries of PATH that are absolute, visible inside and not in the workspace.
fn clean_path(
    path: &BytePath,
    view: &WorkspaceView,
    facts: &HostFacts,
    reach: &Reach,
    provider: ProviderKind,
) -> BytePath {
    let mut kept: Vec<BytePath> = Vec::new();
    for entry in path.as_bytes().split(|byte| *byte == b':') {
        let entry = BytePath::from_bytes(entry);
        let in_workspace = entry.is_within(&view.inside)
            || entry.is_within(&view.source)
            || entry.is_within(&facts.workspace.root)
            || facts
                .workspace
                .spellings
                .iter()
                .any(|one| entry.is_within(one));
        let visible = provider == ProviderKind::Direct
            || facts.system.iter().any(|one| entry.is_within(&one.path))
            || reach.grants.iter().any(|one| entry.is_within(&one.target));
        if entry.is_absolute() && !in_workspace && visible && !kept.contains(&entry) {
            kept.push(entry);
        }
    }
    for usual in ["/usr/local/bin", "/usr/bin", "/bin"] {
        let usual = BytePath::from(usual);
        if !kept.contains(&usual) {
            kept.push(usual);
        }
    }
    let entries: Vec<&[u8]> = kept.iter().map(BytePath::as_bytes).collect();
    BytePath::from_bytes(entries.join(&b':'))
}
