//! Who is asked, when, and what an answer is worth: the file door, rules, reviewers, full access,
//! remembered answers, secrets.

use std::sync::{Arc, Mutex};

use cofferdam_core::approval::{
    ApprovalAnswer, ApprovalAsk, ApprovalKind, Entitled, LineSign, Remember,
};
use cofferdam_core::authority::{Actor, Authority};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::event_type;
use cofferdam_core::file::{AmbiguousMatch, Replacement};
use cofferdam_core::operation::{
    DeleteFolder, EditFile, Encoding, ForgetAnswer, ListApprovals, Mode, ModeView, OnePath,
    ReadFile, RenameFile, RunCommand, SetMode, SubmitPlan, WriteFile, WriteMode,
};
use cofferdam_core::outcome::{CommandOutcome, Status};
use cofferdam_core::policy::{
    CommandDecision, CommandRule, Permission, PolicyDocument, ProviderChoice, Reviewer, Seconds,
};
use cofferdam_core::spec::Network;
use cofferdam_exec::{CommandIo, Control};
use cofferdam_runtime::{
    AskOwner, FileRequest, FrontDoor, OwnerAnswer, PolicyRequest, RunRequest, Runtime,
};

use crate::support::{Desk, events, has_walls};

/// An owner who says the same to everything, and keeps what was asked.
#[derive(Debug)]
pub(crate) struct Says {
    answer: OwnerAnswer,
    asked: Mutex<Vec<ApprovalAsk>>,
}

impl Says {
    pub(crate) fn on(runtime: &Runtime, answer: ApprovalAnswer, remember: Remember) -> Arc<Self> {
        let owner = Arc::new(Self {
            answer: OwnerAnswer { answer, remember },
            asked: Mutex::default(),
        });
        runtime.on_approval(Arc::clone(&owner) as Arc<dyn AskOwner>);
        owner
    }

    pub(crate) fn take(&self) -> Vec<ApprovalAsk> {
        std::mem::take(&mut *self.asked.lock().expect("whole"))
    }
}

impl AskOwner for Says {
    fn ask(&self, ask: &ApprovalAsk, _is_open: &dyn Fn() -> bool) -> Option<OwnerAnswer> {
        self.asked.lock().expect("whole").push(ask.clone());
        Some(self.answer)
    }
}

fn owner(desk: &Desk, document: PolicyDocument) -> PolicyRequest {
    PolicyRequest {
        workspace: Some(desk.repo.clone()),
        owner: document,
        ..PolicyRequest::default()
    }
}

fn permission(desk: &Desk, permission: Permission) -> PolicyRequest {
    owner(
        desk,
        PolicyDocument {
            permission: Some(permission),
            ..PolicyDocument::default()
        },
    )
}

fn by(runtime: &Runtime, policy: PolicyRequest, command: RunCommand) -> CommandOutcome {
    runtime.run_command(RunRequest {
        policy,
        command,
        front_door: FrontDoor::Protocol,
        io: CommandIo::Capture { input: None },
        control: Control::new(),
    })
}

fn files(desk: &Desk, policy: PolicyRequest) -> FileRequest {
    FileRequest {
        policy,
        authority: Authority::new(Actor::Protocol, BytePath::from(desk.repo.as_path())),
        front_door: FrontDoor::Protocol,
        control: Control::new(),
    }
}

fn write(path: &str, content: &str) -> WriteFile {
    WriteFile {
        path: BytePath::from(path),
        content: content.to_owned(),
        encoding: Encoding::Utf8,
        mode: WriteMode::Write,
        expected_digest: None,
        durable: false,
    }
}

fn edit(path: &str, old: &str, new: &str) -> EditFile {
    EditFile {
        path: path.into(),
        replacements: vec![Replacement {
            old_string: old.to_owned(),
            new_string: new.to_owned(),
            replace_all: false,
        }],
        ambiguous: AmbiguousMatch::default(),
        expected_digest: None,
        durable: false,
    }
}

