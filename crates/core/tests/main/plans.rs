//! Plans: a golden file for each provider (row 42), and what is refused before anything starts.

use std::fmt::Write as _;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::ErrorCode;
use cofferdam_core::facts::{HostFacts, PathKind};
use cofferdam_core::operation::RunCommand;
use cofferdam_core::plan::{
    CommandOptions, WorkspaceView, choose_provider, is_inheritable, looks_secret, plan_command,
    prepare,
};
use cofferdam_core::policy::{EffectivePolicy, Explanation, Layer};
use cofferdam_core::spec::{
    Access, EnclosureSpec, Enforce, LaunchSpec, Mechanism, Mount, Network, PathAccess,
    ProviderKind, StreamPlan,
};

use crate::fixture::{facts, lay, linked_facts, owner, path, with_path, without};

fn plan(policy: &EffectivePolicy, facts: &HostFacts) -> EnclosureSpec {
    try_plan(policy, facts).expect("a plan")
}

fn try_plan(
    policy: &EffectivePolicy,
    facts: &HostFacts,
) -> Result<EnclosureSpec, cofferdam_core::error::Problem> {
    let view = WorkspaceView::live(&facts.workspace);
    prepare(policy, &view, facts, &path("/data/scratch/one"))
}

fn code(policy: &EffectivePolicy, facts: &HostFacts) -> ErrorCode {
    try_plan(policy, facts).expect_err("refused").code
}

/// Writes a plan as lines that a person can compare.
fn golden(spec: &EnclosureSpec) -> String {
    let mut text = String::new();
    let mut line = |words: String| writeln!(text, "{words}").expect("memory");
    line(format!(
        "{} of {} from {} as {} in {:?}",
        spec.provider, spec.workspace, spec.workspace_source, spec.identity.uid, spec.scratch
    ));
    line(format!(
        "network {} {:?}",
        spec.network.as_str(),
        spec.seccomp
    ));
    for mount in &spec.mounts {
        line(serde_json::to_string(mount).expect("written"));
    }
    for cache in &spec.caches {
        line(format!("cache {} in {}", cache.path, cache.store));
    }
    for rule in &spec.landlock.paths {
        line(format!("allow {} {:?}", rule.path, rule.access));
    }
    line(format!(
        "landlock deny_tcp {} scope_signals {} scope_abstract_sockets {}",
        spec.landlock.deny_tcp, spec.landlock.scope_signals, spec.landlock.scope_abstract_sockets
    ));
    for protection in &spec.protections {
        line(format!(
            "hold {} {:?} {:?} ({})",
            protection.path, protection.state, protection.enforce, protection.rule
        ));
    }
    for variable in &spec.environment {
        line(format!("env {}={}", variable.name, variable.value));
    }
    line(format!("by {:?}", spec.enforced_by));
    for gap in &spec.gaps {
        line(format!("gap {}: {}", gap.what, gap.why));
    }
    text
}

#[test]
fn row_42_bwrap_for_an_ordinary_user() {
    insta::assert_snapshot!(golden(&plan(&EffectivePolicy::built_in(), &facts(1000))));
}

#[test]
fn row_42_bwrap_for_root() {
    insta::assert_snapshot!(golden(&plan(&EffectivePolicy::built_in(), &facts(0))));
}

#[test]
fn row_42_bwrap_in_a_linked_tree() {
    insta::assert_snapshot!(golden(&plan(&EffectivePolicy::built_in(), &linked_facts())));
}

#[test]
fn row_42_landlock_for_an_ordinary_user() {
    let policy = owner("provider = \"landlock\"");
    insta::assert_snapshot!(golden(&plan(&policy, &facts(1000))));
}

#[test]
fn row_42_landlock_for_root() {
    let policy = owner("provider = \"landlock\"\nnetwork = \"full\"");
    insta::assert_snapshot!(golden(&plan(&policy, &facts(0))));
}

