//! A desk with a remote, and what tests of the outbox do there.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::authority::Actor;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::id::ProposalId;
use cofferdam_core::operation::{ListOutbox, OutboxAnswer, Proposed, Push, ReleaseHeld};
use cofferdam_core::outbox::{Effect, Held, PushEffect};
use cofferdam_core::task::TaskResult;
use cofferdam_runtime::{FrontDoor, Runtime};

use crate::support::Desk;

/// A repository with a bare one as its `origin`, which has `main`.
pub(crate) fn desk() -> Desk {
    let desk = Desk::with_repository();
    add_remote(&desk, "origin");
    desk.git(&["push", "-q", "-u", "origin", "main"]);
    desk
}

pub(crate) fn bare(desk: &Desk, name: &str) -> PathBuf {
    desk.home
        .parent()
        .expect("a desk")
        .join(format!("{name}.git"))
}

pub(crate) fn add_remote(desk: &Desk, name: &str) {
    let place = bare(desk, name);
    desk.git(&["init", "-q", "--bare", place.to_str().expect("a desk")]);
    desk.git(&["remote", "add", name, place.to_str().expect("a desk")]);
}

/// What a remote has.
pub(crate) fn remote(desk: &Desk, name: &str) -> Vec<String> {
    let place = bare(desk, name);
    let listed = desk.git(&[
        "--git-dir",
        place.to_str().expect("a desk"),
        "for-each-ref",
        "--format=%(refname:short) %(objectname)",
    ]);
    listed.lines().map(str::to_owned).collect()
}

pub(crate) fn propose(runtime: &Runtime, name: &str) -> Result<Proposed, Problem> {
    propose_to(runtime, name, None)
}

pub(crate) fn propose_to(
    runtime: &Runtime,
    name: &str,
    remote: Option<&str>,
) -> Result<Proposed, Problem> {
    let request = Push {
        task: name.to_owned(),
        remote: remote.map(str::to_owned),
    };
    runtime.propose_push(&request, Actor::Protocol, None)
}

pub(crate) fn release(runtime: &Runtime, id: &ProposalId) -> Result<OutboxAnswer, Problem> {
    let request = ReleaseHeld {
        proposal_ids: vec![id.clone()],
        task: None,
    };
    runtime.release_held(&request, FrontDoor::CommandLine)
}

pub(crate) fn held(runtime: &Runtime) -> Vec<Held> {
    runtime.held(&ListOutbox::default()).expect("a desk").held
}

pub(crate) fn push_of(held: &Held) -> &PushEffect {
    let Effect::Push { push } = &held.proposal.effect else {
        panic!("no push: {held:?}");
    };
    push
}

pub(crate) fn code<T: std::fmt::Debug>(outcome: Result<T, Problem>) -> ErrorCode {
    outcome.expect_err("it is refused").code
}

pub(crate) fn script(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a desk")).expect("a desk");
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("a desk");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("a desk");
}

pub(crate) fn branch_of(result: &TaskResult) -> String {
    result.isolation.branch.clone().expect("a branch")
}
