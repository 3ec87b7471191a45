//! What leaves besides pushes: pull requests, publications, files outside of the workspace.

use std::path::PathBuf;

use cofferdam_core::authority::{Actor, Authority};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::{
    Encoding, ListOutbox, Proposed, Publish, PullRequest, RefuseHeld, ReleaseHeld, WriteOutside,
};
use cofferdam_core::outbox::{Effect, HeldState, ProposedBy, SentAs};
use cofferdam_core::policy::ProviderChoice;
use cofferdam_exec::Control;
use cofferdam_runtime::{FileRequest, FrontDoor, PolicyRequest, Runtime, TaskProgress};
use serde_json::Value;

use crate::remotes::{bare, branch_of, code, desk, held, release, remote, script};
use crate::support::{
    Desk, events, has_walls, options, provider, rerun, shell_task, task, task_with, told,
};

fn open(runtime: &Runtime, title: &str, actor: Actor) -> Result<Proposed, Problem> {
    let request = PullRequest {
        task: "1".to_owned(),
        title: title.to_owned(),
        body: "It mends.\n\nAll of it.".to_owned(),
        base: None,
        remote: None,
    };
    runtime.propose_pull_request(&request, actor, None)
}

fn publish(runtime: &Runtime, argv: &[&str], actor: Actor) -> Result<Proposed, Problem> {
    let request = Publish {
        task: "1".to_owned(),
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        directory: BytePath::default(),
    };
    runtime.propose_publish(&request, actor, None)
}

fn write(desk: &Desk, path: &str, content: &str) -> (FileRequest, WriteOutside) {
    let who = FileRequest {
        policy: PolicyRequest {
            workspace: Some(desk.repo.clone()),
            ..provider(ProviderChoice::Direct)
        },
        authority: Authority::new(Actor::Protocol, BytePath::from(desk.repo.as_path())),
        front_door: FrontDoor::Protocol,
        control: Control::new(),
    };
    let request = WriteOutside {
        path: BytePath::from(path),
        content: content.to_owned(),
        encoding: Encoding::Utf8,
        expected_digest: None,
    };
    (who, request)
}

/// A remote at a forge's own address, reached by a connection that leads to the bare repository.
fn at_a_forge(desk: &Desk) {
    let ssh = desk.home.join("bin/connect");
    let lead = format!(
        "for last; do :; done; exec sh -c \"$(printf %s \"$last\" | sed \"s#'[^']*'#'{}'#\")\"",
        bare(desk, "origin").display()
    );
    script(&ssh, &lead);
    desk.git(&["config", "core.sshCommand", ssh.to_str().expect("a desk")]);
    desk.git(&["remote", "set-url", "origin", "git@github.com:o/n.git"]);
}

/// A program that writes down what it got.
fn recorder(desk: &Desk, name: &str, more: &str) -> PathBuf {
    let log = desk.home.join(format!("{name}.log"));
    let text = format!(
        "exec 3>>{log}; printf '%s\\n' \"$@\" >&3; cat >&3; echo >&3; {more}",
        log = log.display()
    );
    script(&desk.home.join("bin").join(name), &text);
    log
}

