//! Rules over single requests, and secrets that hosts are told: as policies say them and plans have
//! them.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::hosts::HostRule;
use cofferdam_core::operation::RunCommand;
use cofferdam_core::plan::{CommandOptions, WorkspaceView, plan_command, prepare};
use cofferdam_core::policy::{EffectivePolicy, Explanation, Layer, placeholder};
use cofferdam_core::spec::{EnclosureSpec, LaunchSpec, Mount, SecretSource, StreamPlan};

use crate::fixture::{facts, lay, owner, path, read};

const BOTH: &str = "network = \"restricted\"\nnetwork_allow = [\"api.test\"]\n\
    [[network_rules]]\nhosts = [\"api.test\"]\naccess = \"read\"\n\
    [secrets.key]\nenv = \"API_KEY\"\nhosts = [\"api.test\"]\n\
    [secrets.other]\nfile = \"~/token\"\nhosts = [\"*.api.test:443\"]\nas = \"header\"\n\
    field = \"X-Key\"\n\
    [env]\nsecrets = { OTHER = \"other\" }\n";

fn plan(policy: &EffectivePolicy) -> Result<EnclosureSpec, Problem> {
    let facts = facts(1000);
    let view = WorkspaceView::live(&facts.workspace);
    prepare(policy, &view, &facts, &path("/data/scratch/one"))
}

fn variable(spec: &EnclosureSpec, name: &str) -> Option<String> {
    spec.environment
        .iter()
        .find(|one| one.name.to_text() == name)
        .map(|one| one.value.to_text().into_owned())
}

#[test]
fn what_is_no_rule_and_no_secret_says_why() {
    for (text, field) in [
        ("[[network_rules]]\nhosts = []", "network_rules"),
        ("[[network_rules]]\nhosts = [\"*\"]", "network_rules"),
        (
            "[[network_rules]]\nhosts = [\"a.test\"]\nmethods = [\"get\"]",
            "network_rules",
        ),
        (
            "[[network_rules]]\nhosts = [\"a.test\"]\nmethods = [\"TRACE\"]",
            "network_rules",
        ),
        (
            "[[network_rules]]\nhosts = [\"a.test\"]\npaths = [\"/a/../b\"]",
            "network_rules",
        ),
        (
            "[[network_rules]]\nhosts = [\"a.test\"]\npaths = [\"/a?b\"]",
            "network_rules",
        ),
        (
            "[[network_rules]]\nhosts = [\"a.test\"]\naccess = \"read\"\nmethods = [\"GET\"]",
            "network_rules",
        ),
        ("[secrets.x]\nhosts = [\"a.test\"]", "secrets"),
        (
            "[secrets.x]\nenv = \"A\"\nfile = \"/a\"\nhosts = [\"a.test\"]",
            "secrets",
        ),
        ("[secrets.x]\nenv = \"A\"\nhosts = []", "secrets"),
        ("[secrets.x]\nenv = \"A\"\nhosts = [\"@dev\"]", "secrets"),
        (
            "[secrets.x]\nenv = \"A-B\"\nhosts = [\"a.test\"]",
            "secrets",
        ),
        (
            "[secrets.\"x y\"]\nenv = \"A\"\nhosts = [\"a.test\"]",
            "secrets",
        ),
        (
            "[secrets.x]\nfile = \"token\"\nhosts = [\"a.test\"]",
            "secrets",
        ),
        (
            "[secrets.x]\nfile = \"/a/../b\"\nhosts = [\"a.test\"]",
            "secrets",
        ),
        ("[secrets.x]\ncommand = []\nhosts = [\"a.test\"]", "secrets"),
        (
            "[secrets.x]\nenv = \"A\"\nhosts = [\"a.test\"]\nas = \"header\"",
            "secrets",
        ),
        (
            "[secrets.x]\nenv = \"A\"\nhosts = [\"a.test\"]\nas = \"header\"\nfield = \"Host\"",
            "secrets",
        ),
        (
            "[secrets.x]\nenv = \"A\"\nhosts = [\"a.test\"]\nas = \"query\"\nfield = \"a b\"",
            "secrets",
        ),
        (
            "[secrets.x]\nenv = \"A\"\nhosts = [\"a.test\"]\nusername = \"me\"",
            "secrets",
        ),
        (
            "[secrets.x]\nenv = \"A\"\nhosts = [\"a.test\"]\nas = \"basic\"\nalways = true",
            "secrets",
        ),
        (
            "[secrets.x]\nenv = \"A\"\nhosts = [\"a.test\"]\ntimeout = 3",
            "secrets",
        ),
        ("[env]\nsecrets = { \"A*\" = \"x\" }", "env.secrets"),
        (
            "[env]\nset = { A = \"b\" }\nsecrets = { A = \"x\" }",
            "env.secrets",
        ),
    ] {
        let problem = read(Layer::User, text).expect_err(text);
        assert!(
            matches!(
                problem.code,
                ErrorCode::PolicyInvalidValue | ErrorCode::PolicyContradiction
            ),
            "{text}: {problem:?}"
        );
        assert_eq!(problem.field.as_deref(), Some(field), "{text}");
    }
    let unknown = lay(&[(Layer::User, "[env]\nsecrets = { A = \"nobody\" }")]);
    assert_eq!(
        unknown.expect_err("no such secret").field.as_deref(),
        Some("env.secrets")
    );
}

