//! Pushing in the owner's name: where to, with which hooks, and signing at a merge.

#![expect(
    clippy::disallowed_methods,
    reason = "tests drive ssh-keygen as a user would"
)]

use std::process::{Command, Stdio};

use cofferdam_core::error::ErrorCode;
use cofferdam_core::outbox::{HeldState, ProposedBy, SentAs};
use cofferdam_core::task::{CleanupPolicy, MergeStatus, TaskRequest};
use cofferdam_runtime::MergeOptions;

use crate::remotes::{
    bare, branch_of, code, desk, held, propose, propose_to, push_of, release, remote, script,
};
use crate::support::{has_walls, shell_task, skipped, task};

#[test]
fn row_149_flags_addresses_and_foreign_names_are_no_remotes() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let flag = "--receive-pack=touch /tmp/never";
    let key = format!("remote.{flag}.url");
    desk.git(&["config", &key, bare(&desk, "origin").to_str().unwrap()]);
    let runtime = desk.runtime();
    task(&runtime, shell_task("echo two >a.txt"));
    let path = bare(&desk, "origin");
    for name in [flag, "nowhere", "", path.to_str().unwrap(), "-d", "."] {
        let refused = propose_to(&runtime, "1", Some(name)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::RemoteUnknown, "{name}");
        assert_eq!(refused.field.as_deref(), Some("remote"));
    }
    assert_eq!(code(propose(&runtime, "2")), ErrorCode::TaskUnknown);
    // A task without a branch has nothing to push.
    task(&runtime, shell_task("true"));
    assert_eq!(code(propose(&runtime, "2")), ErrorCode::TaskState);
    // What it is called when it is dropped is not what it did.
    runtime.drop_task("1").unwrap();
    assert_eq!(code(propose(&runtime, "1")), ErrorCode::TaskState);
    assert_eq!(held(&runtime), []);
}

#[test]
fn a_branch_that_is_named_like_a_flag_is_not_pushed() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    desk.git(&["update-ref", "refs/heads/--force", "HEAD"]);
    let runtime = desk.runtime();
    task(&runtime, shell_task("echo two >a.txt"));
    let into = MergeOptions {
        into: Some("--force".to_owned()),
        ..MergeOptions::default()
    };
    let merged = runtime.merge("1", &into).unwrap();
    assert_eq!(merged.merge.status, MergeStatus::Merged);
    let refused = runtime.propose_merged("1", None).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidRequest, "{refused}");
    assert_eq!(remote(&desk, "origin").len(), 1);
}

#[test]
fn nothing_is_forced_and_a_rejected_push_can_be_released_again() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let runtime = desk.runtime();
    let result = task(&runtime, shell_task("echo two >a.txt"));
    let branch = branch_of(&result);
    let id = propose(&runtime, "1").unwrap().held.proposal.proposal_id;
    // The remote has something else by that name, which git's own settings would overwrite.
    let other = desk.git(&["commit-tree", "-m", "theirs", "HEAD^{tree}"]);
    desk.git(&[
        "push",
        "-q",
        "origin",
        &format!("{other}:refs/heads/{branch}"),
    ]);
    desk.git(&["config", "remote.origin.push", "+refs/heads/*:refs/heads/*"]);
    desk.git(&["config", "push.followTags", "true"]);
    desk.git(&["tag", "-a", "-m", "t", "v1", &branch]);
    let failed = release(&runtime, &id).unwrap_err();
    assert_eq!(failed.code, ErrorCode::PushFailed);
    assert!(failed.message.contains("rejected"), "{failed}");
    assert!(remote(&desk, "origin").contains(&format!("{branch} {other}")));
    let now = runtime.held_one(&id).unwrap();
    assert_eq!(now.state, HeldState::Failed);
    assert_eq!(now.problem.unwrap().code, ErrorCode::PushFailed);

    desk.git(&["push", "-q", "origin", &format!(":refs/heads/{branch}")]);
    release(&runtime, &id).unwrap();
    let own = desk.git(&["rev-parse", &branch]);
    let has = remote(&desk, "origin");
    assert!(has.contains(&format!("{branch} {own}")), "{has:?}");
    assert_eq!(has.len(), 2, "no tag has left: {has:?}");
}

#[test]
fn the_owners_hook_runs_as_with_their_own_push_and_a_planted_one_never() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let seen = desk.home.join("seen");
    let look = format!(
        "pwd >{0}; cat >>{0}; echo $API_TOKEN $GIT_DIR >>{0}; test ! -e no || {{ echo 'not so' >&2; exit 1; }}",
        seen.display()
    );
    let hook = desk.repo.join(".git/hooks/pre-push");
    script(&hook, &look);
    let planted = desk.home.join("planted");
    let runtime = desk.runtime();
    let evil = format!(
        "printf '#!/bin/sh\\ntouch {}\\n' >.git/hooks/pre-push; chmod +x .git/hooks/pre-push; \
         git config core.hooksPath $PWD/.git/hooks; echo two >a.txt",
        planted.display()
    );
    let result = task(
        &runtime,
        TaskRequest {
            cleanup_policy: CleanupPolicy::Never,
            ..shell_task(&format!("mkdir -p .git/hooks; {evil}"))
        },
    );
    let proposed = propose(&runtime, "1").unwrap();
    assert_eq!(push_of(&proposed.held).hook, Some(hook.clone().into()));
    let id = proposed.held.proposal.proposal_id;
    desk.write("no", "");
    let failed = release(&runtime, &id).unwrap_err();
    assert_eq!(failed.code, ErrorCode::PushFailed);
    assert!(failed.message.contains("not so"), "{failed}");
    assert_eq!(remote(&desk, "origin").len(), 1);
    std::fs::remove_file(desk.repo.join("no")).unwrap();
    release(&runtime, &id).unwrap();
    let said = std::fs::read_to_string(&seen).unwrap();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], desk.repo.to_str().unwrap());
    let branch = branch_of(&result);
    assert!(lines[1].contains(&format!("refs/heads/{branch}")), "{said}");
    assert_eq!(lines[2].trim_end(), "s3cret-value", "{said}");
    assert!(!planted.exists());

    // Another hook than was shown is not run unasked.
    task(&runtime, shell_task("echo three >a.txt"));
    let id = propose(&runtime, "2").unwrap().held.proposal.proposal_id;
    let tree = result.isolation.workspace_path.unwrap();
    let of_task = tree.as_path().join(".git/hooks");
    desk.git(&["config", "core.hooksPath", of_task.to_str().unwrap()]);
    assert_eq!(code(release(&runtime, &id)), ErrorCode::TargetMoved);
    assert_eq!(code(propose(&runtime, "2")), ErrorCode::Denied);
    assert!(!planted.exists());
}