#[test]
fn row_42_direct_and_memory() {
    let direct = plan(&owner("provider = \"direct\""), &facts(1000));
    let memory = plan(&owner("provider = \"memory\""), &facts(1000));
    insta::assert_snapshot!(format!("{}\n{}", golden(&direct), golden(&memory)));
}

#[test]
fn row_44_a_missing_provider_is_refused_and_never_weakened() {
    let broken = without(facts(1000), ProviderKind::Bwrap, ErrorCode::UsernsNoCaps);
    let problem = try_plan(&EffectivePolicy::built_in(), &broken).expect_err("refused");
    assert_eq!(problem.code, ErrorCode::UsernsNoCaps);
    assert!(problem.hint.is_some_and(|hint| hint.contains("landlock")));
    let accepted = owner("fallback = [\"landlock\"]");
    assert_eq!(plan(&accepted, &broken).provider, ProviderKind::Landlock);
    let decision = choose_provider(&accepted, &broken).expect("chosen");
    assert_eq!(
        decision.fell_back.map(|one| one.code),
        Some(ErrorCode::UsernsNoCaps)
    );
    let neither = without(
        broken,
        ProviderKind::Landlock,
        ErrorCode::LandlockUnavailable,
    );
    assert_eq!(code(&accepted, &neither), ErrorCode::UsernsNoCaps);
    assert_eq!(
        code(&owner("provider = \"container\""), &neither),
        ErrorCode::ProviderUnavailable
    );
}

#[test]
fn row_62_what_a_provider_cannot_hold_is_refused() {
    let host = with_path(
        facts(1000),
        "secret",
        "/home/ann/src/app/secret",
        PathKind::File,
    );
    for text in [
        "provider = \"direct\"\nnetwork = \"none\"",
        "provider = \"direct\"\nnetwork = \"restricted\"",
        "provider = \"direct\"\nworkspace = \"read\"",
        "provider = \"direct\"\ndeny_read = [\"secret\"]",
        "provider = \"direct\"\nread = [\"/x\"]",
        "provider = \"direct\"\nprotect = [{ path = \"secret\" }]",
        "provider = \"landlock\"\nnetwork = \"restricted\"",
        // FC-10: a rule of Landlock cannot be taken back.
        "provider = \"landlock\"\ndeny_read = [\"secret\"]",
        "provider = \"landlock\"\ndeny_read = [\"*.pem\"]",
        "provider = \"landlock\"\nprotect = [{ path = \"secret\" }]",
        "provider = \"landlock\"\n[allow]\nsockets = [\"/run/x\"]",
        "provider = \"landlock\"\n[limits]\ntasks = 10",
    ] {
        assert_eq!(
            code(&owner(text), &host),
            ErrorCode::Unenforceable,
            "{text}"
        );
    }
    let tasks = owner("[limits]\ntasks = 10");
    assert_eq!(code(&tasks, &facts(0)), ErrorCode::Unenforceable);
    assert_eq!(plan(&tasks, &facts(1000)).limits.tasks, Some(10));
    assert_eq!(
        plan(&owner("provider = \"direct\""), &host).network,
        Network::Full
    );
}

#[test]
fn the_managed_layer_may_require_a_provider() {
    let layers = [
        (Layer::Managed, "[require]\nproviders = [\"bwrap\"]"),
        (Layer::User, "fallback = [\"landlock\"]"),
    ];
    let policy = lay(&layers).expect("good");
    let broken = without(facts(1000), ProviderKind::Bwrap, ErrorCode::BwrapMissing);
    assert_eq!(plan(&policy, &facts(1000)).provider, ProviderKind::Bwrap);
    assert_eq!(code(&policy, &broken), ErrorCode::PolicyWidening);
}

/// Where a mount with this target stands in the order.
fn place(spec: &EnclosureSpec, target: &str, wanted: impl Fn(&Mount) -> bool) -> usize {
    spec.mounts
        .iter()
        .position(|mount| *mount.target() == path(target) && wanted(mount))
        .unwrap_or_else(|| panic!("no such mount on {target}"))
}

