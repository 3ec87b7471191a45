//! The outbox: pushes are held, shown, released once, and nothing leaves before.

#![expect(
    clippy::disallowed_methods,
    reason = "tests drive git and ssh-keygen as a user would"
)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;

use cofferdam_core::authority::Actor;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::id::ProposalId;
use cofferdam_core::operation::{
    ListOutbox, OutboxAnswer, Push, PushProposed, RefuseHeld, ReleaseHeld,
};
use cofferdam_core::outbox::{Effect, Held, HeldState, ProposedBy, PushEffect, SentAs};
use cofferdam_core::policy::ProviderChoice;
use cofferdam_core::task::{CleanupPolicy, MergeStatus, TaskRequest, TaskResult};
use cofferdam_exec::Control;
use cofferdam_runtime::{FrontDoor, MergeOptions, Runtime};

use crate::support::{
    Desk, events, has_walls, kinds, options, provider, rerun, shell_task, skipped, task, task_with,
    told,
};

/// A repository with a bare one as its `origin`, which has `main`.
fn desk() -> Desk {
    let desk = Desk::with_repository();
    add_remote(&desk, "origin");
    desk.git(&["push", "-q", "-u", "origin", "main"]);
    desk
}

fn bare(desk: &Desk, name: &str) -> PathBuf {
    desk.home
        .parent()
        .expect("a desk")
        .join(format!("{name}.git"))
}

fn add_remote(desk: &Desk, name: &str) {
    let place = bare(desk, name);
    desk.git(&["init", "-q", "--bare", place.to_str().expect("a desk")]);
    desk.git(&["remote", "add", name, place.to_str().expect("a desk")]);
}

/// What a remote has.
fn remote(desk: &Desk, name: &str) -> Vec<String> {
    let place = bare(desk, name);
    let listed = desk.git(&[
        "--git-dir",
        place.to_str().expect("a desk"),
        "for-each-ref",
        "--format=%(refname:short) %(objectname)",
    ]);
    listed.lines().map(str::to_owned).collect()
}

fn propose(runtime: &Runtime, name: &str) -> Result<PushProposed, Problem> {
    propose_to(runtime, name, None)
}

fn propose_to(
    runtime: &Runtime,
    name: &str,
    remote: Option<&str>,
) -> Result<PushProposed, Problem> {
    let request = Push {
        task: name.to_owned(),
        remote: remote.map(str::to_owned),
    };
    runtime.propose_push(&request, Actor::Protocol, None)
}

fn release(runtime: &Runtime, id: &ProposalId) -> Result<OutboxAnswer, Problem> {
    let request = ReleaseHeld {
        proposal_ids: vec![id.clone()],
        task: None,
    };
    runtime.release_held(&request, FrontDoor::CommandLine)
}

fn held(runtime: &Runtime) -> Vec<Held> {
    runtime.held(&ListOutbox::default()).expect("a desk").held
}

fn push_of(held: &Held) -> &PushEffect {
    let Effect::Push { push } = &held.proposal.effect;
    push
}

fn code<T: std::fmt::Debug>(outcome: Result<T, Problem>) -> ErrorCode {
    outcome.expect_err("it is refused").code
}

fn script(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a desk")).expect("a desk");
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("a desk");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("a desk");
}

fn branch_of(result: &TaskResult) -> String {
    result.isolation.branch.clone().expect("a branch")
}