fn one(path: &str) -> OnePath {
    OnePath { path: path.into() }
}

/// Every change that the file door makes, each on a file of its own; a name for each.
fn changes(runtime: &Runtime, who: &FileRequest) -> Vec<(&'static str, Result<(), Problem>)> {
    for path in ["a.txt", "b.txt"] {
        runtime
            .read_file(who, &ReadFile::whole(path))
            .expect("reading is never asked about");
    }
    let rename = RenameFile {
        path: "Makefile".into(),
        new_path: "Buildfile".into(),
    };
    let folder = DeleteFolder {
        path: "folder".into(),
        recursive: true,
    };
    vec![
        (
            "write_file",
            runtime.write_file(who, write("a.txt", "two\n")).map(drop),
        ),
        (
            "edit_file",
            runtime
                .edit_file(who, &edit("b.txt", "b\nb\nb\nb\n", "c\n"))
                .map(drop),
        ),
        (
            "create_file",
            runtime.create_file(who, &one("new")).map(drop),
        ),
        (
            "create_folder",
            runtime.create_folder(who, &one("made")).map(drop),
        ),
        ("rename_file", runtime.rename_file(who, &rename).map(drop)),
        (
            "delete_file",
            runtime.delete_file(who, &one("gone")).map(drop),
        ),
        (
            "delete_folder",
            runtime.delete_folder(who, &folder).map(drop),
        ),
    ]
}

fn desk_of_changes() -> Desk {
    let desk = Desk::with_repository();
    desk.write("gone", "to be removed\n");
    desk.write("folder/file", "in it\n");
    desk.git(&["add", "-A"]);
    desk.git(&["commit", "-qm", "more"]);
    desk
}

#[test]
fn row_64_the_file_door_asks_for_each_change_in_each_mode_what_the_table_says() {
    if !has_walls() {
        return;
    }
    for (mode, answer, asked, code) in [
        (
            Permission::Readonly,
            ApprovalAnswer::Approve,
            0,
            Some(ErrorCode::ReadonlyDenied),
        ),
        (
            Permission::Approval,
            ApprovalAnswer::Reject,
            7,
            Some(ErrorCode::ApprovalRejected),
        ),
        (Permission::Approval, ApprovalAnswer::Approve, 7, None),
        (Permission::AutoApproval, ApprovalAnswer::Reject, 0, None),
        (Permission::Unrestricted, ApprovalAnswer::Reject, 0, None),
    ] {
        let desk = desk_of_changes();
        let runtime = desk.runtime();
        let says = Says::on(&runtime, answer, Remember::Once);
        let before = desk.look();
        let who = files(&desk, permission(&desk, mode));
        for (name, result) in changes(&runtime, &who) {
            assert_eq!(
                result.err().map(|problem| problem.code),
                code,
                "{name} {mode:?} {answer:?}"
            );
        }
        assert_eq!(says.take().len(), asked, "{mode:?} {answer:?}");
        assert_eq!(desk.look() == before, code.is_some(), "{mode:?} {answer:?}");
        if code.is_none() {
            assert_eq!(desk.read("a.txt"), "two\n");
            assert!(!desk.repo.join("folder").exists());
        }
    }
}

#[test]
fn row_69_a_change_of_a_file_is_asked_about_with_its_lines_and_done_as_shown() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let says = Says::on(&runtime, ApprovalAnswer::Approve, Remember::Once);
    let who = files(&desk, permission(&desk, Permission::Approval));
    runtime
        .read_file(&who, &ReadFile::whole("a.txt"))
        .expect("read");
    runtime
        .write_file(&who, write("a.txt", "two\n"))
        .expect("approved");
    let asked = says.take();
    let [ask] = asked.as_slice() else {
        panic!("{asked:?}");
    };
    assert_eq!(ask.kind, ApprovalKind::FileChange);
    let lines: Vec<(LineSign, &str)> = ask
        .preview
        .diff
        .iter()
        .map(|line| (line.sign, line.text.as_str()))
        .collect();
    assert_eq!(
        lines,
        [(LineSign::Removed, "one"), (LineSign::Added, "two")]
    );
    let path = BytePath::from(desk.repo.join("a.txt"));
    assert_eq!(ask.preview.writes, [path]);
    assert_eq!(ask.preview.bytes, Some(4));
    assert_eq!(desk.read("a.txt"), "two\n");
}

