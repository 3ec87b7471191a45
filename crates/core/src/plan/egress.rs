//! The way out to allowed hosts: which rules there are, and what clients inside are told.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::bytes::BytePath;
use crate::facts::{FoundHost, HostFacts};
use crate::hosts::{Host, HostPattern, HostRule, HostRules, HostVerdict};
use crate::policy::{
    EffectivePolicy, HostEntry, HostSet, NetworkRule, SecretDocument, Sourced, covers, placeholder,
};
use crate::spec::{
    EgressHost, EgressRule, EgressSecret, EgressSpec, EgressTrust, Network, ProviderKind,
    SecretSource,
};

/// Where the proxy listens inside. Every enclosure has a loopback of its own, so one port does for
/// all; it lies below the range from which the kernel hands ports out.
pub const EGRESS_PORT: u16 = 28_657;

/// Where the inside finds the certificates that it trusts, where TLS of a host ends in the proxy.
const BUNDLE_INSIDE: &str = "/run/cofferdam/ca-bundle.pem";

/// What is never asked of the proxy: loopback inside is direct.
const DIRECT: &str = "127.0.0.1,localhost,::1";

/// Plans the way out, where the network is restricted and the provider can hold that.
pub(super) fn egress(
    policy: &EffectivePolicy,
    facts: &HostFacts,
    provider: ProviderKind,
    network: Network,
) -> Option<EgressSpec> {
    if !provider.has_view() || network != Network::Restricted {
        return None;
    }
    let mut allow = expand(&policy.network_allow, facts);
    allow.extend(found(&facts.network.remembered_allow, false));
    let mut deny = expand(&policy.network_deny, facts);
    deny.extend(found(&facts.network.remembered_deny, false));
    let ceiling: Option<Vec<HostRule>> = policy
        .network_ceiling
        .as_ref()
        .map(|ceiling| rules_of(&expand_entries(&ceiling.value, facts)));
    if let Some(ceiling) = &ceiling {
        allow.retain(|host| {
            host.rule
                .parse()
                .is_ok_and(|rule| ceiling.iter().any(|top| covers(top, &rule)))
        });
    }
    let rules = rules(policy, facts);
    let secrets = secrets(policy, facts);
    let trust = (!rules.is_empty() || !secrets.is_empty()).then(|| EgressTrust {
        bundle: BytePath::from(BUNDLE_INSIDE),
        roots: facts.network.roots.clone(),
        more: facts.network.more_roots.clone(),
    });
    Some(EgressSpec {
        port: EGRESS_PORT,
        allow: unique(allow),
        deny: unique(deny),
        ceiling: ceiling.map(|rules| rules.iter().map(ToString::to_string).collect()),
        rules,
        secrets,
        trust,
    })
}

/// Looks the sets of hosts up that rules over requests name.
fn rules(policy: &EffectivePolicy, facts: &HostFacts) -> Vec<EgressRule> {
    let with_hosts = |rule: &NetworkRule| NetworkRule {
        hosts: expand_entries(&parsed(&rule.hosts), facts)
            .into_iter()
            .map(|host| host.rule)
            .collect(),
        ..rule.clone()
    };
    let rules = policy.network_rules.iter().map(|one| EgressRule {
        rule: with_hosts(&one.value),
        origin: one.layer,
    });
    rules.filter(|one| !one.rule.hosts.is_empty()).collect()
}

fn parsed(hosts: &[String]) -> Vec<HostEntry> {
    let hosts = hosts.iter();
    hosts.filter_map(|text| text.parse().ok()).collect()
}