#[test]
fn row_149_a_pull_request_is_opened_once_after_its_push() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    at_a_forge(&desk);
    let log = recorder(&desk, "gh", "echo https://github.com/o/n/pull/7");
    let runtime = desk.runtime();
    let result = task(&runtime, shell_task("echo two >a.txt"));
    let branch = branch_of(&result);
    let proposed = open(&runtime, "Mend 'a'", Actor::Protocol).unwrap();
    let Effect::PullRequest { pull_request } = &proposed.held.proposal.effect else {
        panic!("{proposed:?}");
    };
    assert_eq!(pull_request.base, "main");
    assert_eq!(pull_request.commit, desk.git(&["rev-parse", &branch]));
    assert_eq!(
        pull_request.argv[1..4],
        ["pr", "create", "--repo=github.com/o/n"]
    );
    let before = proposed.before.clone().unwrap();
    assert_eq!(held(&runtime).len(), 2);
    assert_eq!(runtime.review("1", false).unwrap().held.len(), 2);
    // Without its push it is not opened, and stays held.
    let id = proposed.held.proposal.proposal_id.clone();
    assert_eq!(code(release(&runtime, &id)), ErrorCode::TargetMoved);
    assert!(!log.exists());
    assert_eq!(remote(&desk, "origin").len(), 1);
    // One answer releases both, in order.
    let all = ReleaseHeld {
        proposal_ids: Vec::new(),
        task: Some("1".to_owned()),
    };
    let answer = runtime.release_held(&all, FrontDoor::CommandLine).unwrap();
    assert!(answer.success, "{answer:?}");
    let sent: Vec<_> = answer
        .answers
        .iter()
        .map(|one| one.held.sent.clone().unwrap())
        .collect();
    assert_eq!(sent[0].sent_as, SentAs::New);
    assert_eq!(sent[1].sent_as, SentAs::Opened);
    assert_eq!(sent[1].said, "https://github.com/o/n/pull/7");
    let expected = format!(
        "pr\ncreate\n--repo=github.com/o/n\n--head={branch}\n--base=main\n--title=Mend 'a'\n--body-file=-\nIt mends.\n\nAll of it.\n"
    );
    assert_eq!(std::fs::read_to_string(&log).unwrap(), expected);
    assert_eq!(remote(&desk, "origin").len(), 2);
    // Once.
    assert_eq!(code(release(&runtime, &id)), ErrorCode::ProposalDecided);
    assert_eq!(
        open(&runtime, "Mend 'a'", Actor::Protocol)
            .unwrap()
            .held
            .state,
        HeldState::Released
    );
    assert_eq!(std::fs::read_to_string(&log).unwrap(), expected);
    assert_eq!(
        runtime
            .held_one(&before.proposal.proposal_id)
            .unwrap()
            .state,
        HeldState::Released
    );
}

#[test]
fn row_149_a_program_of_the_owners_opens_what_no_forge_is_known_for() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let log = recorder(&desk, "opener", "echo opened");
    let path = desk.home.join("bin/opener");
    desk.git(&["config", "cofferdam.pullRequest", path.to_str().unwrap()]);
    let runtime = desk.runtime();
    task(&runtime, shell_task("echo two >a.txt"));
    let proposed = open(&runtime, "A title", Actor::Owner).unwrap();
    let ids = [proposed.before.unwrap(), proposed.held].map(|held| held.proposal.proposal_id);
    release(&runtime, &ids[0]).unwrap();
    // Another program than was shown opens nothing.
    let other = recorder(&desk, "other", "");
    desk.git(&[
        "config",
        "cofferdam.pullRequest",
        desk.home.join("bin/other").to_str().unwrap(),
    ]);
    assert_eq!(code(release(&runtime, &ids[1])), ErrorCode::TargetMoved);
    desk.git(&["config", "cofferdam.pullRequest", path.to_str().unwrap()]);
    release(&runtime, &ids[1]).unwrap();
    assert!(!other.exists());
    let got: Value = serde_json::from_str(std::fs::read_to_string(log).unwrap().trim()).unwrap();
    assert_eq!(got["title"], "A title");
    assert_eq!(got["base"], "main");
    assert_eq!(got["url"], bare(&desk, "origin").to_str().unwrap());
}

#[test]
fn row_149_where_nothing_opens_pull_requests_it_is_refused_with_a_remedy() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let runtime = desk.runtime();
    task(&runtime, shell_task("echo two >a.txt"));
    let refused = open(&runtime, "t", Actor::Protocol).unwrap_err();
    assert_eq!(refused.code, ErrorCode::ForgeUnknown);
    assert!(refused.hint.unwrap().contains("cofferdam.pullRequest"));
    // A forge that is known and whose program is not there; one in the workspace is none.
    desk.git(&[
        "remote",
        "set-url",
        "origin",
        "https://gitlab.com/g/s/p.git",
    ]);
    let refused = open(&runtime, "t", Actor::Protocol).unwrap_err();
    assert_eq!(refused.code, ErrorCode::ForgeUnknown, "{refused}");
    assert!(refused.message.contains("is not installed"), "{refused}");
    let planted = desk.repo.join("planted");
    script(&planted, "true");
    desk.git(&["config", "cofferdam.pullRequest", planted.to_str().unwrap()]);
    assert_eq!(
        code(open(&runtime, "t", Actor::Protocol)),
        ErrorCode::ForgeUnknown
    );
    for title in ["", " \n ", "two\nlines", "esc\u{1b}[31m"] {
        assert_eq!(
            code(open(&runtime, title, Actor::Protocol)),
            ErrorCode::InvalidRequest
        );
    }
    let request = |base: &str| PullRequest {
        task: "1".to_owned(),
        title: "t".to_owned(),
        body: String::new(),
        base: Some(base.to_owned()),
        remote: None,
    };
    for base in ["--force", "", "a:b", "a b", "../x"] {
        let refused = runtime.propose_pull_request(&request(base), Actor::Owner, None);
        assert_eq!(code(refused), ErrorCode::InvalidRequest, "{base}");
    }
    assert_eq!(held(&runtime), []);
}