#[test]
fn row_56_the_deeper_rule_wins_whatever_it_says() {
    let host = [
        ("vendor", "/home/ann/src/app/vendor"),
        ("vendor/mine", "/home/ann/src/app/vendor/mine"),
        ("vendor/mine/key", "/home/ann/src/app/vendor/mine/key"),
    ]
    .into_iter()
    .fold(facts(1000), |host, (written, at)| {
        with_path(host, written, at, PathKind::Directory)
    });
    let policy =
        owner("read = [\"vendor\"]\nwrite = [\"vendor/mine\"]\ndeny_read = [\"vendor/mine/key\"]");
    let spec = plan(&policy, &host);
    let bind = |wanted: Access| move |mount: &Mount| matches!(mount, Mount::Bind { access, .. } if *access == wanted);
    let order = [
        place(&spec, "/home/ann/src/app", bind(Access::Write)),
        place(&spec, "/home/ann/src/app/vendor", bind(Access::Read)),
        place(&spec, "/home/ann/src/app/vendor/mine", bind(Access::Write)),
        place(&spec, "/home/ann/src/app/vendor/mine/key", |mount| {
            matches!(mount, Mount::Mask { .. })
        }),
    ];
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn row_36_only_an_owner_unmasks_an_environment_file() {
    let host = with_path(
        facts(1000),
        ".env",
        "/home/ann/src/app/.env",
        PathKind::File,
    );
    let is_masked = |layer| {
        let spec = plan(&lay(&[(layer, "read = [\".env\"]")]).expect("good"), &host);
        spec.mounts
            .iter()
            .any(|mount| matches!(mount, Mount::Mask { target, .. } if *target == path("/home/ann/src/app/.env")))
    };
    assert!(!is_masked(Layer::User));
    assert!(is_masked(Layer::Project));
    let spec = plan(&EffectivePolicy::built_in(), &host);
    assert!(
        spec.mounts
            .iter()
            .any(|mount| matches!(mount, Mount::Mask { .. }))
    );
}

#[test]
fn fc_14_fc_17_an_absent_denied_path_is_fine_and_held() {
    let host = with_path(
        facts(1000),
        "nope/x",
        "/home/ann/src/app/nope/x",
        PathKind::Absent,
    );
    let spec = plan(&owner("deny_read = [\"nope/x\"]"), &host);
    let held = spec
        .protections
        .iter()
        .find(|one| one.path == path("/home/ann/src/app/nope/x"))
        .expect("held");
    assert_eq!(held.enforce, Enforce::Undo);
    assert!(
        spec.mounts.iter().all(|mount| *mount.target() != held.path),
        "nothing is made on the host"
    );
    assert!(
        spec.gaps
            .iter()
            .any(|gap| gap.what == "rule_matches_nothing"),
        "FC-19: it is said"
    );
}

#[test]
fn nothing_is_created_on_the_host_for_a_mask() {
    // Every mask stands on something that the facts say is there.
    let host = facts(0);
    let spec = plan(&EffectivePolicy::built_in(), &host);
    for mount in &spec.mounts {
        if let Mount::Mask { target, .. } = mount {
            let known = host.system_secrets.iter().any(|one| one.path == *target)
                || host.workspace.env_files.contains(target);
            assert!(known, "{target}");
        }
    }
}

#[test]
fn tracked_names_are_reported_and_hooks_held_all_the_same() {
    let mut host = facts(1000);
    for name in &mut host.workspace.protected {
        name.tracked = true;
    }
    let spec = plan(&EffectivePolicy::built_in(), &host);
    for protection in &spec.protections {
        let expected = match protection.rule.as_str() {
            "git hooks" if protection.path == path("/home/ann/src/app/.githooks") => Enforce::Undo,
            "git hooks" => Enforce::Prevent,
            _ => Enforce::Report,
        };
        assert_eq!(protection.enforce, expected, "{}", protection.path);
    }
}

#[test]
fn a_tree_of_a_tasks_own_stands_where_the_repository_stands() {
    let host = facts(1000);
    let root = host.workspace.root.clone();
    let view = WorkspaceView::own(root.clone(), path("/data/worktrees/app/run/one")).with(
        path("/home/ann/src/app/.git/objects"),
        path("/run/cofferdam/objects"),
        Access::Read,
    );
    let spec = prepare(
        &EffectivePolicy::built_in(),
        &view,
        &host,
        &path("/data/scratch/one"),
    )
    .expect("a plan");
    assert_eq!(spec.workspace, root);
    assert!(spec.protections.is_empty());
    let from: Vec<&BytePath> = spec
        .mounts
        .iter()
        .filter_map(|mount| match mount {
            Mount::Bind { source, target, .. } if target.is_within(&root) => Some(source),
            _ => None,
        })
        .collect();
    assert_eq!(from, [&path("/data/worktrees/app/run/one")]);
    let landlock = owner("provider = \"landlock\"");
    let spec = prepare(&landlock, &view, &host, &path("/data/scratch/one")).expect("a plan");
    assert_eq!(spec.workspace, path("/data/worktrees/app/run/one"));
    let may = |at: &str| {
        spec.landlock
            .paths
            .iter()
            .find(|rule| rule.path == path(at))
            .map(|rule| rule.access)
    };
    assert_eq!(may("/data/worktrees/app/run/one"), Some(PathAccess::Write));
    assert_eq!(
        may("/home/ann/src/app/.git/objects"),
        Some(PathAccess::ReadExecute)
    );
    assert_eq!(
        may("/home/ann/src/app"),
        None,
        "B1: the main checkout is out of reach"
    );
}

#[test]
fn fc_34_b3_of_a_linked_trees_repository_only_what_a_commit_needs_is_writable() {
    let spec = plan(&EffectivePolicy::built_in(), &linked_facts());
    let writable: Vec<String> = spec
        .mounts
        .iter()
        .filter_map(|mount| match mount {
            Mount::Bind {
                target,
                access: Access::Write,
                ..
            } if target.is_within(&path("/srv")) => Some(target.to_string()),
            _ => None,
        })
        .collect();
    insta::assert_snapshot!(writable.join("\n"), @r"
    /srv/repo/.git/logs
    /srv/repo/.git/objects
    /srv/repo/.git/refs
    /srv/repo/.git/worktrees/side
    ");
}

#[test]
fn what_stands_beside_a_workspace_in_a_temporary_place_cannot_be_written() {
    let mut host = facts(1000);
    host.workspace.root = path("/var/tmp/scene/ws");
    host.workspace.git = None;
    host.workspace.protected.clear();
    host.workspace.spellings.clear();
    let spec = plan(&EffectivePolicy::built_in(), &host);
    let frozen = place(&spec, "/var/tmp/scene", |mount| {
        matches!(mount, Mount::ReadOnly { .. })
    });
    let shown = place(&spec, "/var/tmp/scene/ws", |mount| {
        matches!(mount, Mount::Bind { .. })
    });
    let made = place(&spec, "/var/tmp/scene", |mount| {
        matches!(mount, Mount::Temporary { .. })
    });
    assert!(made < shown && shown < frozen);
}

#[test]
fn fc_62_fc_64_secrets_stay_out_unless_their_whole_name_is_written() {
    let all = owner("[env]\ninherit = \"all\"\nallow = [\"PG*\", \"MY_API_KEY\"]");
    for name in [
        "MY_API_KEY",
        "PGPASSWORD",
        "DATABASE_URL",
        "GITHUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "NPM_TOKEN",
        "OPENAI_API_KEY",
        "STRIPE_SECRET",
    ] {
        assert!(looks_secret(name), "{name}");
        assert!(
            !is_inheritable(&EffectivePolicy::built_in(), name),
            "{name}"
        );
        assert_eq!(is_inheritable(&all, name), name == "MY_API_KEY", "{name}");
    }
    assert!(is_inheritable(&all, "PGHOST"));
    assert!(is_inheritable(&all, "EDITOR"));
    assert!(!is_inheritable(&EffectivePolicy::built_in(), "EDITOR"));
    for name in [
        "LD_PRELOAD",
        "SSH_AUTH_SOCK",
        "GIT_DIR",
        "DBUS_SESSION_BUS_ADDRESS",
    ] {
        assert!(!is_inheritable(&all, name), "{name}");
    }
}

fn command(
    request: &RunCommand,
    policy: &EffectivePolicy,
) -> Result<cofferdam_core::plan::PlannedCommand, cofferdam_core::error::Problem> {
    let host = facts(1000);
    let spec = plan(policy, &host);
    plan_command(policy, &spec, &host, request, CommandOptions::protocol())
}

#[test]
fn row_4_time_limits_are_checked_clamped_and_told() {
    let built_in = EffectivePolicy::built_in();
    let with = |timeout| RunCommand {
        timeout,
        ..RunCommand::argv(["true"])
    };
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let problem = command(&with(Some(bad)), &built_in).expect_err("refused");
        assert_eq!(problem.code, ErrorCode::InvalidTimeout);
        assert_eq!(problem.field.as_deref(), Some("timeout"));
    }
    let usual = command(&with(None), &built_in).expect("planned");
    assert_eq!(
        (usual.spec.timeout_ms, usual.clamps.len()),
        (Some(120_000), 0)
    );
    let long = command(&with(Some(9999.0)), &built_in).expect("planned");
    assert_eq!(long.spec.timeout_ms, Some(3_600_000));
    assert_eq!(
        (long.clamps[0].requested, long.clamps[0].effective),
        (9999.0, 3600.0)
    );
    let bounded = owner("[limits]\nwall = 5");
    let clamped = command(&with(Some(60.0)), &bounded).expect("planned");
    assert_eq!(clamped.spec.timeout_ms, Some(5_000));
    assert_eq!(clamped.clamps[0].by, "limits.wall");
}

#[test]
fn row_11_fc_31_the_directory_stays_within_the_workspace() {
    let built_in = EffectivePolicy::built_in();
    let at = |cwd: &str| {
        let request = RunCommand {
            cwd: Some(path(cwd)),
            ..RunCommand::argv(["true"])
        };
        command(&request, &built_in).map(|planned| planned.spec.cwd.to_string())
    };
    assert_eq!(at("sub/./a/..").as_deref(), Ok("/home/ann/src/app/sub"));
    assert_eq!(
        at("/home/ann/app/sub").as_deref(),
        Ok("/home/ann/src/app/sub")
    );
    for outside in [
        "..",
        "../x",
        "/home/ann",
        "/home/ann/src/app-evil",
        "sub/../../y",
        "/",
    ] {
        assert_eq!(at(outside).expect_err(outside).code, ErrorCode::CwdOutside);
    }
}

#[test]
fn row_10_words_reach_argv_unchanged_and_text_goes_to_a_plain_shell() {
    let built_in = EffectivePolicy::built_in();
    let words = ["printf", "%s", "a b\"'$x"];
    let planned = command(&RunCommand::argv(words), &built_in).expect("planned");
    assert_eq!(planned.spec.argv, words.map(path));
    let planned = command(&RunCommand::shell("echo $0"), &built_in).expect("planned");
    assert_eq!(planned.spec.argv, ["/bin/bash", "-c", "echo $0"].map(path));
    for bad in [
        RunCommand::argv(Vec::<BytePath>::new()),
        RunCommand::argv([""]),
        RunCommand::argv(["a\0b"]),
    ] {
        assert_eq!(
            command(&bad, &built_in).expect_err("refused").code,
            ErrorCode::InvalidRequest
        );
    }
}

#[test]
fn the_hash_follows_the_walls_and_not_the_scratch_directory() {
    let host = facts(1000);
    let view = WorkspaceView::live(&host.workspace);
    let policy = owner("provider = \"landlock\"");
    let one = prepare(&policy, &view, &host, &path("/data/scratch/one")).expect("a plan");
    let two = prepare(&policy, &view, &host, &path("/data/scratch/two")).expect("a plan");
    assert_eq!(one.hash(), two.hash());
    let full = prepare(
        &owner("provider = \"landlock\"\nnetwork = \"full\""),
        &view,
        &host,
        &path("/s"),
    )
    .expect("a plan");
    assert_ne!(one.hash(), full.hash());
}

#[test]
fn an_explanation_names_every_value_and_what_enforces_each_rule() {
    let host = facts(1000);
    let policy = owner("network = \"full\"");
    let enclosure = plan(&policy, &host);
    let planned = plan_command(
        &policy,
        &enclosure,
        &host,
        &RunCommand::argv(["true"]),
        CommandOptions::command_line(StreamPlan::Pipes),
    )
    .expect("planned");
    let explanation = Explanation::new(
        &policy,
        LaunchSpec {
            enclosure,
            command: planned.spec,
        },
    );
    let network = explanation
        .fields
        .iter()
        .find(|one| one.field == "network")
        .expect("told");
    assert_eq!(
        (network.value.as_str(), network.layer),
        ("\"full\"", Layer::CommandLine)
    );
    for field in [
        "provider",
        "caches",
        "env.inherit",
        "allow.ptrace",
        "permission",
        "setup",
    ] {
        assert!(
            explanation.fields.iter().any(|one| one.field == field),
            "{field}"
        );
    }
    let hooks = explanation
        .rules
        .iter()
        .find(|one| one.rule == "git hooks")
        .expect("told");
    assert_eq!(hooks.enforced_by, [Mechanism::MountNamespace]);
}

#[test]
fn a_denied_directory_is_empty_but_for_what_is_granted_below_it() {
    let host = with_path(facts(1000), "~", "/home/ann", PathKind::Directory);
    let host = with_path(host, "~/src", "/home/ann/src", PathKind::Directory);
    let spec = plan(&owner("read = [\"~\"]\ndeny_read = [\"~/src\"]"), &host);
    let empty = place(&spec, "/home/ann/src", |mount| {
        matches!(mount, Mount::Temporary { .. })
    });
    let shown = place(&spec, "/home/ann/src/app", |mount| {
        matches!(mount, Mount::Bind { .. })
    });
    let frozen = place(&spec, "/home/ann/src", |mount| {
        matches!(mount, Mount::ReadOnly { .. })
    });
    assert!(empty < shown && shown < frozen);
}

#[test]
fn a_directory_of_a_repository_sees_the_rest_of_it() {
    let mut host = facts(1000);
    host.workspace.root = path("/home/ann/src/app/member");
    host.workspace.env_files = vec![path("/home/ann/src/app/.env")];
    host.workspace.spellings.clear();
    let spec = plan(&EffectivePolicy::built_in(), &host);
    let bind = |wanted: Access| move |mount: &Mount| matches!(mount, Mount::Bind { access, .. } if *access == wanted);
    let order = [
        place(&spec, "/home/ann/src/app", bind(Access::Read)),
        place(&spec, "/home/ann/src/app/.git", bind(Access::Write)),
        place(&spec, "/home/ann/src/app/member", bind(Access::Write)),
        place(&spec, "/home/ann/src/app/.git/config", bind(Access::Read)),
    ];
    assert!(order.is_sorted(), "{order:?}");
    place(&spec, "/home/ann/src/app/.env", |mount| {
        matches!(mount, Mount::Mask { .. })
    });
}

#[test]
fn root_that_works_for_somebody_else_uses_places_they_can_enter() {
    let mut host = facts(1000);
    host.caller = facts(0).caller;
    let bwrap = plan(&EffectivePolicy::built_in(), &host);
    assert!(bwrap.caches.is_empty());
    assert!(bwrap.gaps.iter().any(|gap| gap.what == "caches"));
    assert_eq!(bwrap.identity.uid, 1000);
    let go = path("/home/ann/.cache/go-build");
    assert!(
        bwrap.mounts.iter().all(|mount| *mount.target() != go),
        "a cache that cannot be written is worse than none"
    );
    let landlock = plan(&owner("provider = \"landlock\""), &host);
    assert_eq!(landlock.scratch, path("/run/cofferdam/scratch/one"));
}