/// Changes the file while it is asked about.
#[derive(Debug)]
struct Meddles(std::path::PathBuf);

impl AskOwner for Meddles {
    fn ask(&self, _ask: &ApprovalAsk, _is_open: &dyn Fn() -> bool) -> Option<OwnerAnswer> {
        std::fs::write(&self.0, "theirs\n").expect("written");
        Some(OwnerAnswer {
            answer: ApprovalAnswer::Approve,
            remember: Remember::Once,
        })
    }
}

#[test]
fn row_72_a_file_that_changed_while_it_was_asked_about_is_a_conflict() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    runtime.on_approval(Arc::new(Meddles(desk.repo.join("a.txt"))));
    let who = files(&desk, permission(&desk, Permission::Approval));
    runtime
        .read_file(&who, &ReadFile::whole("a.txt"))
        .expect("read");
    let written = runtime.write_file(&who, write("a.txt", "two\n"));
    assert_eq!(written.expect_err("changed").code, ErrorCode::FileConflict);
    assert_eq!(desk.read("a.txt"), "theirs\n");
}

const APPEND: &str = "echo once >> made && echo done";

#[test]
fn a_remembered_answer_takes_the_place_of_exactly_the_same_question_until_it_is_taken_back() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let approval = || permission(&desk, Permission::Approval);
    let says = Says::on(&runtime, ApprovalAnswer::Approve, Remember::Repository);
    let run = |runtime: &Runtime, text: &str| by(runtime, approval(), RunCommand::shell(text));
    assert_eq!(run(&runtime, APPEND).status, Status::Completed);
    assert_eq!(says.take().len(), 1);
    // Another process of the same data directory knows it too, and nobody is asked there.
    let other = desk.runtime();
    let again = run(&other, APPEND);
    assert_eq!(again.status, Status::Completed, "{:?}", again.error);
    assert_eq!(desk.read("made"), "once\nonce\n");
    let recalled = events(&other)
        .iter()
        .filter(|event| event.kind == event_type::APPROVAL_RECALLED)
        .count();
    assert_eq!(recalled, 1);
    // A part of it, more than it, other variables, another directory: each is another question.
    let refuses = Says::on(&runtime, ApprovalAnswer::Reject, Remember::Once);
    let mut with_variable = RunCommand::shell(APPEND);
    with_variable.env.push(cofferdam_core::spec::Variable {
        name: "PATH".into(),
        value: "/tmp:/usr/bin:/bin".into(),
    });
    for command in [
        RunCommand::shell("echo once >> made"),
        RunCommand::shell(format!("{APPEND} && true")),
        with_variable,
    ] {
        let outcome = by(&runtime, approval(), command);
        assert_eq!(outcome.status, Status::Denied);
    }
    assert_eq!(refuses.take().len(), 3);
    assert_eq!(desk.read("made"), "once\nonce\n");
    // It is listed as the one line that was shown, and taken back.
    let page = runtime.remembered();
    let [line] = page.remembered.as_slice() else {
        panic!("{page:?}");
    };
    assert_eq!(
        line.line,
        r#"allow command = "echo once >> made && echo done""#
    );
    let rule_id = line.remembered.rule_id.clone();
    runtime
        .forget(&ForgetAnswer { rule_id })
        .expect("taken back");
    assert_eq!(run(&runtime, APPEND).status, Status::Denied);
    assert_eq!(refuses.take().len(), 1);
}

