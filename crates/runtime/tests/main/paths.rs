//! Row 37: paths outside of the workspace, for reading or for reading and writing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cofferdam_core::approval::{ApprovalAnswer, ApprovalAsk, ApprovalKind, Remember};
use cofferdam_core::authority::{Actor, Authority};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::{
    AuthorisePath, AuthorisedPath, ReadFile, RequestPath, RevokePath, RunCommand, WriteFile,
    WriteMode,
};
use cofferdam_core::policy::{PolicyDocument, ProviderChoice};
use cofferdam_core::spec::Access;
use cofferdam_exec::Control;
use cofferdam_runtime::{AskOwner, FileRequest, FrontDoor, OwnerAnswer, PolicyRequest, Runtime};

use crate::support::{Desk, events, has_walls, provider, run};

/// A directory beside the workspace, with a file in it.
fn outside(desk: &Desk, name: &str) -> PathBuf {
    let path = desk.home.parent().expect("a desk").join(name);
    std::fs::create_dir_all(&path).expect("a directory");
    std::fs::write(path.join("file"), "there\n").expect("a file");
    path
}

fn request(path: &Path, access: Access) -> AuthorisePath {
    AuthorisePath {
        path: path.into(),
        access,
        hold: Remember::Repository,
        days: None,
    }
}

fn authorise(runtime: &Runtime, path: &Path, access: Access) -> Result<AuthorisedPath, Problem> {
    runtime.authorise_path(&PolicyRequest::default(), &request(path, access))
}

fn refusal(runtime: &Runtime, path: &Path, access: Access) -> ErrorCode {
    authorise(runtime, path, access)
        .expect_err("it is refused")
        .code
}

fn who(desk: &Desk, policy: PolicyRequest) -> FileRequest {
    FileRequest {
        policy: PolicyRequest {
            workspace: Some(desk.repo.clone()),
            ..policy
        },
        authority: Authority::new(Actor::Protocol, desk.repo.as_path().into()),
        front_door: FrontDoor::Protocol,
        control: Control::new(),
    }
}

fn read(runtime: &Runtime, who: &FileRequest, path: &Path) -> Result<String, ErrorCode> {
    let read = runtime.read_file(who, &ReadFile::whole(path));
    read.map(|one| one.content.expect("text"))
        .map_err(|problem| problem.code)
}

fn write(runtime: &Runtime, who: &FileRequest, path: &Path) -> Result<(), ErrorCode> {
    let request = WriteFile {
        path: path.into(),
        content: "door\n".to_owned(),
        encoding: cofferdam_core::operation::Encoding::default(),
        mode: WriteMode::Write,
        expected_digest: None,
        durable: false,
    };
    let written = runtime.write_file(who, request);
    written.map(drop).map_err(|problem| problem.code)
}

#[test]
fn row_37_what_is_denied_secret_or_protected_is_refused() {
    let desk = Desk::with_repository();
    let top = desk.home.parent().unwrap().to_owned();
    let home = |name: &str| desk.home.join(name);
    for name in [
        ".ssh",
        ".config/cofferdam",
        "work/.aws",
        "denied/below",
        "plain/.git",
    ] {
        std::fs::create_dir_all(home(name)).unwrap();
    }
    for (name, text) in [
        (".ssh/id", ""),
        (".netrc", ""),
        (".bashrc", ""),
        ("plain/.env", ""),
        (
            ".config/cofferdam/policy.toml",
            "schema = 1\ndeny_read = [\"~/denied/below\"]\n",
        ),
    ] {
        std::fs::write(home(name), text).unwrap();
    }
    std::os::unix::fs::symlink(home(".ssh"), home("harmless")).unwrap();
    let runtime = desk.runtime();
    let read_refused = [
        home(".ssh"),
        home(".ssh/id"),
        home("harmless"),
        home(".netrc"),
        home("work"),
        home("work/.aws"),
        home("denied"),
        home("denied/below"),
        home("plain/.env"),
        desk.home.clone(),
        top.clone(),
        PathBuf::from("/"),
        PathBuf::from("/proc"),
        PathBuf::from("/etc"),
        PathBuf::from("/etc/shadow"),
        PathBuf::from("/run"),
        desk.data.clone(),
        desk.repo.join("a.txt"),
    ];
    for path in read_refused.iter().filter(|path| path.exists()) {
        for access in [Access::Read, Access::Write] {
            let code = refusal(&runtime, path, access);
            assert_eq!(code, ErrorCode::PathRefused, "{}", path.display());
        }
    }
    // What the host's tools obey may be read, and not written.
    for path in [
        home(".bashrc"),
        home(".config"),
        home("plain"),
        PathBuf::from("/usr/share"),
    ] {
        let code = refusal(&runtime, &path, Access::Write);
        assert_eq!(code, ErrorCode::PathRefused, "{}", path.display());
    }
    assert_eq!(
        refusal(&runtime, &home("none"), Access::Read),
        ErrorCode::FileMissing
    );
    let _listener = std::os::unix::net::UnixListener::bind(home("a.sock")).unwrap();
    assert_eq!(
        refusal(&runtime, &home("a.sock"), Access::Read),
        ErrorCode::SocketRefused
    );
    assert!(authorise(&runtime, &home(".bashrc"), Access::Read).is_ok());
    let page = runtime.authorised_paths(&PolicyRequest::default()).unwrap();
    assert_eq!(page.paths.len(), 1, "nothing that was refused is kept");
}

