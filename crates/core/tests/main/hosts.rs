//! The way out of a restricted network: which hosts a plan lists, and what clients are told.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::facts::{FoundHost, HostFacts, SshRemote};
use cofferdam_core::plan::{WorkspaceView, prepare};
use cofferdam_core::policy::{EffectivePolicy, Layer};
use cofferdam_core::spec::{EnclosureSpec, Mount};

use crate::fixture::{facts, lay, owner, path};

fn plan(policy: &EffectivePolicy, facts: &HostFacts) -> Result<EnclosureSpec, Problem> {
    let view = WorkspaceView::live(&facts.workspace);
    prepare(policy, &view, facts, &path("/data/scratch/one"))
}

fn found(rule: &str) -> FoundHost {
    FoundHost {
        rule: rule.to_owned(),
        origin: format!("origin of {rule}"),
    }
}

fn with_hosts() -> HostFacts {
    let mut facts = facts(1000);
    facts.network.dev = vec![found("npm.test:443"), found("forge.test:443")];
    facts.network.remembered_allow = vec![found("asked.test:443")];
    facts.network.remembered_deny = vec![found("never.test:443")];
    facts.network.ssh_remotes = vec![SshRemote {
        host: "forge.test".to_owned(),
        prefix: "me@forge.test:".to_owned(),
    }];
    facts
}

fn allowed(spec: &EnclosureSpec) -> Vec<String> {
    let egress = spec.egress.as_ref().expect("a way out");
    egress
        .allow
        .iter()
        .map(|host| format!("{} {}", host.rule, host.site))
        .collect()
}

#[test]
fn a_plan_lists_what_the_policy_names_and_what_was_found() {
    let policy = owner(
        "network = \"restricted\"\nnetwork_allow = [\"@dev\", \"a.test\"]\nnetwork_deny = [\"b.test\"]",
    );
    let spec = plan(&policy, &with_hosts()).expect("a plan");
    assert_eq!(
        allowed(&spec),
        [
            "npm.test:443 true",
            "forge.test:443 true",
            "a.test false",
            "asked.test:443 false"
        ]
    );
    let egress = spec.egress.as_ref().expect("as above");
    let denied: Vec<&str> = egress.deny.iter().map(|one| one.rule.as_str()).collect();
    assert_eq!(denied, ["b.test", "never.test:443"]);
}

#[test]
fn without_the_set_nothing_that_was_found_is_listed() {
    let policy = owner("network = \"restricted\"");
    let spec = plan(&policy, &with_hosts()).expect("a plan");
    assert_eq!(allowed(&spec), ["asked.test:443 false"]);
    for text in ["network = \"none\"", "network = \"full\""] {
        let spec = plan(&owner(text), &with_hosts()).expect("a plan");
        assert_eq!(spec.egress, None, "{text}");
        assert!(
            !spec
                .environment
                .iter()
                .any(|one| one.name == path("HTTPS_PROXY"))
        );
    }
}

#[test]
fn the_managed_list_bounds_sets_and_answers_too() {
    let policy = lay(&[
        (
            Layer::Managed,
            "network_allow = [\"npm.test\", \"**.corp.test\"]",
        ),
        (
            Layer::User,
            "network = \"restricted\"\nnetwork_allow = [\"@dev\", \"x.corp.test\"]",
        ),
    ])
    .expect("within");
    let spec = plan(&policy, &with_hosts()).expect("a plan");
    assert_eq!(allowed(&spec), ["npm.test:443 true", "x.corp.test false"]);
}

#[test]
fn git_reaches_remotes_by_ssh_over_https() {
    let mut facts = with_hosts();
    facts.git_config =
        "[user]\n\tname = A\n[url \"git@forge.test:\"]\n\tinsteadOf = https://forge.test/\n"
            .to_owned();
    let policy = owner("network = \"restricted\"\nnetwork_allow = [\"@dev\", \"own.test\"]");
    let spec = plan(&policy, &facts).expect("a plan");
    let config = spec
        .mounts
        .iter()
        .find_map(|mount| match mount {
            Mount::Content { target, content } if target.to_text().ends_with("gitconfig") => {
                Some(content.to_string())
            }
            _ => None,
        })
        .expect("a configuration");
    insta::assert_snapshot!(config, @r#"
    [user]
    	name = A
    [url "https://asked.test/"]
    	insteadOf = "git@asked.test:"
    	insteadOf = "ssh://git@asked.test/"
    [url "https://forge.test/"]
    	insteadOf = "me@forge.test:"
    	insteadOf = "git@forge.test:"
    	insteadOf = "ssh://git@forge.test/"
    [url "https://own.test/"]
    	insteadOf = "git@own.test:"
    	insteadOf = "ssh://git@own.test/"
    "#);
}

#[test]
fn hosts_are_told_apart_only_where_something_can() {
    let code = |policy: &EffectivePolicy| {
        let refused = plan(policy, &facts(1000)).expect_err("refused");
        (refused.code, refused.field)
    };
    let across = lay(&[
        (Layer::User, "network_deny = [\"b.test\"]"),
        (Layer::CommandLine, "network = \"full\""),
    ])
    .expect("good");
    assert_eq!(
        code(&across),
        (ErrorCode::UnsupportedField, Some("network_deny".to_owned()))
    );
    let landlock = owner("provider = \"landlock\"\nnetwork_deny = [\"b.test\"]");
    assert!(plan(&landlock, &facts(1000)).is_ok(), "no host at all");
    let direct = owner("provider = \"direct\"\nnetwork_deny = [\"b.test\"]");
    assert_eq!(code(&direct).0, ErrorCode::UnsupportedField);
}