#[test]
fn an_answer_for_the_task_holds_in_this_process_and_never_means_never() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let approval = || permission(&desk, Permission::Approval);
    let says = Says::on(&runtime, ApprovalAnswer::Approve, Remember::Task);
    for _ in 0..2 {
        let outcome = by(&runtime, approval(), RunCommand::shell(APPEND));
        assert_eq!(outcome.status, Status::Completed);
    }
    assert_eq!(says.take().len(), 1);
    let other = desk.runtime();
    let never = Says::on(&other, ApprovalAnswer::Reject, Remember::Repository);
    for _ in 0..2 {
        let outcome = by(&other, approval(), RunCommand::shell(APPEND));
        assert_eq!(outcome.status, Status::Denied);
    }
    assert_eq!(never.take().len(), 1);
    assert_eq!(desk.read("made"), "once\nonce\n");
}

fn rule(word: &str, decision: CommandDecision) -> CommandRule {
    CommandRule {
        command: vec![word.to_owned()],
        has: Vec::new(),
        decision,
        justification: None,
        matches: Vec::new(),
        not_match: Vec::new(),
    }
}

fn rules_on_direct(permission: Option<Permission>, reviewer: Option<Reviewer>) -> PolicyDocument {
    PolicyDocument {
        provider: permission.is_none().then_some(ProviderChoice::Direct),
        permission,
        reviewer,
        commands: Some(vec![
            rule("cat", CommandDecision::Allow),
            rule("mkdir", CommandDecision::Ask),
        ]),
        ..PolicyDocument::default()
    }
}

#[test]
fn without_walls_what_no_rule_names_is_asked_and_without_anybody_it_is_denied() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let policy = || owner(&desk, rules_on_direct(None, None));
    let nobody = by(&runtime, policy(), RunCommand::argv(["touch", "made"]));
    assert_eq!(
        nobody.error.expect("nobody").code,
        ErrorCode::ApprovalUnavailable
    );
    let says = Says::on(&runtime, ApprovalAnswer::Reject, Remember::Once);
    let refused = by(&runtime, policy(), RunCommand::argv(["touch", "made"]));
    assert_eq!(refused.status, Status::Denied, "{:?}", refused.error);
    assert!(!desk.repo.join("made").exists());
    assert_eq!(says.take().len(), 1);
    let says = Says::on(&runtime, ApprovalAnswer::Approve, Remember::Once);
    let made = by(&runtime, policy(), RunCommand::argv(["touch", "made"]));
    assert_eq!(made.status, Status::Completed, "{:?}", made.error);
    let named = by(&runtime, policy(), RunCommand::argv(["cat", "a.txt"]));
    assert_eq!(named.status, Status::Completed);
    let asked = says.take();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].entitled, Entitled::Owner);
    assert_eq!(asked[0].summary, "run touch made");
}

fn reviewer(script: &str) -> Reviewer {
    Reviewer {
        command: Some(vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()]),
        url: None,
        timeout: Seconds::new(20.0),
    }
}

#[test]
fn row_71_a_reviewer_answers_and_whatever_is_wrong_with_it_is_a_no() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    runtime.attend_questions();
    let approves = r#"grep -q '"summary":"run mkdir made"' && echo '{"answer":"approve"}'"#;
    for (script, status) in [
        (
            "echo '{\"answer\":\"reject\",\"reason\":\"not today\"}'",
            Status::Denied,
        ),
        ("exit 3", Status::Denied),
        ("echo yes", Status::Denied),
        (
            "echo '{\"answer\":\"approve\",\"grant\":true}'",
            Status::Denied,
        ),
        ("true", Status::Denied),
        (approves, Status::Completed),
    ] {
        let document = rules_on_direct(Some(Permission::AutoApproval), Some(reviewer(script)));
        let made = by(
            &runtime,
            owner(&desk, document),
            RunCommand::argv(["mkdir", "made"]),
        );
        assert_eq!(made.status, status, "{script}: {:?}", made.error);
    }
    assert!(desk.repo.join("made").is_dir());
    let page = runtime
        .approvals(&ListApprovals {
            all: true,
            ..ListApprovals::default()
        })
        .expect("a list");
    assert_eq!(page.approvals.len(), 6);
    assert!(page.approvals.iter().all(|one| one.answers.len() == 1));
    // A service without anything that could reach it.
    let service = Reviewer {
        command: None,
        url: Some("http://127.0.0.1:1/".to_owned()),
        timeout: None,
    };
    let document = rules_on_direct(Some(Permission::AutoApproval), Some(service));
    let refused = by(
        &runtime,
        owner(&desk, document),
        RunCommand::argv(["mkdir", "other"]),
    );
    assert_eq!(
        refused.error.expect("a no").code,
        ErrorCode::ApprovalRejected
    );
}

