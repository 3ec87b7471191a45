//! The conformance suite over every provider of this host.

use cofferdam_core::spec::ProviderKind;
use cofferdam_exec::conformance::{Candidate, Verdict, run_all};

use crate::engine::TestEngine;
use crate::smoke::{Outside, plane, planned};

fn every_promise_is_kept(provider: ProviderKind) {
    kept_with(provider, None);
}

fn kept_with(provider: ProviderKind, docker_host: Option<String>) {
    let data = tempfile::tempdir().expect("a directory");
    let workspace = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let outside = tempfile::tempdir_in("/var/tmp").expect("a directory");
    std::fs::write(outside.path().join("secret"), "secret\n").expect("written");
    let home = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let (data_dir, home_dir) = (data.path().join("data"), home.path().to_owned());
    let candidate = Candidate {
        provider,
        plane: plane(data.path()),
        workspace: workspace.path().canonicalize().expect("a path"),
        outside: outside.path().to_owned(),
        spec: Box::new(move |workspace, provider| {
            planned(
                provider,
                &Outside {
                    workspace,
                    data: &data_dir,
                    home: &home_dir,
                    docker_host: docker_host.as_deref(),
                },
            )
        }),
    };
    let reports = run_all(&candidate);
    let mut failed = 0;
    for report in &reports {
        println!("{report}");
        failed += usize::from(matches!(report.verdict, Verdict::Failed(_)));
    }
    assert_eq!(failed, 0, "of {} promises", reports.len());
}

#[test]
fn direct_conforms() {
    every_promise_is_kept(ProviderKind::Direct);
}

#[test]
fn landlock_conforms() {
    every_promise_is_kept(ProviderKind::Landlock);
}

#[test]
fn bwrap_conforms() {
    every_promise_is_kept(ProviderKind::Bwrap);
}

#[test]
fn container_conforms() {
    if let Some(engine) = TestEngine::start() {
        kept_with(ProviderKind::Container, Some(engine.host()));
    }
}

#[test]
fn memory_conforms() {
    every_promise_is_kept(ProviderKind::Memory);
}
