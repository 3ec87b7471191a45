//! The outbox: pushes are held, shown, released once, and nothing leaves before.

use std::path::PathBuf;
use std::sync::Barrier;

use cofferdam_core::authority::Actor;
use cofferdam_core::error::ErrorCode;
use cofferdam_core::operation::{ListOutbox, Push, RefuseHeld, ReleaseHeld};
use cofferdam_core::outbox::{Effect, HeldState, ProposedBy, SentAs};
use cofferdam_core::policy::ProviderChoice;
use cofferdam_exec::Control;
use cofferdam_runtime::{FrontDoor, MergeOptions, Runtime};

use crate::remotes::{
    add_remote, bare, branch_of, code, desk, held, propose, propose_to, push_of, release, remote,
    script,
};
use crate::support::{
    events, has_walls, kinds, options, provider, rerun, shell_task, skipped, task, task_with, told,
};

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

/// Whatever is proposed, refused, moved and released in whatever order: a remote has exactly what a
/// release said that it sent.
#[test]
fn row_147_nothing_reaches_a_remote_before_it_is_released() {
    if !has_walls() {
        return;
    }
    let mut released = 0;
    for seed in [7_u64, 11] {
        let desk = desk();
        add_remote(&desk, "fork");
        let runtime = desk.runtime();
        let result = task(&runtime, shell_task("echo two >a.txt"));
        let branch = branch_of(&result);
        let reference = format!("refs/heads/{branch}");
        let tip = desk.git(&["rev-parse", &branch]);
        let moved = desk.git(&["commit-tree", "-p", &tip, "-m", "x", "HEAD^{tree}"]);
        let mut sent = std::collections::BTreeSet::new();
        let mut random = seed;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..24 {
            let name = ["origin", "fork"][usize::from(next(2) == 1)];
            let all = ListOutbox {
                all: true,
                ..ListOutbox::default()
            };
            let known = runtime.held(&all).unwrap().held;
            let one = usize::try_from(next(4)).unwrap() % known.len().max(1);
            let one = known.get(one).map(|one| one.proposal.clone());
            match next(6) {
                0 | 1 => drop(propose_to(&runtime, "1", Some(name))),
                2 => {
                    let at = if next(3) > 0 { &tip } else { &moved };
                    desk.git(&["update-ref", &reference, at]);
                }
                3 => {
                    if let Some(one) = one.filter(|_| next(4) == 0) {
                        let refuse = RefuseHeld {
                            proposal_ids: vec![one.proposal_id],
                            ..RefuseHeld::default()
                        };
                        drop(runtime.refuse_held(&refuse, FrontDoor::CommandLine));
                    }
                }
                _ => {
                    if let Some(one) = one
                        && release(&runtime, &one.proposal_id).is_ok()
                    {
                        let Effect::Push { push } = one.effect else {
                            continue;
                        };
                        sent.insert(push.remote);
                    }
                }
            }
            for name in ["origin", "fork"] {
                let has = remote(&desk, name);
                let own = has.iter().find(|one| one.starts_with(&branch));
                let expected = sent.contains(name).then(|| format!("{branch} {tip}"));
                assert_eq!(own, expected.as_ref(), "seed {seed}: {name} has {has:?}");
            }
        }
        released += sent.len();
    }
    assert!(released > 0, "nothing was released at all");
}