fn full(text: &str) -> RunCommand {
    RunCommand {
        full_access: Some("it needs the whole machine".to_owned()),
        ..RunCommand::shell(text)
    }
}

#[test]
fn row_74_one_of_two_is_not_enough_for_full_access() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let outside = desk.home.join("outside");
    let text = format!("echo free > '{}'", outside.display());
    let yes = "cat > /dev/null; echo '{\"answer\":\"approve\"}'";
    let no = "cat > /dev/null; echo '{\"answer\":\"reject\"}'";
    let policy = |script: Option<&str>| {
        owner(
            &desk,
            PolicyDocument {
                reviewer: script.map(reviewer),
                ..PolicyDocument::default()
            },
        )
    };
    let says = Says::on(&runtime, ApprovalAnswer::Approve, Remember::Once);
    let alone = by(&runtime, policy(None), full(&text));
    assert_eq!(
        alone.error.expect("no reviewer").code,
        ErrorCode::ApprovalUnavailable
    );
    let one = by(&runtime, policy(Some(no)), full(&text));
    assert_eq!(one.status, Status::Denied, "{:?}", one.error);
    let other = Says::on(&runtime, ApprovalAnswer::Reject, Remember::Once);
    let one = by(&runtime, policy(Some(yes)), full(&text));
    assert_eq!(one.status, Status::Denied, "{:?}", one.error);
    assert!(!outside.exists());
    drop(other);
    let both = Says::on(&runtime, ApprovalAnswer::Approve, Remember::Once);
    let ran = by(&runtime, policy(Some(yes)), full(&text));
    assert_eq!(ran.status, Status::Completed, "{:?}", ran.error);
    assert_eq!(std::fs::read_to_string(&outside).expect("made"), "free\n");
    let asked = both.take();
    assert_eq!(asked[0].kind, ApprovalKind::FullAccess);
    assert_eq!(asked[0].remember, None);
    assert_eq!(asked[0].preview.network, Some(Network::Full));
    drop(says);
    // Without the field the walls stand as before.
    let walled = by(
        &runtime,
        policy(Some(yes)),
        RunCommand::shell(format!("{text}.again")),
    );
    assert_eq!(walled.status, Status::Completed);
    assert!(!desk.home.join("outside.again").exists());
}

