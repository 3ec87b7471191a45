//! The hosts that a developer's tools use on this machine: the set `@dev`.
//!
//! No name of a host stands in this code. What counts is what the package clients are configured to
//! use, by their files and variables; where they are configured nowhere, what they themselves say;
//! and the remotes of the repository. A file of the workspace never adds a host: it is content of
//! somebody, so what it names is proposed to the owner and no more.

mod address;
mod asked;
mod clients;
mod remotes;
mod workspace;

use std::path::Path;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::facts::{FoundHost, NetworkFacts, Person};
use cofferdam_core::policy::{EffectivePolicy, HostEntry, HostSet};
use cofferdam_core::spec::{Network, Variable};

use super::git::Repository;
use super::surroundings::Surroundings;
use crate::remembered::remembered_hosts;
use address::Address;

/// What is looked at.
pub(super) struct Look<'a> {
    pub(super) surroundings: &'a Surroundings,
    pub(super) data_dir: &'a Path,
    pub(super) policy: &'a EffectivePolicy,
    pub(super) owner: &'a Person,
    /// Whether the caller's variables are the owner's.
    pub(super) is_own: bool,
    pub(super) root: &'a Path,
    pub(super) repository: Option<&'a Repository>,
}

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    dev: Vec<FoundHost>,
    settings: Vec<Variable>,
}

impl Findings {
    /// Notes a host by an address that a client is configured with; gives whether it is one.
    fn note(&mut self, text: &str, origin: &str) -> bool {
        let Some(address) = Address::parse(text) else {
            return false;
        };
        self.note_host(&address, origin);
        true
    }

    fn note_host(&mut self, address: &Address, origin: &str) {
        add(&mut self.dev, address, origin);
    }

    /// Sees to it that a client inside is configured alike, without credentials.
    fn set(&mut self, name: &str, value: &str) {
        let name = BytePath::from(name);
        if !self.settings.iter().any(|one| one.name == name) {
            self.settings.push(Variable {
                name,
                value: BytePath::from(value),
            });
        }
    }
}

/// Adds a host once; loopback is no host of the outside.
fn add(hosts: &mut Vec<FoundHost>, address: &Address, origin: &str) {
    let Some(rule) = address.rule() else { return };
    if !hosts.iter().any(|one| one.rule == rule) {
        hosts.push(FoundHost {
            rule,
            origin: origin.to_owned(),
        });
    }
}

/// Looks, where the policy in effect asks for it.
pub(super) fn look(look: &Look<'_>) -> NetworkFacts {
    if look.policy.network.value != Network::Restricted {
        return NetworkFacts::default();
    }
    let remembered = remembered_hosts(look.data_dir, &BytePath::from(look.root));
    let answered = |rules: Vec<String>| {
        let origin = "answered for this repository";
        let host = |rule| FoundHost {
            rule,
            origin: origin.to_owned(),
        };
        rules.into_iter().map(host).collect()
    };
    let mut facts = NetworkFacts {
        remembered_allow: answered(remembered.allow),
        remembered_deny: answered(remembered.deny),
        ..NetworkFacts::default()
    };
    let remotes = remotes::look(look);
    facts.ssh_remotes.clone_from(&remotes.ssh);
    let entries = look.policy.network_allow.iter();
    if !entries
        .chain(&look.policy.network_deny)
        .any(|one| one.value == HostEntry::Set(HostSet::Dev))
    {
        return facts;
    }
    let mut findings = Findings::default();
    for (address, origin) in &remotes.hosts {
        findings.note_host(address, origin);
    }
    clients::look(look, &mut findings);
    asked::look(look, &mut findings);
    facts.proposed = workspace::look(look.root)
        .into_iter()
        .filter(|one| !findings.dev.iter().any(|known| known.rule == one.rule))
        .collect();
    facts.dev = findings.dev;
    facts.client_settings = findings.settings;
    facts
}

#[cfg(test)]
mod tests {
    use cofferdam_core::policy::{Layer, Sourced};
    use cofferdam_core::spec::Identity;

    use super::*;

    pub(super) fn policy() -> EffectivePolicy {
        let mut policy =
            EffectivePolicy::built_in().with_default_hosts([HostEntry::Set(HostSet::Dev)]);
        policy.network = Sourced::new(Network::Restricted, Layer::BuiltIn);
        policy
    }