#[test]
fn only_the_owner_names_secrets() {
    let wish = "[secrets.key]\ncommand = [\"cat\", \"/etc/shadow\"]\nhosts = [\"evil.test\"]\n\
                [env]\nsecrets = { A = \"key\" }";
    let policy = lay(&[(Layer::User, BOTH), (Layer::Project, wish)]).expect("a policy");
    assert_eq!(policy.secrets["key"].value.env.as_deref(), Some("API_KEY"));
    assert!(!policy.env.secrets.contains_key("A"));
    let proposed: Vec<&str> = policy
        .proposals
        .iter()
        .map(|one| one.field.as_str())
        .collect();
    assert_eq!(proposed, ["secrets", "env.secrets"]);
    let request = lay(&[(Layer::User, BOTH), (Layer::Request, wish)]).expect_err("refused");
    assert_eq!(request.code, ErrorCode::PolicyWidening);
    let managed = read(Layer::Managed, wish).expect_err("refused");
    assert_eq!(managed.code, ErrorCode::PolicyContradiction);
}

#[test]
fn rules_of_every_layer_hold_by_themselves() {
    let rule = |host: &str| format!("[[network_rules]]\nhosts = [\"{host}\"]\naccess = \"read\"\n");
    let own = rule("a.test");
    // What two layers say is said twice: each must hold without the other.
    let policy = lay(&[
        (Layer::Managed, &own),
        (Layer::User, &own),
        (Layer::CommandLine, &rule("b.test")),
        (Layer::Project, &own),
        (Layer::Request, &own),
    ])
    .expect("a policy");
    let layers: Vec<Layer> = policy.network_rules.iter().map(|one| one.layer).collect();
    assert_eq!(
        layers,
        [
            Layer::Managed,
            Layer::User,
            Layer::CommandLine,
            Layer::Project,
            Layer::Request
        ]
    );
    assert!(policy.proposals.is_empty());
}