#[test]
fn a_command_cannot_make_a_secret_readable_by_handing_it_to_git() {
    let desk = Desk::with_repository();
    desk.write(".env", "KEY=secret-value\n");
    desk.write("web/.env.local", "KEY=secret-value\n");
    desk.write("own/.env", "KEY=shared\n");
    desk.git(&["add", "-f", "own/.env"]);
    desk.git(&["commit", "-qm", "shared"]);
    let runtime = desk.runtime();
    let mut choices = vec![ProviderChoice::Direct];
    if has_walls() {
        choices.push(ProviderChoice::Bwrap);
    }
    for choice in choices {
        let policy = || {
            owner(
                &desk,
                PolicyDocument {
                    provider: Some(choice),
                    permission: Some(Permission::Unrestricted),
                    ..PolicyDocument::default()
                },
            )
        };
        let who = files(&desk, policy());
        let read = |path: &str| runtime.read_file(&who, &ReadFile::whole(path));
        assert_eq!(read(".env").expect_err("withheld").code, ErrorCode::Denied);
        let add = "git add -f .env web/.env.local && git commit -qm mine; mv web other";
        let added = by(&runtime, policy(), RunCommand::shell(add));
        assert_ne!(added.status, Status::Error, "{:?}", added.error);
        for path in [".env", "web/.env.local", "other/.env.local"] {
            if !desk.repo.join(path).exists() {
                continue;
            }
            assert_eq!(
                read(path).expect_err("withheld").code,
                ErrorCode::Denied,
                "{path} {choice:?}"
            );
            if choice == ProviderChoice::Bwrap {
                let shown = by(&runtime, policy(), RunCommand::argv(["cat", path]));
                assert!(
                    !shown.output.contains("secret-value"),
                    "{path}: {}",
                    shown.output
                );
            }
        }
        // What was the repository's own from the beginning stays readable.
        read("own/.env").expect("tracked when it was first seen");
    }
}

fn set(runtime: &Runtime, desk: &Desk, to: Mode) -> Result<ModeView, Problem> {
    let policy = owner(desk, PolicyDocument::default());
    runtime.set_mode(&policy, &SetMode { to })
}

fn told_modes(runtime: &Runtime) -> usize {
    events(runtime)
        .iter()
        .filter(|event| event.kind == event_type::POLICY_MODE)
        .count()
}

#[test]
fn row_66_while_a_plan_is_made_only_its_folder_can_be_written_and_a_yes_ends_it() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    desk.write("plans/.keep", "");
    let runtime = desk.runtime();
    let direct = || {
        owner(
            &desk,
            PolicyDocument {
                provider: Some(ProviderChoice::Direct),
                ..PolicyDocument::default()
            },
        )
    };
    let folder = Mode::Plan {
        folder: "plans".into(),
    };
    let view = set(&runtime, &desk, folder.clone()).expect("set");
    assert_eq!(view.permission, Permission::AutoApproval);
    let run = |text: &str| by(&runtime, direct(), RunCommand::shell(text));
    // Whatever the policy says about the provider: without walls nothing could be held back.
    assert_eq!(run("echo x > made").status, Status::Failed);
    let wrote = run("echo 'first this' > plans/plan.md");
    assert_eq!(wrote.status, Status::Completed, "{}", wrote.output);
    let who = files(&desk, direct());
    let outside = runtime.create_file(&who, &one("made"));
    assert!(outside.is_err(), "{outside:?}");
    runtime
        .create_file(&who, &one("plans/other.md"))
        .expect("in the folder");
    assert!(!desk.repo.join("made").exists());
    let submit = |path: &str| runtime.submit_plan(&who, &SubmitPlan { path: path.into() });
    assert_eq!(
        submit("a.txt").expect_err("elsewhere").code,
        ErrorCode::InvalidRequest
    );
    Says::on(&runtime, ApprovalAnswer::Reject, Remember::Once);
    assert_eq!(
        submit("plans/plan.md").expect_err("a no").code,
        ErrorCode::ApprovalRejected
    );
    assert_eq!(run("echo x > made").status, Status::Failed);
    let says = Says::on(&runtime, ApprovalAnswer::Approve, Remember::Once);
    let left = submit("plans/plan.md").expect("a yes");
    assert_eq!(left.mode, Mode::Policy);
    let asked = says.take();
    assert_eq!(asked[0].kind, ApprovalKind::Plan);
    assert_eq!(asked[0].preview.plan.as_deref(), Some("first this\n"));
    // What the policy says holds again.
    let after = run("echo x > made");
    assert_eq!(after.status, Status::Completed);
    assert_eq!(
        after.isolation.effective.provider,
        Some(cofferdam_core::spec::ProviderKind::Direct)
    );
    for wrong in ["nowhere", ".", "../outside", "a.txt"] {
        let refused = set(
            &runtime,
            &desk,
            Mode::Plan {
                folder: wrong.into(),
            },
        );
        assert_eq!(
            refused.expect_err(wrong).code,
            ErrorCode::InvalidRequest,
            "{wrong}"
        );
    }
}