#[test]
fn row_37_what_is_given_already_is_a_conflict_and_the_deeper_one_holds() {
    let desk = Desk::with_repository();
    let out = outside(&desk, "out");
    let (deep, other) = (out.join("deep"), out.join("other"));
    for path in [&deep, &other] {
        std::fs::create_dir(path).unwrap();
    }
    let runtime = desk.runtime();
    let first = authorise(&runtime, &deep, Access::Read).unwrap();
    assert_eq!(first.line, format!("read = [{:?}]", deep.to_str().unwrap()));
    assert_eq!(
        refusal(&runtime, &deep, Access::Read),
        ErrorCode::PathRefused
    );
    let above = authorise(&runtime, &out, Access::Write).unwrap();
    assert_eq!(above.read_only_below, [BytePath::from(deep.as_path())]);
    // Reading below what may be written would take writing away.
    assert_eq!(
        refusal(&runtime, &other, Access::Read),
        ErrorCode::PathRefused
    );
    assert_eq!(
        refusal(&runtime, &other, Access::Write),
        ErrorCode::PathRefused
    );
    assert!(authorise(&runtime, &deep, Access::Write).is_ok());
}

#[test]
fn row_37_it_holds_for_commands_and_files_alike_until_it_is_revoked() {
    let mut providers = vec![provider(ProviderChoice::Landlock)];
    if has_walls() {
        providers.push(provider(ProviderChoice::Bwrap));
    }
    for policy in providers {
        let desk = Desk::with_repository();
        let out = outside(&desk, "out");
        let file = out.join("file");
        let runtime = desk.runtime();
        let who = who(&desk, policy.clone());
        let shell = |text: &str| run(&runtime, who.policy.clone(), RunCommand::shell(text)).success;
        let cat = format!("cat {}", file.display());
        let put = format!("echo x >{}", out.join("made").display());
        assert!(!shell(&cat));
        assert_eq!(read(&runtime, &who, &file), Err(ErrorCode::PathOutside));

        let given = authorise(&runtime, &out, Access::Read).unwrap();
        assert!(shell(&cat));
        assert!(!shell(&put));
        assert_eq!(read(&runtime, &who, &file).as_deref(), Ok("there\n"));
        assert_eq!(write(&runtime, &who, &file), Err(ErrorCode::Denied));

        authorise(&runtime, &out, Access::Write).unwrap();
        assert!(shell(&put));
        assert_eq!(write(&runtime, &who, &file), Ok(()));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "door\n");
        // Another process of the owner's takes it back.
        let other = desk.runtime();
        let listed = other.authorised_paths(&PolicyRequest::default()).unwrap();
        assert!(listed.paths.iter().any(|one| one.rule_id == given.rule_id));
        for one in listed.paths {
            let revoke = RevokePath {
                rule_id: one.rule_id,
            };
            other
                .revoke_path(&PolicyRequest::default(), &revoke)
                .unwrap();
            let again = other.revoke_path(&PolicyRequest::default(), &revoke);
            assert_eq!(again.unwrap_err().code, ErrorCode::PathUnknown);
        }
        assert!(!shell(&cat));
        assert_eq!(read(&runtime, &who, &file), Err(ErrorCode::PathOutside));
    }
}