#[test]
fn a_plan_has_rules_placeholders_and_a_place_for_certificates_and_no_value() {
    let spec = plan(&owner(BOTH)).expect("a plan");
    let egress = spec.egress.as_ref().expect("a way out");
    assert_eq!(egress.rules.len(), 1);
    let [key, other] = egress.secrets.as_slice() else {
        panic!("two secrets: {:?}", egress.secrets);
    };
    assert_eq!(key.source, SecretSource::Env("API_KEY".to_owned()));
    let SecretSource::File(file) = &other.source else {
        panic!("{:?}", other.source);
    };
    assert!(file.is_absolute() && file.file_name() == b"token");
    assert_eq!(variable(&spec, "API_KEY"), Some(placeholder("key")));
    assert_eq!(variable(&spec, "OTHER"), Some(placeholder("other")));
    let trust = egress.trust.as_ref().expect("something to trust");
    for name in [
        "SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS",
        "GIT_SSL_CAINFO",
        "PIP_CERT",
    ] {
        assert_eq!(
            variable(&spec, name),
            Some(trust.bundle.to_text().into_owned())
        );
    }
    let places = spec
        .mounts
        .iter()
        .filter(|mount| matches!(mount, Mount::Content { target, .. } if *target == trust.bundle));
    assert_eq!(places.count(), 1);
    let planned = plan_command(
        &owner(BOTH),
        &spec,
        &facts(1000),
        &RunCommand::argv(["true"]),
        CommandOptions::command_line(StreamPlan::Pipes),
    );
    let command = planned.expect("planned").spec;
    let launch = LaunchSpec {
        enclosure: spec,
        command,
    };
    let told = Explanation::new(&owner(BOTH), launch);
    let rules: Vec<&str> = told.rules.iter().map(|one| one.rule.as_str()).collect();
    assert!(
        rules.contains(&"requests to api.test: reading (command_line), TLS ends in the proxy"),
        "{rules:?}"
    );
    assert!(
        rules.contains(
            &"secret key is told to api.test alone (command_line), TLS ends in the proxy"
        ),
        "{rules:?}"
    );
}

#[test]
fn without_rules_and_secrets_nothing_ends_in_the_proxy() {
    let spec = plan(&owner(
        "network = \"restricted\"\nnetwork_allow = [\"a.test\"]",
    ));
    let spec = spec.expect("a plan");
    assert!(spec.egress.expect("a way out").trust.is_none());
    let none = plan(&owner(
        &BOTH
            .replace("restricted", "none")
            .replace("network_allow", "network_deny"),
    ));
    let none = none.expect("a plan");
    assert_eq!(variable(&none, "API_KEY"), None);
}

#[test]
fn where_requests_are_not_seen_rules_are_refused_and_secrets_stay_out() {
    let rules = "[[network_rules]]\nhosts = [\"a.test\"]\naccess = \"read\"\n";
    for network in ["provider = \"direct\"\n", "network = \"full\"\n"] {
        let layers = [(Layer::User, rules), (Layer::CommandLine, network)];
        let problem = plan(&lay(&layers).expect("a policy")).expect_err(network);
        assert_eq!(problem.code, ErrorCode::UnsupportedField);
        assert_eq!(problem.field.as_deref(), Some("network_rules"));
    }
    let secrets = "[secrets.key]\nenv = \"API_KEY\"\nhosts = [\"a.test\"]\n\
                   [env]\nallow = [\"API_KEY\"]\n";
    let layers = [
        (Layer::User, secrets),
        (Layer::CommandLine, "network = \"full\""),
    ];
    let spec = plan(&lay(&layers).expect("a policy")).expect("a plan");
    assert_eq!(variable(&spec, "API_KEY"), None);
    assert!(spec.gaps.iter().any(|gap| gap.what == "secrets"));
}

#[test]
fn sets_of_hosts_are_looked_up() {
    let policy = owner(
        "network = \"restricted\"\nnetwork_allow = [\"@dev\"]\n\
                        [[network_rules]]\nhosts = [\"@dev\", \"a.test\"]\naccess = \"read\"",
    );
    let spec = plan(&policy).expect("a plan");
    let egress = spec.egress.expect("a way out");
    for text in &egress.rules[0].rule.hosts {
        text.parse::<HostRule>().expect("a rule");
    }
    assert!(egress.rules[0].rule.hosts.contains(&"a.test".to_owned()));
}