#[test]
fn row_147_what_is_published_is_exactly_the_commit_that_was_shown() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let log = desk.home.join("published");
    let record = format!(
        "{{ pwd; printf '%s\\n' \"$@\"; find . ! -name . | sort; cat a.txt; env | grep ^API_TOKEN; }} >>{}; echo published 1.0",
        log.display()
    );
    script(&desk.home.join("bin/registry"), &record);
    let runtime = desk.runtime();
    task(
        &runtime,
        shell_task("echo two >a.txt; mkdir -p ignored; echo x >ignored/x; echo '{}' >package.json"),
    );
    let proposed = publish(
        &runtime,
        &["registry", "publish", "--tag", "a b"],
        Actor::Protocol,
    )
    .unwrap();
    let Effect::Publish { publish: shown } = &proposed.held.proposal.effect else {
        panic!("{proposed:?}");
    };
    assert_eq!(shown.argv, ["registry", "publish", "--tag", "a b"]);
    assert_eq!(
        shown.program,
        BytePath::from(desk.home.join("bin/registry"))
    );
    assert!(
        shown.cautions[0].contains("it runs as you"),
        "{:?}",
        shown.cautions
    );
    assert!(
        shown.cautions[1].contains("package.json"),
        "{:?}",
        shown.cautions
    );
    assert!(!log.exists(), "nothing has run");
    // What the owner does meanwhile in their checkout is not in it.
    desk.write("a.txt", "mine\n");
    let id = proposed.held.proposal.proposal_id;
    let answer = release(&runtime, &id).unwrap();
    let sent = answer.answers[0].held.sent.clone().unwrap();
    assert_eq!(
        (sent.sent_as, sent.said.as_str()),
        (SentAs::Published, "published 1.0")
    );
    let got = std::fs::read_to_string(&log).unwrap();
    let (place, rest) = got.split_once('\n').unwrap();
    assert_eq!(
        rest,
        "publish\n--tag\na b\n./.gitignore\n./Makefile\n./a.txt\n./b.txt\n./package.json\ntwo\nAPI_TOKEN=s3cret-value\n"
    );
    assert!(!PathBuf::from(place).exists(), "the export is gone");
    assert_eq!(code(release(&runtime, &id)), ErrorCode::ProposalDecided);
    assert_eq!(std::fs::read_to_string(&log).unwrap(), got);
}