#[test]
fn hooks_that_are_versioned_do_not_run_where_the_task_changed_them() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let ran = desk.home.join("ran");
    let touch = format!("touch {}", ran.display());
    script(&desk.repo.join(".husky/pre-push"), &touch);
    desk.git(&["add", "-A"]);
    desk.git(&["commit", "-qm", "hooks"]);
    desk.git(&["config", "core.hooksPath", ".husky"]);
    let runtime = desk.runtime();
    task(&runtime, shell_task("echo two >a.txt"));
    task(
        &runtime,
        shell_task("echo '#!/bin/sh' >.husky/pre-push; echo id >>.husky/lib"),
    );
    let refused = propose(&runtime, "2").unwrap_err();
    assert_eq!(refused.code, ErrorCode::Denied, "{refused}");
    runtime.merge("2", &MergeOptions::default()).unwrap();
    let refused = runtime.propose_merged("2", None).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Denied, "{refused}");
    let id = propose(&runtime, "1").unwrap().held.proposal.proposal_id;
    assert!(!ran.exists());
    release(&runtime, &id).unwrap();
}

#[test]
fn merging_and_pushing_is_one_step_of_the_owner() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let runtime = desk.runtime();
    task(&runtime, shell_task("echo two >a.txt"));
    assert_eq!(
        code(runtime.propose_merged("1", None)),
        ErrorCode::TaskState
    );
    runtime.merge("1", &MergeOptions::default()).unwrap();
    let held = runtime.propose_merged("1", None).unwrap();
    assert_eq!(held.proposal.by, ProposedBy::Merge);
    assert_eq!(push_of(&held).branch, "refs/heads/main");
    let answer = release(&runtime, &held.proposal.proposal_id).unwrap();
    let sent = answer.answers[0].held.sent.clone().unwrap();
    assert_eq!(sent.sent_as, SentAs::Forward);
    let main = desk.git(&["rev-parse", "main"]);
    assert_eq!(remote(&desk, "origin"), [format!("main {main}")]);
}

#[test]
fn a_merge_is_signed_with_the_owners_key_where_their_git_says_so() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let key = desk.home.join("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "t@example.com", "-f"])
        .arg(&key)
        .stdin(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        skipped("ssh-keygen is not installed");
        return;
    }
    let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
    let signers = desk.home.join("signers");
    std::fs::write(&signers, format!("t@example.com {public}")).unwrap();
    for (name, value) in [
        ("commit.gpgSign", "true"),
        ("gpg.format", "ssh"),
        ("user.signingKey", key.to_str().unwrap()),
        ("gpg.ssh.allowedSignersFile", signers.to_str().unwrap()),
    ] {
        desk.git(&["config", "--global", name, value]);
    }
    let runtime = desk.runtime();
    // Inside nothing is signed, and nothing of the key is there.
    let look = format!("test ! -e {} || exit 9; echo two >a.txt", key.display());
    let result = task(&runtime, shell_task(&look));
    assert_eq!(result.task_result.unwrap().return_code, Some(0));
    task(&runtime, shell_task("echo n >new.txt"));
    for number in ["1", "2"] {
        let merged = runtime.merge(number, &MergeOptions::default()).unwrap();
        assert_eq!(merged.merge.status, MergeStatus::Merged, "{merged:?}");
        let oid = merged.merge.oid.unwrap();
        assert_eq!(
            desk.git(&["log", "-1", "--format=%G? %GS", &oid]),
            "G t@example.com"
        );
        assert_eq!(desk.git(&["rev-parse", "main"]), oid);
        assert_eq!(desk.git(&["status", "--porcelain"]), "");
    }
    // Without the key nothing is merged unsigned.
    task(&runtime, shell_task("echo m >more.txt"));
    std::fs::rename(&key, desk.home.join("elsewhere")).unwrap();
    let main = desk.git(&["rev-parse", "main"]);
    let refused = runtime.merge("3", &MergeOptions::default()).unwrap();
    assert_eq!(refused.merge.status, MergeStatus::Refused);
    let problem = refused.problem.unwrap();
    assert!(problem.message.contains("could not be signed"), "{problem}");
    assert_eq!(desk.git(&["rev-parse", "main"]), main);
    runtime.undo("2", None).unwrap();
    runtime.undo("1", None).unwrap();
    assert_eq!(desk.read("a.txt"), "one\n");
}