#[test]
fn row_149_only_the_tasks_own_branch_leaves_and_only_when_it_is_released() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let before = remote(&desk, "origin");
    let id = {
        let runtime = desk.runtime();
        let result = task(&runtime, shell_task("echo two >a.txt"));
        let proposed = propose(&runtime, "1").unwrap();
        assert!(proposed.is_new);
        let held = proposed.held;
        assert_eq!(held.state, HeldState::Held);
        assert_eq!(held.proposal.binding.task, Some(result.task_id.clone()));
        let push = push_of(&held);
        let branch = branch_of(&result);
        assert_eq!(push.remote, "origin");
        assert_eq!(push.urls, [bare(&desk, "origin").to_str().unwrap()]);
        assert_eq!(push.branch, format!("refs/heads/{branch}"));
        assert_eq!(push.commit, desk.git(&["rev-parse", &branch]));
        assert_eq!(push.commits.len(), 1);
        assert_eq!(push.summary.files, 1);
        assert_eq!(push.cautions.len(), 1, "{:?}", push.cautions);
        // The same again is the same.
        let again = propose(&runtime, "1").unwrap();
        assert!(!again.is_new);
        assert_eq!(again.held, held);
        // It is looked at with everything else, and keeps the task open.
        let review = runtime.review("1", false).unwrap();
        assert_eq!(review.held, std::slice::from_ref(&held));
        let next = "cofferdam outbox release 1".to_owned();
        assert!(review.next.contains(&next), "{:?}", review.next);
        let merged = runtime.merge("1", &MergeOptions::default()).unwrap();
        assert!(merged.next.contains(&next), "{:?}", merged.next);
        assert!(runtime.review_open(false).unwrap()[0].open);
        held.proposal.proposal_id
    };
    assert_eq!(remote(&desk, "origin"), before, "nothing has left");

    // It survives whoever held it.
    let runtime = desk.runtime();
    let seen = held(&runtime);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].proposal.proposal_id, id);
    let answer = release(&runtime, &id).unwrap();
    assert!(answer.success);
    let sent = answer.answers[0].held.clone();
    assert_eq!(sent.state, HeldState::Released);
    assert_eq!(sent.sent.as_ref().unwrap().sent_as, SentAs::New);
    let push = push_of(&sent);
    let short = push.branch.trim_start_matches("refs/heads/");
    let mut expected = before;
    expected.insert(0, format!("{short} {}", push.commit));
    assert_eq!(remote(&desk, "origin"), expected);

    // Once, and a late answer is a conflict.
    assert_eq!(code(release(&runtime, &id)), ErrorCode::ProposalDecided);
    let refuse = RefuseHeld {
        proposal_ids: vec![id.clone()],
        ..RefuseHeld::default()
    };
    let late = runtime.refuse_held(&refuse, FrontDoor::CommandLine);
    assert_eq!(code(late), ErrorCode::ProposalDecided);
    assert_eq!(held(&runtime), []);
    assert_eq!(runtime.review_open(false).unwrap(), []);
    let told = events(&runtime);
    let of_outbox: Vec<_> = told.iter().filter(|one| one.area() == "outbox").collect();
    let names: Vec<_> = of_outbox.iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(names, ["outbox.proposed", "outbox.released", "outbox.sent"]);
    assert!(of_outbox.iter().all(|one| one.task.is_some()));
}

#[test]
fn row_149_what_is_not_as_it_was_shown_is_refused_and_stays_held() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let runtime = desk.runtime();
    let result = task(&runtime, shell_task("echo two >a.txt"));
    let branch = branch_of(&result);
    let before = remote(&desk, "origin");
    let id = propose(&runtime, "1").unwrap().held.proposal.proposal_id;
    let tip = desk.git(&["rev-parse", &branch]);

    // A branch that moved, before and after it is proposed.
    let moved = desk.git(&["commit-tree", "-p", &tip, "-m", "x", "HEAD^{tree}"]);
    desk.git(&["update-ref", &format!("refs/heads/{branch}"), &moved]);
    assert_eq!(code(release(&runtime, &id)), ErrorCode::TargetMoved);
    assert_eq!(code(propose(&runtime, "1")), ErrorCode::TargetMoved);
    desk.git(&["branch", "-D", &branch]);
    assert_eq!(code(release(&runtime, &id)), ErrorCode::TargetMoved);
    desk.git(&["update-ref", &format!("refs/heads/{branch}"), &tip]);

    // A remote that leads elsewhere, or is gone.
    let other = bare(&desk, "other");
    desk.git(&["init", "-q", "--bare", other.to_str().unwrap()]);
    let url = bare(&desk, "origin");
    desk.git(&["remote", "set-url", "origin", other.to_str().unwrap()]);
    assert_eq!(code(release(&runtime, &id)), ErrorCode::TargetMoved);
    desk.git(&["remote", "set-url", "origin", url.to_str().unwrap()]);
    desk.git(&["remote", "rename", "origin", "away"]);
    assert_eq!(code(release(&runtime, &id)), ErrorCode::RemoteUnknown);
    desk.git(&["remote", "rename", "away", "origin"]);

    assert_eq!(held(&runtime).len(), 1);
    assert_eq!(remote(&desk, "origin"), before);
    assert_eq!(remote(&desk, "other"), [""; 0]);
    assert!(!kinds(&events(&runtime)).contains(&"outbox.released"));
    release(&runtime, &id).unwrap();
    assert_eq!(remote(&desk, "origin").len(), before.len() + 1);
}

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
fn row_147_one_answer_releases_all_or_part() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    add_remote(&desk, "fork");
    add_remote(&desk, "third");
    let runtime = desk.runtime();
    task(&runtime, shell_task("echo two >a.txt"));
    task(&runtime, shell_task("echo three >a.txt"));
    let mut ids = Vec::new();
    for name in ["origin", "fork", "third"] {
        let proposed = propose_to(&runtime, "1", Some(name)).unwrap();
        ids.push(proposed.held.proposal.proposal_id);
    }
    let other = propose(&runtime, "2").unwrap().held.proposal.proposal_id;
    let part = ReleaseHeld {
        proposal_ids: vec![ids[1].clone()],
        task: None,
    };
    runtime.release_held(&part, FrontDoor::Protocol).unwrap();
    assert_eq!(remote(&desk, "fork").len(), 1);
    assert_eq!(remote(&desk, "third"), [""; 0]);
    // One that cannot be sent does not hold the others back.
    std::fs::remove_dir_all(bare(&desk, "origin")).unwrap();
    let all = ReleaseHeld {
        proposal_ids: Vec::new(),
        task: Some("1".to_owned()),
    };
    let answer = runtime.release_held(&all, FrontDoor::Protocol).unwrap();
    assert!(!answer.success);
    let became: Vec<_> = answer.answers.iter().map(|one| one.held.state).collect();
    assert_eq!(became, [HeldState::Failed, HeldState::Released]);
    assert_eq!(remote(&desk, "third").len(), 1);
    // Unanswered, nothing leaves; refused, it never does.
    let refuse = RefuseHeld {
        task: Some("1".to_owned()),
        reason: Some("not yet".to_owned()),
        ..RefuseHeld::default()
    };
    runtime.refuse_held(&refuse, FrontDoor::Protocol).unwrap();
    assert_eq!(code(release(&runtime, &ids[0])), ErrorCode::ProposalDecided);
    let nothing = runtime.release_held(&all, FrontDoor::Protocol);
    assert_eq!(code(nothing), ErrorCode::ProposalUnknown);
    // What was refused only the owner proposes anew.
    desk.git(&[
        "init",
        "-q",
        "--bare",
        bare(&desk, "origin").to_str().unwrap(),
    ]);
    let again = propose(&runtime, "1").unwrap();
    assert!(!again.is_new);
    assert_eq!(again.held.state, HeldState::Refused);
    let request = Push {
        task: "1".to_owned(),
        remote: None,
    };
    let anew = runtime.propose_push(&request, Actor::Owner, None).unwrap();
    assert!(anew.is_new);
    assert_eq!(anew.held.state, HeldState::Held);
    // With its branch goes what would push it.
    runtime.drop_task("1").unwrap();
    let id = &anew.held.proposal.proposal_id;
    assert_eq!(runtime.held_one(id).unwrap().state, HeldState::Refused);
    let left: Vec<_> = held(&runtime)
        .into_iter()
        .map(|one| one.proposal.proposal_id)
        .collect();
    assert_eq!(left, [other]);
    let both = ReleaseHeld {
        proposal_ids: ids,
        task: Some("1".to_owned()),
    };
    let unclear = runtime.release_held(&both, FrontDoor::Protocol);
    assert_eq!(code(unclear), ErrorCode::InvalidRequest);
}