fn secrets(policy: &EffectivePolicy, facts: &HostFacts) -> Vec<EgressSecret> {
    let in_home = |file: &BytePath| match file.as_bytes().strip_prefix(b"~/") {
        Some(rest) => facts.owner.home.join(rest),
        None => file.clone(),
    };
    let source = |secret: &SecretDocument| match (&secret.file, &secret.env, &secret.command) {
        (Some(file), _, _) => Some(SecretSource::File(in_home(file))),
        (_, Some(name), _) => Some(SecretSource::Env(name.clone())),
        (_, _, Some(argv)) => Some(SecretSource::Command {
            argv: argv.clone(),
            timeout_ms: u64::try_from(secret.limit().as_millis()).unwrap_or(u64::MAX),
        }),
        _ => None,
    };
    let secrets = policy.secrets.iter().filter_map(|(name, one)| {
        let secret = &one.value;
        Some(EgressSecret {
            name: name.clone(),
            source: source(secret)?,
            hosts: secret
                .host_rules()
                .iter()
                .map(ToString::to_string)
                .collect(),
            form: secret.form,
            field: secret.field.clone(),
            username: secret.username.clone(),
            always: secret.always,
            origin: one.layer,
        })
    });
    secrets.collect()
}

/// Gives the variables that hold placeholders: those that the policy names, and for a secret that a
/// variable of the caller holds and none names, one of the same name.
pub(super) fn placeholders(policy: &EffectivePolicy) -> Vec<(String, String)> {
    let named = policy.env.secrets.iter();
    let mut variables: Vec<(String, String)> = named
        .map(|(variable, secret)| (variable.clone(), placeholder(&secret.value)))
        .collect();
    for (name, secret) in &policy.secrets {
        let has = policy.env.secrets.values().any(|one| one.value == *name);
        if let (Some(variable), false) = (&secret.value.env, has) {
            variables.push((variable.clone(), placeholder(name)));
        }
    }
    variables
}

/// Variables by which clients are told which certificates to trust.
const TRUST_VARIABLES: &[&str] = &[
    // OpenSSL and what is built on it, Go, and rustls by the machine's roots.
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "CARGO_HTTP_CAINFO",
    "DENO_CERT",
    // Over what a file of its configuration names, which else takes the place of all others.
    "npm_config_cafile",
    "YARN_HTTPS_CA_FILE_PATH",
    "BUNDLE_SSL_CA_CERT",
    "AWS_CA_BUNDLE",
];

fn rules_of(hosts: &[EgressHost]) -> Vec<HostRule> {
    hosts
        .iter()
        .filter_map(|host| host.rule.parse().ok())
        .collect()
}

fn expand(entries: &[Sourced<HostEntry>], facts: &HostFacts) -> Vec<EgressHost> {
    let mut hosts = Vec::new();
    for entry in entries {
        match &entry.value {
            HostEntry::Set(HostSet::Dev) => hosts.extend(found(&facts.network.dev, true)),
            HostEntry::Rule(rule) => hosts.push(EgressHost {
                rule: rule.to_string(),
                origin: entry.layer.as_str().to_owned(),
                site: false,
            }),
        }
    }
    hosts
}

fn expand_entries(entries: &[HostEntry], facts: &HostFacts) -> Vec<EgressHost> {
    let sourced: Vec<Sourced<HostEntry>> = entries
        .iter()
        .map(|entry| Sourced::new(entry.clone(), crate::policy::Layer::Managed))
        .collect();
    expand(&sourced, facts)
}

fn found(hosts: &[FoundHost], site: bool) -> impl Iterator<Item = EgressHost> + '_ {
    hosts
        .iter()
        .filter(|one| one.rule.parse::<HostRule>().is_ok())
        .map(move |one| EgressHost {
            rule: one.rule.clone(),
            origin: one.origin.clone(),
            site,
        })
}

/// Keeps the first of several entries for one rule.
fn unique(hosts: Vec<EgressHost>) -> Vec<EgressHost> {
    let mut kept: Vec<EgressHost> = Vec::with_capacity(hosts.len());
    for host in hosts {
        if !kept.iter().any(|one| one.rule == host.rule) {
            kept.push(host);
        }
    }
    kept
}