#[test]
fn row_37_neither_another_workspace_nor_a_link_nor_a_request_gains_by_it() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let out = outside(&desk, "out");
    let runtime = desk.runtime();
    authorise(&runtime, &out, Access::Read).unwrap();
    let cat = format!("cat {}", out.join("file").display());
    let shell = |policy: PolicyRequest| run(&runtime, policy, RunCommand::shell(&cat)).success;
    assert!(shell(PolicyRequest::default()));
    let elsewhere = outside(&desk, "elsewhere");
    let other = PolicyRequest {
        workspace: Some(elsewhere.clone()),
        ..PolicyRequest::default()
    };
    assert!(!shell(other));
    // A request narrows: it does not open what the owner has not.
    let wider = PolicyRequest {
        request: Some(PolicyDocument {
            read: Some(vec![elsewhere.as_path().into()]),
            ..PolicyDocument::default()
        }),
        ..PolicyRequest::default()
    };
    let outcome = run(&runtime, wider, RunCommand::shell("true"));
    assert_eq!(outcome.error.unwrap().code, ErrorCode::PolicyWidening);
    // What stands there by now is another thing.
    std::fs::rename(&out, desk.home.parent().unwrap().join("moved")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &out).unwrap();
    assert!(!shell(PolicyRequest::default()));
    let listed = runtime.authorised_paths(&PolicyRequest::default()).unwrap();
    assert!(!listed.paths[0].in_effect);
}

#[derive(Debug)]
struct Says(ApprovalAnswer, Remember, Mutex<Vec<ApprovalAsk>>);

impl AskOwner for Says {
    fn door(&self) -> &'static str {
        "test"
    }

    fn is_there(&self) -> bool {
        true
    }

    fn ask(&self, ask: &ApprovalAsk, _is_open: &dyn Fn() -> bool) -> Option<OwnerAnswer> {
        self.2.lock().expect("whole").push(ask.clone());
        Some(OwnerAnswer {
            answer: self.0,
            remember: self.1,
        })
    }
}

#[test]
fn row_37_an_agent_asks_and_the_answer_is_the_authorisation() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let out = outside(&desk, "out");
    std::fs::create_dir(desk.home.join(".ssh")).unwrap();
    let ask = |path: &Path| RequestPath {
        path: path.into(),
        access: Access::Read,
        reason: "the samples".to_owned(),
    };
    let runtime = desk.runtime();
    let me = who(&desk, PolicyRequest::default());
    let nobody = runtime.request_path(&me, &ask(&out)).unwrap_err();
    assert_eq!(nobody.code, ErrorCode::ApprovalUnavailable);

    let no = Arc::new(Says(
        ApprovalAnswer::Reject,
        Remember::Once,
        Mutex::default(),
    ));
    runtime.on_approval(no.clone());
    // What cannot be had is not asked for.
    let secret = runtime
        .request_path(&me, &ask(&desk.home.join(".ssh")))
        .unwrap_err();
    assert_eq!(secret.code, ErrorCode::PathRefused);
    assert!(no.2.lock().unwrap().is_empty());
    let refused = runtime.request_path(&me, &ask(&out)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::ApprovalRejected);
    let shown = no.2.lock().unwrap()[0].clone();
    assert_eq!(shown.kind, ApprovalKind::Path);
    assert_eq!(shown.preview.reads, [BytePath::from(out.as_path())]);
    assert!(shown.why.contains("the samples"));
    assert_eq!(
        read(&runtime, &me, &out.join("file")),
        Err(ErrorCode::PathOutside)
    );

    let yes = Says(ApprovalAnswer::Approve, Remember::Once, Mutex::default());
    runtime.on_approval(Arc::new(yes));
    let given = runtime.request_path(&me, &ask(&out)).unwrap();
    assert_eq!(given.expires, None, "as long as the process that asks");
    assert_eq!(
        read(&runtime, &me, &out.join("file")).as_deref(),
        Ok("there\n")
    );
    // Not for another process.
    let other = desk.runtime();
    assert!(
        other
            .authorised_paths(&PolicyRequest::default())
            .unwrap()
            .paths
            .is_empty()
    );
    let task = events(&runtime)
        .into_iter()
        .rev()
        .find(|one| one.kind == "approval.remembered");
    assert!(task.unwrap().task.is_some());
}