#[test]
fn of_two_releases_at_once_one_is_carried_out() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let log = desk.home.join("pushed");
    let line = format!("echo pushed >>{}; sleep 0.2", log.display());
    script(&desk.repo.join(".git/hooks/pre-push"), &line);
    task(&desk.runtime(), shell_task("echo two >a.txt"));
    let id = {
        let runtime = desk.runtime();
        propose(&runtime, "1").unwrap().held.proposal.proposal_id
    };
    let start = Barrier::new(2);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let runtime = desk.runtime();
                    start.wait();
                    release(&runtime, &id).map(|answer| answer.success)
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let good = outcomes.iter().filter(|one| one.is_ok()).count();
    assert_eq!(good, 1, "{outcomes:?}");
    let late = outcomes.into_iter().find_map(Result::err).unwrap();
    assert_eq!(late.code, ErrorCode::ProposalDecided);
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "pushed\n");
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
fn row_147_git_push_in_a_tasks_own_tree_becomes_a_proposal() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let runtime = desk.runtime();
    let before = remote(&desk, "origin");
    let script = "test \"$COFFERDAM_BRANCH\" = \"$(git branch --show-current)\" || exit 9
        echo two >a.txt && git commit -qam two && mkdir sub && cd sub
        git push origin HEAD 2>&1 || exit 8
        git push origin HEAD:refs/heads/main 2>&1 && exit 7
        git push -f origin HEAD~:refs/heads/other 2>&1 && exit 6
        git push origin :$COFFERDAM_BRANCH 2>&1 && exit 5
        echo left >../left.txt";
    let result = task(&runtime, shell_task(script));
    let outcome = result.task_result.as_ref().unwrap();
    assert_eq!(outcome.return_code, Some(0), "{}", outcome.output);
    let said = &outcome.output;
    for words in [
        "held: nothing has left this machine",
        "only this task's own branch can be pushed",
        "git push origin HEAD:refs/heads/cofferdam/",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let list = held(&runtime);
    assert_eq!(list.len(), 1, "{list:?}");
    assert_eq!(list[0].proposal.by, ProposedBy::Task);
    let push = push_of(&list[0]);
    let branch = branch_of(&result);
    // Exactly what it pushed, not what came after.
    assert_eq!(push.commit, desk.git(&["rev-parse", &format!("{branch}~")]));
    assert_eq!(push.tip, desk.git(&["rev-parse", &branch]));
    assert!(push.cautions[0].contains("goes on"), "{:?}", push.cautions);
    let review = runtime.review("1", false).unwrap();
    assert_eq!(review.held.len(), 1);
    assert_eq!(review.notes, [""; 0]);
    assert_eq!(remote(&desk, "origin"), before);
    let id = list[0].proposal.proposal_id.clone();
    let pushed = push.commit.clone();
    release(&runtime, &id).unwrap();
    let has = remote(&desk, "origin");
    assert!(has.contains(&format!("{branch} {pushed}")), "{has:?}");
    assert_eq!(has.len(), before.len() + 1);
    assert_eq!(desk.git(&["status", "--porcelain"]), "");
}