#[test]
fn row_147_a_commit_with_a_way_out_and_a_program_from_the_workspace_are_not_published() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    script(&desk.home.join("bin/registry"), "true");
    let runtime = desk.runtime();
    let secret = desk.home.join("secret");
    std::fs::write(&secret, "s").unwrap();
    task(
        &runtime,
        shell_task(&format!("ln -s {} README", secret.display())),
    );
    let refused = publish(&runtime, &["registry"], Actor::Owner).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Denied, "{refused}");
    for argv in [&["./a.txt"][..], &["/nowhere/x"], &["no-such-program"]] {
        let argv: Vec<&str> = argv.to_vec();
        let refused = publish(&runtime, &argv, Actor::Owner).unwrap_err();
        assert!(
            [ErrorCode::NotFound, ErrorCode::Denied].contains(&refused.code),
            "{refused}"
        );
    }
    assert_eq!(
        code(publish(&runtime, &[], Actor::Owner)),
        ErrorCode::InvalidRequest
    );
    // By words it stays within, as it stands it does not.
    task(
        &runtime,
        shell_task(
            "mkdir -p d/e && ln -s d/e s && ln -s s/../../../home/secret README && ln -s d/e fine",
        ),
    );
    let request = |argv: &str, directory: &str| Publish {
        task: "2".to_owned(),
        argv: vec![argv.to_owned()],
        directory: BytePath::from(directory),
    };
    let refused = runtime.propose_publish(&request("registry", ""), Actor::Owner, None);
    assert_eq!(code(refused), ErrorCode::Denied);
    task(
        &runtime,
        shell_task("mkdir d && echo x >d/x && ln -s d/x fine"),
    );
    let third = |argv: &str, directory: &str| Publish {
        task: "3".to_owned(),
        ..request(argv, directory)
    };
    for (argv, directory, wanted) in [
        ("registry", "..", ErrorCode::InvalidRequest),
        ("registry", "/etc", ErrorCode::InvalidRequest),
        ("registry", "none", ErrorCode::InvalidRequest),
        ("d/x", "", ErrorCode::NotFound),
    ] {
        let refused = runtime.propose_publish(&third(argv, directory), Actor::Owner, None);
        assert_eq!(code(refused), wanted, "{argv} {directory}");
    }
    let planted = desk.repo.join("tool");
    script(&planted, "true");
    let refused =
        runtime.propose_publish(&third(planted.to_str().unwrap(), ""), Actor::Owner, None);
    assert_eq!(code(refused), ErrorCode::NotFound);
    assert_eq!(held(&runtime), []);
    let fine = runtime
        .propose_publish(&third("registry", "d"), Actor::Owner, None)
        .unwrap();
    release(&runtime, &fine.held.proposal.proposal_id).unwrap();
}

#[test]
fn row_147_a_command_that_fails_waits_again_and_one_that_was_cut_off_does_not() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let registry = desk.home.join("bin/registry");
    let log = desk.home.join("published");
    let count = format!("echo ran >>{}", log.display());
    script(
        &registry,
        &format!("{count}; echo 'no such token' >&2; exit 3"),
    );
    let runtime = desk.runtime();
    task(&runtime, shell_task("echo two >a.txt"));
    let id = publish(&runtime, &["registry"], Actor::Protocol)
        .unwrap()
        .held
        .proposal
        .proposal_id;
    let failed = release(&runtime, &id).unwrap_err();
    assert_eq!(failed.code, ErrorCode::EffectFailed);
    assert!(
        failed.message.contains("ended with 3: no such token"),
        "{failed}"
    );
    assert_eq!(runtime.held_one(&id).unwrap().state, HeldState::Failed);
    drop(runtime);
    // Whoever carries it out dies when it has begun.
    script(&registry, &format!("{count}; kill -9 $PPID; sleep 1"));
    assert!(!rerun(&desk, "leaving::child", id.as_str()).success());
    let ran = std::fs::read_to_string(&log).unwrap();
    assert_eq!(ran, "ran\nran\n");
    let runtime = desk.runtime();
    let now = runtime.held_one(&id).unwrap();
    assert_eq!(now.state, HeldState::Unknown);
    assert!(now.problem.unwrap().message.contains("not known"));
    assert_eq!(
        held(&runtime).len(),
        1,
        "the owner has something to do about it"
    );
    // Never twice: neither by its name nor with all of the task, nor because it is asked for again.
    script(&registry, &count);
    assert_eq!(code(release(&runtime, &id)), ErrorCode::ProposalDecided);
    let all = ReleaseHeld {
        proposal_ids: Vec::new(),
        task: Some("1".to_owned()),
    };
    assert_eq!(
        code(runtime.release_held(&all, FrontDoor::CommandLine)),
        ErrorCode::ProposalUnknown
    );
    let again = publish(&runtime, &["registry"], Actor::Protocol).unwrap();
    assert_eq!(
        (again.is_new, again.held.state),
        (false, HeldState::Unknown)
    );
    assert_eq!(std::fs::read_to_string(&log).unwrap(), ran);
    // The owner looks, and proposes it anew; a refusal puts the old one away.
    let anew = publish(&runtime, &["registry"], Actor::Owner).unwrap();
    assert!(anew.is_new);
    release(&runtime, &anew.held.proposal.proposal_id).unwrap();
    let refuse = RefuseHeld {
        proposal_ids: vec![id],
        ..RefuseHeld::default()
    };
    runtime
        .refuse_held(&refuse, FrontDoor::CommandLine)
        .unwrap();
    assert_eq!(held(&runtime), []);
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "ran\nran\nran\n");
}