#[test]
fn row_67_a_mode_waits_for_what_is_next_and_one_that_is_taken_back_changed_nothing() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let other = desk.runtime();
    let mode = |permission| Mode::Permission { permission };
    let run = |text: &str| {
        let policy = owner(&desk, PolicyDocument::default());
        by(&runtime, policy, RunCommand::shell(text))
    };
    set(&other, &desk, mode(Permission::AutoApproval)).expect("set");
    assert_eq!(run("true").status, Status::Completed);
    // There and back again, from another process, before anything begins.
    set(&other, &desk, mode(Permission::Readonly)).expect("set");
    set(&other, &desk, mode(Permission::AutoApproval)).expect("set");
    assert_eq!(run("echo x > made").status, Status::Completed);
    assert_eq!(told_modes(&runtime), 0);
    // While something runs, it goes on as it began; what is next is in the new mode.
    let long = std::thread::scope(|scope| {
        let long = scope.spawn(|| run("touch began; sleep 1; echo late > late"));
        while !desk.repo.join("began").exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        set(&other, &desk, mode(Permission::Readonly)).expect("set");
        long.join().expect("an outcome")
    });
    assert_eq!(long.status, Status::Completed, "{}", long.output);
    assert_eq!(desk.read("late"), "late\n");
    assert_eq!(run("echo x > more").status, Status::Failed);
    assert_eq!(told_modes(&runtime), 1);
    set(&other, &desk, Mode::Policy).expect("left");
    assert_eq!(run("echo x > more").status, Status::Completed);
    assert_eq!(told_modes(&runtime), 2);
}

/// Asks the way out for a host, as every client does that knows the variable.
const FETCH: &str = "#!/bin/bash
proxy=${https_proxy#http://}
exec 3<>\"/dev/tcp/${proxy%:*}/${proxy##*:}\"
printf 'CONNECT %s:443 HTTP/1.1\\r\\nHost: %s:443\\r\\n\\r\\n' \"$1\" \"$1\" >&3
head -n 1 <&3
";

#[test]
fn a_session_of_200_agent_commands_asks_at_most_three_times_at_the_default() {
    use std::os::unix::fs::PermissionsExt as _;
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    desk.write("fetch.sh", FETCH);
    let script = desk.repo.join("fetch.sh");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("set");
    let runtime = Arc::new(desk.runtime());
    let says = Says::on(&runtime, ApprovalAnswer::Reject, Remember::Repository);
    runtime.ask_about_hosts();
    let policy = owner(
        &desk,
        PolicyDocument {
            network: Some(Network::Restricted),
            ..PolicyDocument::default()
        },
    );
    let session = include_str!("session_of_200.txt");
    let commands: Vec<&str> = session.trim_end().split("\n%%\n").collect();
    assert_eq!(commands.len(), 200);
    let completed = commands
        .iter()
        .filter(|text| {
            let outcome = by(&runtime, policy.clone(), RunCommand::shell(**text));
            assert_ne!(
                outcome.status,
                Status::Denied,
                "{text}: {:?}",
                outcome.error
            );
            assert_ne!(outcome.status, Status::Error, "{text}: {:?}", outcome.error);
            outcome.status == Status::Completed
        })
        .count();
    assert!(completed >= 190, "{completed}");
    let asked: Vec<String> = says.take().into_iter().map(|ask| ask.summary).collect();
    assert_eq!(asked.len(), 3, "{asked:#?}");
    assert!(
        asked.iter().all(|one| one.contains(".example:443")),
        "{asked:?}"
    );
}