#[test]
fn what_a_task_pushed_and_then_rewrote_or_made_up_is_not_proposed() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let runtime = desk.runtime();
    let rewritten = "echo two >a.txt && git commit -qam two && git push -q origin HEAD
        echo three >a.txt && git commit -qa --amend -m three";
    task(&runtime, shell_task(rewritten));
    // Its own place says anything: an object of the owner's, none at all, a link.
    let forged = "echo two >a.txt; d=.git/cofferdam-outbox/origin/refs/heads/$COFFERDAM_BRANCH
        mkdir -p ${d%/*}; git rev-parse HEAD >$d";
    task(&runtime, shell_task(forged));
    let text = "echo two >a.txt; d=.git/cofferdam-outbox/origin/refs/heads/$COFFERDAM_BRANCH
        mkdir -p ${d%/*}; echo 'not an id; rm -rf /' >$d";
    task(&runtime, shell_task(text));
    let link = "echo two >a.txt; d=.git/cofferdam-outbox/origin/refs/heads/$COFFERDAM_BRANCH
        mkdir -p ${d%/*}; ln -s /etc/passwd $d";
    task(&runtime, shell_task(link));
    assert_eq!(held(&runtime), []);
    let notes = runtime.review("1", false).unwrap().notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("is not proposed"), "{notes:?}");
    assert_eq!(remote(&desk, "origin").len(), 1);
}

#[test]
fn without_walls_a_push_in_the_tree_is_held_too() {
    let desk = desk();
    let runtime = desk.runtime();
    let before = remote(&desk, "origin");
    let result = task_with(
        &runtime,
        provider(ProviderChoice::Direct),
        shell_task("echo two >a.txt && git commit -qam two && git push -q origin HEAD"),
        &Control::new(),
        &mut |_| {},
    );
    if result.task_result.is_none() {
        skipped("a task without walls is not run here");
        return;
    }
    assert_eq!(held(&runtime).len(), 1, "{result:?}");
    assert_eq!(remote(&desk, "origin"), before);
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

/// Runs in a process of its own, see [`rerun`], and dies when git runs the owner's hook.
#[test]
#[ignore = "the child of another test"]
fn child() {
    let (Some(desk), Some(id)) = (told("COFFERDAM_TEST_DESK"), told("COFFERDAM_TEST_STAGE")) else {
        return;
    };
    let desk = PathBuf::from(desk);
    let options = options(&desk.join("home"), &desk.join("data"), &desk.join("repo"));
    let runtime = Runtime::open(options).unwrap();
    let _ = release(&runtime, &id.parse().unwrap());
}

#[test]
fn a_release_that_was_cut_off_is_no_success_and_can_be_released_again() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let hook = desk.repo.join(".git/hooks/pre-push");
    let kill = "read -r _ _ _ plane _ </proc/$PPID/stat; kill -9 $plane; sleep 1; exit 1";
    script(&hook, kill);
    let id = {
        let runtime = desk.runtime();
        task(&runtime, shell_task("echo two >a.txt"));
        propose(&runtime, "1").unwrap().held.proposal.proposal_id
    };
    assert!(!rerun(&desk, "outbox::child", id.as_str()).success());
    let runtime = desk.runtime();
    let now = runtime.held_one(&id).unwrap();
    assert_eq!(now.state, HeldState::Failed);
    let problem = now.problem.unwrap();
    assert!(problem.message.contains("not known"), "{problem}");
    assert_eq!(remote(&desk, "origin").len(), 1);
    script(&hook, "exit 0");
    release(&runtime, &id).unwrap();
    assert_eq!(remote(&desk, "origin").len(), 2);
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