/// Runs in a process of its own, see [`rerun`], and dies while it carries something out.
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
fn row_147_a_file_outside_is_written_once_it_is_released_and_only_as_it_was_shown() {
    let desk = desk();
    let notes = desk.home.join("notes.txt");
    let path = notes.to_str().unwrap();
    std::fs::write(&notes, "1\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
    let runtime = desk.runtime();
    let (who, request) = write(&desk, path, "1\n2\n3\n4\nfive\n6\n7\n8\n9\n");
    let proposed = runtime
        .propose_write_outside(&who, request.clone())
        .unwrap();
    let Effect::WriteOutside { write_outside } = &proposed.held.proposal.effect else {
        panic!("{proposed:?}");
    };
    let lines: Vec<_> = write_outside
        .diff
        .iter()
        .map(|line| line.text.as_str())
        .collect();
    assert_eq!(lines, ["2", "3", "4", "5", "five", "6", "7", "8"]);
    assert_eq!(proposed.held.proposal.task_number, None);
    assert!(!runtime.propose_write_outside(&who, request).unwrap().is_new);
    assert!(std::fs::read_to_string(&notes).unwrap().contains("5\n"));
    let id = proposed.held.proposal.proposal_id.clone();
    // What has changed meanwhile is a conflict, and stays held.
    std::fs::write(&notes, "mine\n").unwrap();
    assert_eq!(code(release(&runtime, &id)), ErrorCode::FileConflict);
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "mine\n");
    std::fs::write(&notes, "1\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
    drop(runtime);
    let runtime = desk.runtime();
    let answer = release(&runtime, &id).unwrap();
    assert_eq!(
        answer.answers[0].held.sent.as_ref().unwrap().sent_as,
        SentAs::Written
    );
    assert_eq!(
        std::fs::read_to_string(&notes).unwrap(),
        "1\n2\n3\n4\nfive\n6\n7\n8\n9\n"
    );
    assert_eq!(code(release(&runtime, &id)), ErrorCode::ProposalDecided);
    let kinds: Vec<_> = events(&runtime)
        .into_iter()
        .filter(|one| one.area() == "outbox")
        .map(|one| (one.kind, one.task.is_some()))
        .collect();
    let told = |kind: &str| (kind.to_owned(), true);
    assert_eq!(
        kinds,
        [
            told("outbox.proposed"),
            told("outbox.released"),
            told("outbox.sent")
        ]
    );
}

#[test]
fn row_147_secrets_protected_names_links_and_the_system_are_not_proposed() {
    let desk = desk();
    let home = |name: &str| desk.home.join(name).to_str().unwrap().to_owned();
    std::fs::create_dir_all(desk.home.join(".ssh")).unwrap();
    std::fs::create_dir_all(desk.home.join("other/.git")).unwrap();
    std::fs::write(desk.home.join("file"), "x").unwrap();
    std::os::unix::fs::symlink(desk.home.join("file"), desk.home.join("link")).unwrap();
    std::os::unix::fs::symlink(desk.home.join(".ssh"), desk.home.join("keys")).unwrap();
    let runtime = desk.runtime();
    let workspace = desk.repo.join("a.txt");
    for (path, wanted) in [
        (home(".ssh/authorized_keys"), ErrorCode::PathRefused),
        (home("keys/authorized_keys"), ErrorCode::PathRefused),
        (home(".bashrc"), ErrorCode::PathRefused),
        (home("bin/tool"), ErrorCode::FileMissing),
        (home("other/.git/config"), ErrorCode::PathRefused),
        (home(".env"), ErrorCode::PathRefused),
        ("/etc/cron.d/x".to_owned(), ErrorCode::PathRefused),
        ("/dev/null".to_owned(), ErrorCode::PathRefused),
        (
            workspace.to_str().unwrap().to_owned(),
            ErrorCode::PathRefused,
        ),
        (home("link"), ErrorCode::NotAFile),
        ("relative".to_owned(), ErrorCode::InvalidRequest),
        (
            desk.data.join("policy.toml").to_str().unwrap().to_owned(),
            ErrorCode::PathRefused,
        ),
    ] {
        let (who, request) = write(&desk, &path, "new");
        let refused = runtime.propose_write_outside(&who, request);
        let found = code(refused);
        // A host without the folder says that first.
        let is_missing = path == "/etc/cron.d/x" && found == ErrorCode::FileMissing;
        assert!(found == wanted || is_missing, "{path}: {found}");
    }
    let (who, request) = write(&desk, &home("notes"), "token is s3cret-value");
    let refused = runtime.propose_write_outside(&who, request);
    assert_eq!(code(refused), ErrorCode::InvalidRequest);
    assert_eq!(held(&runtime), []);
}

#[test]
fn row_147_a_task_leaves_requests_in_its_own_tree_and_they_are_seen_while_it_runs() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let notes = desk.home.join("notes.txt");
    script(&desk.home.join("bin/registry"), "true");
    script(&desk.home.join("bin/opener"), "cat >/dev/null");
    desk.git(&[
        "config",
        "cofferdam.pullRequest",
        desk.home.join("bin/opener").to_str().unwrap(),
    ]);
    let look = desk.runtime();
    let line = format!(
        r#"test "$COFFERDAM_OUTBOX" = .git/cofferdam-outbox/requests || exit 9
        cd "$COFFERDAM_OUTBOX" || exit 8
        echo '{{"kind":"publish","argv":["registry"]}}' >b.json
        echo '{{"kind":"write_outside","path":"{}","content":"kept"}}' >c.json
        echo '{{"kind":"pull_request","title":"Mend"}}' >a.json
        echo '{{"kind":"push","force":true}}' >d.json
        ln -s /etc/passwd e.json
        cd ../../..; echo two >a.txt; git commit -qam two; git push -q origin HEAD
        echo ready; while ! test -e go; do sleep 0.05; done; rm go"#,
        notes.display()
    );
    let runtime = desk.runtime();
    let mut seen = Vec::new();
    let result = std::thread::scope(|scope| {
        let (say, hear) = std::sync::mpsc::channel::<PathBuf>();
        let run = scope.spawn(move || {
            let tell = &mut |progress: TaskProgress| {
                if let TaskProgress::WorkspaceReady {
                    path: Some(path), ..
                } = progress
                {
                    let _ = say.send(path.as_path().to_owned());
                }
            };
            task_with(
                &runtime,
                PolicyRequest::default(),
                shell_task(&line),
                &Control::new(),
                tell,
            )
        });
        let tree = hear.recv().unwrap();
        while seen.len() < 5 && !run.is_finished() {
            let page = look.held(&ListOutbox::default()).unwrap();
            assert_eq!(page.held, []);
            seen = page.pending;
        }
        std::fs::write(tree.join("go"), "").unwrap();
        run.join().unwrap()
    });
    assert_eq!(
        result.task_result.as_ref().unwrap().return_code,
        Some(0),
        "{result:?}"
    );
    let seen: Vec<_> = seen.iter().map(|one| one.summary.as_str()).collect();
    assert!(seen[0].starts_with("push "), "{seen:?}");
    assert_eq!(
        seen[1..],
        [
            "pull_request (a.json)",
            "publish (b.json)",
            "write_outside (c.json)",
            "a request that cannot be read (d.json)"
        ]
    );
    let page = look.held(&ListOutbox::default()).unwrap();
    assert_eq!(page.pending, []);
    let kinds: Vec<_> = page
        .held
        .iter()
        .rev()
        .map(|one| one.proposal.effect.as_str())
        .collect();
    // The push by hand is that of an earlier commit than the request's: nothing is uncommitted, so one.
    assert_eq!(kinds, ["push", "pull_request", "publish", "write_outside"]);
    assert!(
        page.held
            .iter()
            .all(|one| one.proposal.by == ProposedBy::Task)
    );
    let notes_said = look.review("1", false).unwrap().notes;
    assert!(
        notes_said
            .iter()
            .any(|note| note.contains("d.json") && note.contains("not proposed")),
        "{notes_said:?}"
    );
    assert!(!notes.exists());
    let all = ReleaseHeld {
        proposal_ids: Vec::new(),
        task: Some("1".to_owned()),
    };
    let answer = look.release_held(&all, FrontDoor::CommandLine).unwrap();
    assert!(answer.success, "{answer:?}");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "kept");
}
