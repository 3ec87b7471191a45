//! Reading, laying and replacing policies: rows 41, 44 to 48 of the capability table.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::policy::{
    EffectivePolicy, Layer, LayerDocument, NARROWING, PolicyChange, PolicyDocument, PolicyFormat,
    PolicyStore, import_runner_policy, merge, policy_schema, read_policy,
};
use cofferdam_core::spec::{Access, Network, ProviderKind};

use crate::fixture::{lay, read};

const EVERYTHING: &str = r#"
provider = "bwrap"
fallback = ["landlock"]
network = "restricted"
network_allow = []
network_deny = ["example.com"]
workspace = "write"
read = ["~/data"]
write = ["/srv/out"]
deny_read = ["*.pem", "secrets"]
protect = [{ path = "Makefile" }, { path = "ci", enforce = "undo" }]
caches = "private"
publish = []
reach = []
setup = ["npm ci"]
seed = []
commands = []
permission = "unrestricted"
[env]
inherit = "listed"
allow = ["MY_*"]
set = { A = "b" }
secrets = {}
[limits]
memory = "2GiB"
cpu = 60
wall = 1.5
idle = 30
output = 1000000
[allow]
nested_sandbox = false
ptrace = true
signal_peers = false
sockets = ["/run/x.sock"]
devices = []
"#;

fn refused(layer: Layer, text: &str) -> String {
    let problem = read(layer, text).expect_err("refused");
    show(&problem)
}

fn show(problem: &Problem) -> String {
    let hint = problem.hint.as_deref().unwrap_or("-");
    let field = problem.field.as_deref().unwrap_or("-");
    format!("{} [{field}] {} ({hint})", problem.code, problem.message)
}

#[test]
fn row_41_every_field_survives_a_round_trip() {
    let document = read(Layer::User, EVERYTHING).expect("a good policy");
    let text = serde_json::to_string(&document).expect("written");
    let again = read_policy(&text, PolicyFormat::Json, Layer::User, "it").expect("read");
    assert_eq!(again, document);
}