/// Tells every client how to get out.
pub(super) fn variables(
    egress: &EgressSpec,
    facts: &HostFacts,
    put: &mut impl FnMut(&str, BytePath),
) {
    for variable in &facts.network.client_settings {
        put(&variable.name.to_text(), variable.value.clone());
    }
    if let Some(trust) = &egress.trust {
        for name in TRUST_VARIABLES {
            put(name, trust.bundle.clone());
        }
    }
    let port = egress.port;
    // An address of SOCKS in ALL_PROXY makes clients fail that have no library for it, at once and
    // also where they would never use it.
    let proxy = format!("http://127.0.0.1:{port}");
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        put(name, BytePath::from(proxy.as_str()));
        put(&name.to_ascii_lowercase(), BytePath::from(proxy.as_str()));
    }
    for name in ["NO_PROXY", "no_proxy"] {
        put(name, BytePath::from(DIRECT));
    }
    // Node's own fetch looks at the variables only where it is told to; older ones ignore this.
    put("NODE_USE_ENV_PROXY", BytePath::from("1"));
    // Yarn from 2 on looks at nothing else.
    for name in ["YARN_HTTP_PROXY", "YARN_HTTPS_PROXY"] {
        put(name, BytePath::from(proxy.as_str()));
    }
    // JAVA_TOOL_OPTIONS would write a line into the output of every Java program.
    let java = format!(
        "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={port} -Dhttps.proxyHost=127.0.0.1 \
         -Dhttps.proxyPort={port} -Dhttp.nonProxyHosts=127.0.0.1|localhost"
    );
    for name in ["MAVEN_OPTS", "GRADLE_OPTS"] {
        put(name, BytePath::from(java.as_str()));
    }
}

/// Gives what git is told, so that remotes by ssh of hosts that are allowed are reached by https.
fn git_settings(egress: &EgressSpec, facts: &HostFacts) -> String {
    let rules = HostRules {
        allow: rules_of(&egress.allow),
        deny: rules_of(&egress.deny),
    };
    let mut prefixes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |host: &str, prefix: String| {
        let known = Host::parse(host.as_bytes())
            .is_ok_and(|host| matches!(rules.decide(&host, 443), HostVerdict::Allowed { .. }));
        let of_host = prefixes.entry(host.to_owned()).or_default();
        if known && !of_host.contains(&prefix) {
            of_host.push(prefix);
        }
    };
    for remote in &facts.network.ssh_remotes {
        add(&remote.host, remote.prefix.clone());
        usual(&remote.host, &mut add);
    }
    // Whoever names a host means it for git, too; what package clients use is no git server.
    for host in egress.allow.iter().filter(|one| !one.site) {
        if let Ok(HostRule {
            pattern: HostPattern::Exact(Host::Name(name)),
            ..
        }) = host.rule.parse()
        {
            usual(name.as_str(), &mut add);
        }
    }
    let mut text = String::new();
    for (host, prefixes) in prefixes.iter().filter(|(_, one)| !one.is_empty()) {
        let _ = writeln!(text, "[url \"https://{host}/\"]");
        for prefix in prefixes {
            let _ = writeln!(text, "\tinsteadOf = \"{prefix}\"");
        }
    }
    text
}

/// Gives the configuration of git for a place with a way out.
pub(super) fn git_config(egress: &EgressSpec, facts: &HostFacts) -> String {
    let mut text = without_ssh(&facts.git_config);
    text.push_str(&git_settings(egress, facts));
    text
}

/// Leaves out rewritings of addresses to ssh, which leads nowhere inside.
fn without_ssh(config: &str) -> String {
    let mut kept = String::with_capacity(config.len());
    let mut leaves_out = false;
    for line in config.lines() {
        if line.starts_with('[') {
            leaves_out = line
                .strip_prefix("[url \"")
                .is_some_and(|base| base.starts_with("ssh://") || !base.contains("://"));
        }
        if !leaves_out {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

fn usual(host: &str, add: &mut impl FnMut(&str, String)) {
    add(host, format!("git@{host}:"));
    add(host, format!("ssh://git@{host}/"));
}