    fn found(files: &[(&str, &str)], variables: &[(&str, &str)]) -> NetworkFacts {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        for (path, text) in files {
            let path = base.join(path);
            std::fs::create_dir_all(path.parent().expect("below")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        std::fs::create_dir_all(base.join("work")).expect("made");
        let root = base.join("work");
        let owner = Person {
            identity: Identity {
                uid: 1,
                gid: 1,
                groups: Vec::new(),
            },
            name: "ann".to_owned(),
            home: BytePath::from(base.join("home")),
        };
        let surroundings =
            Surroundings::new(variables.iter().map(|(name, value)| (*name, *value)), &root);
        let repository = super::super::git::find(&root);
        look(&Look {
            surroundings: &surroundings,
            data_dir: &base.join("data"),
            policy: &policy(),
            owner: &owner,
            is_own: true,
            root: &root,
            repository: repository.as_ref(),
        })
    }

    fn rules(hosts: &[FoundHost]) -> Vec<String> {
        hosts
            .iter()
            .filter(|one| !one.origin.contains("/etc"))
            .map(|one| format!("{} ({})", one.rule, one.origin))
            .collect()
    }

    #[test]
    fn configuration_of_each_client_is_read() {
        let facts = found(
            &[
                (
                    "home/.npmrc",
                    "registry=https://u:p@npm.test/api/\n@corp:registry = http://corp.test:8080\n//npm.test/:_authToken=x\n",
                ),
                (
                    "home/.config/pip/pip.conf",
                    "[global]\nindex-url = https://pip.test/simple\nextra-index-url =\n    https://one.test/s\n    https://two.test/s\n",
                ),
                (
                    "home/.cargo/config.toml",
                    "[source.crates-io]\nreplace-with = \"m\"\n[source.m]\nregistry = \"sparse+https://cargo.test/index/\"\n[registries.own]\nindex = \"https://own.test/git\"\n",
                ),
                (
                    "home/.cargo/registry/index/cargo.test-0123456789abcdef/config.json",
                    "{\"dl\": \"https://dl.test/crates\", \"api\": \"https://cargo.test\"}",
                ),
                ("home/.config/go/env", "GOSUMDB=sum.test\n"),
                (
                    "home/.m2/settings.xml",
                    "<settings><mirrors><mirror><url>https://mvn.test/repo</url></mirror></mirrors></settings>",
                ),
                (
                    "home/.config/uv/uv.toml",
                    "[[index]]\nurl = \"https://uv.test/simple\"\n",
                ),
            ],
            &[("GOPROXY", "https://go.test,https://go2.test|direct")],
        );
        insta::assert_snapshot!(rules(&facts.dev).join("\n"), @r"
        npm.test:443 (npm: ~/.npmrc)
        corp.test:8080 (npm: ~/.npmrc)
        pip.test:443 (pip: ~/.config/pip/pip.conf)
        one.test:443 (pip: ~/.config/pip/pip.conf)
        two.test:443 (pip: ~/.config/pip/pip.conf)
        uv.test:443 (uv: ~/.config/uv/uv.toml)
        cargo.test:443 (cargo: ~/.cargo/config.toml)
        own.test:443 (cargo: ~/.cargo/config.toml)
        dl.test:443 (cargo: index cargo.test-0123456789abcdef)
        go.test:443 (go: GOPROXY)
        go2.test:443 (go: GOPROXY)
        sum.test:443 (go: ~/.config/go/env)
        mvn.test:443 (maven: ~/.m2/settings.xml)
        ");
        let settings: Vec<String> = facts
            .client_settings
            .iter()
            .map(|one| format!("{}={}", one.name, one.value))
            .collect();
        insta::assert_snapshot!(settings.join("\n"), @r"
        npm_config_registry=https://npm.test/api/
        npm_config_@corp:registry=http://corp.test:8080
        PIP_INDEX_URL=https://pip.test/simple
        PIP_EXTRA_INDEX_URL=https://one.test/s https://two.test/s
        UV_INDEX=https://uv.test/simple
        GOPROXY=https://go.test,https://go2.test|direct
        GOSUMDB=sum.test
        ");
    }

    #[test]
    fn a_file_of_the_workspace_only_proposes() {
        let facts = found(
            &[
                ("work/.npmrc", "registry=https://evil.test/\n"),
                (
                    "work/package-lock.json",
                    "{\"resolved\": \"https://lock.test/a.tgz\"}",
                ),
                (
                    "work/.cargo/config.toml",
                    "[source.x]\nregistry = \"https://evil2.test/\"\n",
                ),
            ],
            &[],
        );
        assert_eq!(rules(&facts.dev), Vec::<String>::new());
        insta::assert_snapshot!(rules(&facts.proposed).join("\n"), @r"
        evil.test:443 (.npmrc)
        evil2.test:443 (.cargo/config.toml)
        lock.test:443 (package-lock.json)
        ");
    }

    #[test]
    fn remotes_count_by_https_also_where_they_are_reached_by_ssh() {
        let facts = found(
            &[
                ("work/.git/HEAD", "ref: refs/heads/main\n"),
                (
                    "work/.git/config",
                    "[remote \"origin\"]\n\turl = git@forge.test:a/b.git\n[remote \"other\"]\n\turl = ssh://me@forge2.test:2222/a/b\n[remote \"third\"]\n\turl = https://forge3.test/a\n[remote \"local\"]\n\turl = ../elsewhere\n",
                ),
            ],
            &[],
        );
        insta::assert_snapshot!(rules(&facts.dev).join("\n"), @r"
        forge.test:443 (git remote origin)
        forge2.test:443 (git remote other)
        forge3.test:443 (git remote third)
        ");
        let ssh: Vec<&str> = facts
            .ssh_remotes
            .iter()
            .map(|one| one.prefix.as_str())
            .collect();
        assert_eq!(ssh, ["git@forge.test:", "ssh://me@forge2.test:2222/"]);
    }

    #[test]
    fn without_a_restricted_network_nothing_is_looked_at() {
        let mut policy = policy();
        policy.network = Sourced::new(Network::None, Layer::BuiltIn);
        assert_eq!(policy.network_allow.len(), 1);
    }
}