#[test]
fn row_41_unknown_keys_name_the_nearest_known_one() {
    let lines = [
        refused(Layer::User, "netwrok = \"none\""),
        refused(Layer::User, "[env]\ninherits = \"none\""),
        refused(
            Layer::User,
            "protect = [{ path = \"a\", enforced = \"undo\" }]",
        ),
        refused(Layer::User, "[limits]\nmem = 1"),
    ];
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn values_that_a_key_cannot_have_name_the_key() {
    let lines = [
        refused(Layer::User, "network = \"some\""),
        refused(Layer::User, "[limits]\nwall = 0"),
        refused(Layer::User, "[limits]\nwall = nan"),
        refused(Layer::User, "[limits]\nmemory = \"2 parsecs\""),
        refused(Layer::User, "read = [\"../x\"]"),
        refused(Layer::User, "read = [\"*.txt\"]"),
        refused(Layer::User, "deny_read = [\"a[\"]"),
        refused(Layer::User, "deny_read = [\"/etc/*.key\"]"),
        refused(Layer::User, "[env]\nallow = [\"*\"]"),
        show(
            &read_policy("network = \"none\"", PolicyFormat::Toml, Layer::User, "it")
                .expect_err("no"),
        ),
        show(&read_policy("{", PolicyFormat::Json, Layer::User, "it").expect_err("no")),
        show(&read_policy("schema = 2", PolicyFormat::Toml, Layer::User, "it").expect_err("no")),
    ];
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn row_45_contradictions_are_refused_when_the_policy_is_read() {
    let lines = [
        refused(Layer::User, "provider = \"direct\"\nnetwork = \"none\""),
        refused(Layer::User, "provider = \"direct\"\nworkspace = \"read\""),
        refused(Layer::User, "provider = \"direct\"\ndeny_read = [\"a\"]"),
        refused(
            Layer::User,
            "provider = \"landlock\"\nnetwork = \"restricted\"",
        ),
        refused(Layer::User, "write = [\"/a\"]\ndeny_read = [\"/a\"]"),
        refused(
            Layer::User,
            "write = [\"/a\"]\nprotect = [{ path = \"/a\" }]",
        ),
        refused(Layer::User, "provider = \"bwrap\"\nfallback = [\"bwrap\"]"),
        refused(Layer::User, "fallback = [\"memory\"]"),
        refused(Layer::User, "[require]\nproviders = [\"bwrap\"]"),
    ];
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn fields_that_nothing_enforces_are_refused() {
    for (field, text) in [
        (
            "network_deny",
            "network = \"full\"\nnetwork_deny = [\"example.com\"]",
        ),
        ("reach", "reach = [\"10.0.0.5:5432\"]"),
        ("seed", "seed = [\".env\"]"),
        ("profile", "profile = \"codex\""),
        (
            "network_rules",
            "network = \"full\"\nnetwork_rules = [{ hosts = [\"a.test\"], access = \"read\" }]",
        ),
        ("limits.disk", "[limits]\ndisk = 1"),
        ("allow.devices", "[allow]\ndevices = [\"/dev/kvm\"]"),
    ] {
        let problem = read(Layer::User, text).expect_err("refused");
        assert_eq!(problem.code, ErrorCode::UnsupportedField, "{field}");
        assert_eq!(problem.field.as_deref(), Some(field));
        assert!(problem.hint.is_some());
    }
}

#[test]
fn fc_47_an_empty_list_of_hosts_is_no_host() {
    let policy =
        lay(&[(Layer::User, "network = \"restricted\"\nnetwork_allow = []")]).expect("good");
    assert_eq!(policy.network.value, Network::Restricted);
    let base = || EffectivePolicy::built_in().with_default_network(Network::Restricted);
    let hosts = |text: &str| -> Vec<String> {
        let layer = LayerDocument::new(Layer::User, read(Layer::User, text).expect("good"));
        let policy = merge(base(), &[layer]).expect("good");
        policy
            .network_allow
            .iter()
            .map(|one| one.value.to_string())
            .collect()
    };
    assert_eq!(hosts("workspace = \"write\""), ["@dev"]);
    assert_eq!(hosts("network_allow = [\"A.com\"]"), ["@dev", "a.com"]);
    assert_eq!(hosts("network_allow = []"), Vec::<String>::new());
}

#[test]
fn a_project_proposes_hosts_and_a_request_only_narrows() {
    let user = "network = \"restricted\"\nnetwork_allow = [\"**.a.com\", \"b.com\"]";
    let hosts = |policy: &EffectivePolicy| -> Vec<String> {
        let entries = policy.network_allow.iter();
        entries
            .map(|one| format!("{} {}", one.value, one.layer))
            .collect()
    };
    let with = |layer, text: &str| lay(&[(Layer::User, user), (layer, text)]);
    let wider = with(Layer::Project, "network_allow = [\"b.com\", \"evil.com\"]").expect("good");
    assert_eq!(hosts(&wider), ["**.a.com user", "b.com user"]);
    assert_eq!(wider.proposals.len(), 1);
    assert_eq!(wider.proposals[0].value, "\"evil.com\"");
    let narrower = with(
        Layer::Project,
        "network_allow = [\"x.a.com:443\"]\nnetwork_deny = [\"y.a.com\"]",
    )
    .expect("good");
    assert_eq!(hosts(&narrower), ["x.a.com:443 project"]);
    assert_eq!(narrower.network_deny.len(), 1);
    let none = with(Layer::Request, "network_allow = []").expect("good");
    assert_eq!(hosts(&none), Vec::<String>::new());
    let refused = with(Layer::Request, "network_allow = [\"evil.com\"]").expect_err("refused");
    assert_eq!(refused.code, ErrorCode::PolicyWidening);
    let ceiling = "network_allow = [\"**.a.com\"]";
    let over = lay(&[(Layer::Managed, ceiling), (Layer::User, user)]).expect_err("refused");
    assert_eq!(over.field.as_deref(), Some("network_allow"));
    for bare in ["*", "**", "*:443"] {
        let text = format!("network_allow = [\"{bare}\"]");
        let refused = read(Layer::User, &text).expect_err("refused");
        assert_eq!(refused.code, ErrorCode::PolicyInvalidValue);
    }
}

#[test]
fn every_value_knows_its_layer_and_later_owners_win() {
    let policy = lay(&[
        (Layer::CommandLine, "network = \"full\"\nwrite = [\"/b\"]"),
        (
            Layer::User,
            "network = \"none\"\nwrite = [\"/a\"]\n[limits]\nwall = 10",
        ),
    ])
    .expect("good");
    assert_eq!(policy.network.value, Network::Full);
    assert_eq!(policy.network.layer, Layer::CommandLine);
    assert_eq!(policy.caches.layer, Layer::BuiltIn);
    let write: Vec<_> = policy
        .write
        .iter()
        .map(|one| (one.value.to_string(), one.layer))
        .collect();
    assert_eq!(
        write,
        [
            ("/a".to_owned(), Layer::User),
            ("/b".to_owned(), Layer::CommandLine)
        ]
    );
}

#[test]
fn the_managed_layer_is_a_ceiling_that_grants_nothing() {
    let managed = (
        Layer::Managed,
        "network = \"restricted\"\nread = [\"/srv\"]\n[limits]\nwall = 60\n[require]\nproviders = [\"bwrap\"]",
    );
    let alone = lay(&[managed]).expect("good");
    assert_eq!(alone.network.value, Network::None);
    assert!(alone.read.is_empty());
    assert_eq!(alone.limits.wall.map(|one| one.value.get()), Some(60.0));
    let below = lay(&[
        managed,
        (Layer::User, "network = \"restricted\"\nread = [\"/srv/a\"]"),
    ]);
    assert_eq!(below.expect("good").network.layer, Layer::User);
    let beyond = [
        lay(&[managed, (Layer::CommandLine, "network = \"full\"")]),
        lay(&[managed, (Layer::CommandLine, "read = [\"/srvx\"]")]),
        lay(&[managed, (Layer::User, "[limits]\nwall = 61")]),
    ];
    let lines: Vec<_> = beyond
        .iter()
        .map(|one| show(one.as_ref().expect_err("refused")))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn row_48_a_request_only_narrows() {
    let user = (
        Layer::User,
        "network = \"restricted\"\nread = [\"/srv\"]\n[env]\nallow = [\"A\", \"B\"]",
    );
    let less = lay(&[
        user,
        (
            Layer::Request,
            "network = \"none\"\nworkspace = \"read\"\nread = [\"/srv/a\"]\n[env]\nallow = [\"A\"]",
        ),
    ])
    .expect("good");
    assert_eq!(less.network.value, Network::None);
    assert_eq!(less.workspace.value, Access::Read);
    assert_eq!(less.read.len(), 1);
    assert_eq!(less.env.allow.len(), 1);
    for text in [
        "network = \"full\"",
        "provider = \"direct\"",
        "provider = \"landlock\"",
        "provider = \"memory\"",
        "fallback = [\"direct\"]",
        "read = [\"/\"]",
        "write = [\"/srv\"]",
        "caches = \"private\"\nread = [\"/srvx\"]",
        "setup = [\"x\"]",
        "[env]\ninherit = \"all\"",
        "[env]\nallow = [\"C\"]",
        "[allow]\nptrace = true",
        "[allow]\nsockets = [\"/run/docker.sock\"]",
    ] {
        let problem = lay(&[user, (Layer::Request, text)]).expect_err(text);
        assert_eq!(problem.code, ErrorCode::PolicyWidening, "{text}");
    }
}

#[test]
fn a_project_proposes_and_does_not_widen() {
    let policy = lay(&[(
        Layer::Project,
        "network = \"full\"\nwrite = [\"~/out\"]\ndeny_read = [\"secrets\"]\nsetup = [\"npm ci\"]",
    )])
    .expect("good");
    assert_eq!(policy.network, EffectivePolicy::built_in().network);
    assert!(policy.write.is_empty());
    assert_eq!(policy.deny_read.len(), 1);
    assert_eq!(policy.setup.value, ["npm ci"]);
    let proposals: Vec<_> = policy
        .proposals
        .iter()
        .map(|one| format!("{} = {}: {}", one.field, one.value, one.reason))
        .collect();
    insta::assert_snapshot!(proposals.join("\n"), @r#"
    network = "full": wider than what is in effect
    write = "~/out": outside of what is allowed
    "#);
}

#[test]
fn a_project_sets_nothing_where_there_are_no_walls() {
    let project = (
        Layer::Project,
        "setup = [\"x\"]\n[env]\nset = { LD_PRELOAD = \"x.so\" }",
    );
    for user in ["provider = \"direct\"", "fallback = [\"direct\"]"] {
        let policy = lay(&[(Layer::User, user), project]).expect("good");
        assert!(policy.setup.value.is_empty());
        assert!(policy.env.set.is_empty());
        assert_eq!(policy.proposals.len(), 2);
    }
    assert_eq!(lay(&[project]).expect("good").env.set.len(), 1);
}

#[test]
fn a_project_may_shrink_what_can_be_written() {
    let policy =
        lay(&[(Layer::Project, "workspace = \"read\"\nwrite = [\"build\"]")]).expect("good");
    assert_eq!(policy.workspace.value, Access::Read);
    assert_eq!(policy.write.len(), 1);
    assert!(policy.proposals.is_empty());
}

#[test]
fn rows_46_and_47_a_reload_publishes_or_keeps_the_last_good() {
    let mut store = PolicyStore::new(EffectivePolicy::built_in());
    assert_eq!(store.reload(lay(&[])), None);
    let change = store.reload(lay(&[(Layer::User, "network = \"full\"")]));
    let Some(PolicyChange::Published {
        version: 2, fields, ..
    }) = change
    else {
        panic!("published: {change:?}");
    };
    assert_eq!(fields, ["network"]);
    let broken = || read_policy("schema = ", PolicyFormat::Toml, Layer::User, "it");
    let broken = || broken().map(|_| EffectivePolicy::built_in());
    let kept = store.reload(broken());
    assert!(matches!(
        kept,
        Some(PolicyChange::KeptLastGood { version: 2, .. })
    ));
    assert_eq!(
        store.reload(broken()),
        None,
        "the same problem is told once"
    );
    assert_eq!(store.current().policy.network.value, Network::Full);
    assert!(store.reload(lay(&[])).is_some());
    assert_eq!(store.current().version, 3);
}

#[test]
fn the_runners_policy_is_taken_over() {
    let text = r#"{"provider": "bwrap", "mode": "SANDBOX", "net": "DISABLE", "inheritEnv": false,
        "env": {"A": "b"}, "workingDirectory": "/w", "readOnlyPaths": ["/data"], "writablePaths": ["/out"]}"#;
    let (document, notes) = import_runner_policy(text).expect("taken over");
    insta::assert_snapshot!(serde_json::to_string(&document).expect("written"));
    assert_eq!(notes.len(), 2);
    let (defaults, _) = import_runner_policy("{}").expect("taken over");
    assert_eq!(defaults.network, Some(Network::Full));
    for (text, code) in [
        (r#"{"mode": "SANDBOX"}"#, ErrorCode::PolicyContradiction),
        (
            r#"{"provider": "direct", "net": "DISABLE"}"#,
            ErrorCode::PolicyContradiction,
        ),
        (r#"{"provider": "docker"}"#, ErrorCode::PolicyInvalidValue),
        (r#"{"nett": 1}"#, ErrorCode::PolicyUnreadable),
    ] {
        assert_eq!(
            import_runner_policy(text).expect_err("refused").code,
            code,
            "{text}"
        );
    }
}

#[test]
fn the_schema_and_the_table_of_narrowing_name_every_field() {
    let schema = policy_schema();
    let fields = schema["properties"].as_object().expect("fields");
    let told = ["schema", "require", "profile", "seed"];
    for field in fields.keys() {
        let is_told = NARROWING
            .iter()
            .any(|(name, _)| name.split('.').next() == Some(field));
        assert!(
            is_told || told.contains(&field.as_str()),
            "{field} is in no table"
        );
    }
    assert_eq!(schema["additionalProperties"], false);
    let empty: PolicyDocument = serde_json::from_str("{}").expect("nothing is said");
    assert_eq!(empty, PolicyDocument::default());
    assert_eq!(ProviderKind::Bwrap.as_str(), "bwrap");
}
