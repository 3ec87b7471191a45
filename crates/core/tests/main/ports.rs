//! Ports that cross the walls: who may open them, and what comes of it by provider.

use cofferdam_core::error::ErrorCode;
use cofferdam_core::plan::{WorkspaceView, prepare};
use cofferdam_core::policy::{EffectivePolicy, Explanation, Layer};
use cofferdam_core::spec::{EnclosureSpec, LaunchSpec};

use crate::fixture::{facts, lay, owner, path};

const REACH: &str = "reach = [\"127.0.0.1:5432\", \"localhost:6379\"]\npublish = [\"3000\"]\n";

fn plan(policy: &EffectivePolicy) -> Result<EnclosureSpec, cofferdam_core::error::Problem> {
    let facts = facts(1000);
    let view = WorkspaceView::live(&facts.workspace);
    prepare(policy, &view, &facts, &path("/data/scratch/one"))
}

fn reach(policy: &EffectivePolicy) -> Vec<String> {
    let text = |one: &cofferdam_core::policy::Sourced<_>| {
        let value: &cofferdam_core::ports::ReachAddress = &one.value;
        format!("{value} {}", one.layer)
    };
    policy.reach.iter().map(text).collect()
}

#[test]
fn only_owners_open_the_walls() {
    let owners = lay(&[
        (Layer::User, "reach = [\"127.0.0.1:5432\"]"),
        (Layer::CommandLine, REACH),
    ])
    .expect("owners may");
    assert_eq!(
        reach(&owners),
        ["127.0.0.1:5432 user", "localhost:6379 command_line"]
    );
    // A project that wants one gets none, and takes none away.
    let project = lay(&[
        (Layer::CommandLine, REACH),
        (
            Layer::Project,
            "reach = [\"127.0.0.1:22\"]\npublish = [\"auto\"]",
        ),
    ])
    .expect("only proposed");
    assert_eq!(project.reach.len(), 2);
    let proposed: Vec<_> = project
        .proposals
        .iter()
        .map(|one| (&*one.field, &*one.value))
        .collect();
    assert_eq!(
        proposed,
        [("reach", "\"127.0.0.1:22\""), ("publish", "\"auto\"")]
    );
    // A request keeps what it names, and may not have more.
    let narrowed = lay(&[
        (
            Layer::CommandLine,
            "publish = [\"auto\"]\nreach = [\"127.0.0.1:1\", \"127.0.0.1:2\"]",
        ),
        (
            Layer::Request,
            "publish = [\"3000\"]\nreach = [\"127.0.0.1:2\"]",
        ),
    ])
    .expect("narrower");
    assert_eq!(reach(&narrowed), ["127.0.0.1:2 request"]);
    assert_eq!(narrowed.publish[0].value.to_string(), "3000");
    for wider in ["reach = [\"127.0.0.1:3\"]", "publish = [\"3000\"]"] {
        let problem = lay(&[(Layer::Request, wider)]).expect_err("refused");
        assert_eq!(problem.code, ErrorCode::PolicyWidening, "{wider}");
    }
}

#[test]
fn a_managed_list_is_a_ceiling_and_grants_nothing() {
    let managed = (Layer::Managed, "reach = [\"127.0.0.1:5432\"]\npublish = []");
    let alone = lay(&[managed]).expect("a ceiling");
    assert!(alone.reach.is_empty() && alone.publish.is_empty());
    let within = lay(&[
        managed,
        (Layer::CommandLine, "reach = [\"127.0.0.1:5432\"]"),
    ]);
    assert_eq!(within.expect("allowed").reach.len(), 1);
    for beyond in ["reach = [\"127.0.0.1:22\"]", "publish = [\"auto\"]"] {
        let problem = lay(&[managed, (Layer::CommandLine, beyond)]).expect_err("refused");
        assert_eq!(problem.code, ErrorCode::PolicyWidening, "{beyond}");
    }
}

#[test]
fn each_provider_holds_it_says_that_it_needs_nothing_or_refuses() {
    let with = |more: &str| plan(&owner(&format!("{REACH}{more}")));
    let walled = with("provider = \"bwrap\"").expect("a plan");
    assert_eq!(walled.ports.reach.len(), 2);
    assert_eq!(walled.ports.publish.len(), 1);
    for open in [
        "provider = \"bwrap\"\nnetwork = \"full\"",
        "provider = \"landlock\"\nnetwork = \"full\"",
        "provider = \"direct\"",
    ] {
        let spec = with(open).expect("a plan");
        assert!(spec.ports.is_empty(), "{open}");
        for field in ["reach", "publish"] {
            assert!(spec.gaps.iter().any(|gap| gap.what == field), "{open}");
        }
    }
    // Nothing inside has the right to stand on a low port: that is done before.
    let low = plan(&owner("reach = [\"localhost:443\"]")).expect("a plan");
    assert_eq!(low.ports.reach.len(), 1);
    let none = with("provider = \"landlock\"\nnetwork = \"none\"").expect_err("refused");
    assert_eq!(none.code, ErrorCode::Unenforceable);
    assert_eq!(none.field.as_deref(), Some("reach"));
}

#[test]
fn a_plan_without_ports_is_written_as_before_and_one_with_them_is_another_place() {
    let plain = plan(&owner("provider = \"bwrap\"")).expect("a plan");
    let written = serde_json::to_value(&plain).expect("written");
    assert!(written.get("ports").is_none());
    let open = plan(&owner(REACH)).expect("a plan");
    assert_ne!(open.hash(), plain.hash());
    let written = serde_json::to_string(&open).expect("written");
    let read: EnclosureSpec = serde_json::from_str(&written).expect("read");
    assert_eq!(read, open);
}

#[test]
fn an_explanation_names_each_port_and_who_opened_it() {
    let policy = owner(REACH);
    let enclosure = plan(&policy).expect("a plan");
    let command = cofferdam_core::spec::CommandSpec {
        argv: vec!["true".into()],
        cwd: enclosure.workspace.clone(),
        environment: Vec::new(),
        streams: cofferdam_core::spec::StreamPlan::Pipes,
        timeout_ms: None,
        idle_timeout_ms: None,
        limits: cofferdam_core::spec::ResourceLimits::default(),
    };
    let told = Explanation::new(&policy, LaunchSpec { enclosure, command });
    for rule in [
        "reach 127.0.0.1:5432 (command_line)",
        "publish 3000 (command_line)",
    ] {
        let found = told.rules.iter().find(|one| one.rule == rule);
        assert!(
            found.is_some_and(|one| !one.enforced_by.is_empty()),
            "{rule}"
        );
    }
    let fields: Vec<_> = told.fields.iter().map(|one| &*one.field).collect();
    assert!(fields.contains(&"reach") && fields.contains(&"publish"));
}
