//! Names that the host's own tools obey: what a command gives to git by itself releases nothing.

use cofferdam_core::error::ErrorCode;
use cofferdam_core::operation::{ProtectedBy, ReleaseProtected, RestoreQuarantined, RunCommand};
use cofferdam_core::policy::ProviderChoice;
use cofferdam_runtime::{PolicyRequest, Runtime};

use crate::support::{Desk, events, has_walls, kinds, provider, run};

fn providers() -> Vec<PolicyRequest> {
    let mut all = vec![provider(ProviderChoice::Landlock)];
    if has_walls() {
        all.push(provider(ProviderChoice::Bwrap));
    }
    all
}

fn by(runtime: &Runtime, name: &str) -> Option<ProtectedBy> {
    let page = runtime.protected(&PolicyRequest::default());
    let page = page.expect("a page");
    let found = page
        .names
        .iter()
        .find(|one| one.path.file_name() == name.as_bytes());
    found.map(|one| one.by)
}

fn release(runtime: &Runtime, name: &str) -> Result<(), ErrorCode> {
    let request = ReleaseProtected { path: name.into() };
    let released = runtime.release_protected(&PolicyRequest::default(), &request);
    released.map(drop).map_err(|problem| problem.code)
}

#[test]
fn what_a_command_gives_to_git_stays_protected_until_the_owner_releases_it() {
    for policy in providers() {
        let desk = Desk::with_repository();
        desk.write(".envrc", "use flake\n");
        desk.write(".claude/settings.json", "{}\n");
        let runtime = desk.runtime();
        let shell = |text: &str| run(&runtime, policy.clone(), RunCommand::shell(text));
        let given = shell(
            "git add -f .envrc .claude && git -c user.name=a -c user.email=a@b commit -qm mine",
        );
        assert!(given.success, "{given:?}");
        assert_eq!(desk.git(&["ls-files", ".envrc"]), ".envrc");
        for name in [".envrc", ".claude/settings.json"] {
            let tried = shell(&format!("echo evil >{name}"));
            assert!(!tried.denials.is_empty() || !tried.success, "{tried:?}");
        }
        assert_eq!(desk.read(".envrc"), "use flake\n");
        assert_eq!(desk.read(".claude/settings.json"), "{}\n");
        assert_eq!(by(&runtime, ".envrc"), Some(ProtectedBy::Withheld));
        // The owner has looked at it.
        release(&runtime, ".envrc").unwrap();
        assert_eq!(by(&runtime, ".envrc"), Some(ProtectedBy::Git));
        let changed = shell("echo mine >.envrc");
        assert!(changed.success, "{changed:?}");
        assert_eq!(desk.read(".envrc"), "mine\n");
        assert_eq!(by(&runtime, ".claude"), Some(ProtectedBy::Withheld));
        assert!(kinds(&events(&runtime)).contains(&"file.released"));
    }
}

#[test]
fn only_what_git_holds_and_what_is_withheld_is_released() {
    let desk = Desk::with_repository();
    desk.write(".envrc", "use flake\n");
    desk.write(".mcp.json", "{}\n");
    desk.git(&["add", ".mcp.json"]);
    let runtime = desk.runtime();
    assert_eq!(by(&runtime, ".envrc"), Some(ProtectedBy::Walls));
    assert_eq!(by(&runtime, ".mcp.json"), Some(ProtectedBy::Git));
    for name in [".envrc", ".mcp.json", ".codex"] {
        assert_eq!(
            release(&runtime, name),
            Err(ErrorCode::InvalidRequest),
            "{name}"
        );
    }
    assert_eq!(by(&runtime, ".envrc"), Some(ProtectedBy::Walls));
}

#[test]
fn what_was_taken_away_comes_back_only_by_the_owner_and_stays_protected() {
    for policy in providers() {
        let desk = Desk::with_repository();
        let runtime = desk.runtime();
        let shell = |text: &str| run(&runtime, policy.clone(), RunCommand::shell(text));
        let made = shell("echo use flake >.envrc; git add -f .envrc");
        assert_eq!(made.denials.len(), 1, "{made:?}");
        assert!(!desk.repo.join(".envrc").exists());
        // git gives it back, as a checkout of the owner's would.
        desk.git(&["checkout", "-q", "--", "."]);
        assert_eq!(desk.read(".envrc"), "use flake\n");
        assert_eq!(by(&runtime, ".envrc"), Some(ProtectedBy::Withheld));
        let _ = shell("echo evil >.envrc");
        assert_eq!(desk.read(".envrc"), "use flake\n");

        let everything = runtime.quarantine(&PolicyRequest::default()).unwrap();
        let first = everything.quarantined.last().unwrap().clone();
        assert_eq!(first.path.as_path(), desk.repo.join(".envrc"));
        let request = RestoreQuarantined {
            quarantine_id: first.quarantine_id,
        };
        let restore = || runtime.restore_quarantined(&PolicyRequest::default(), &request);
        assert_eq!(restore().unwrap_err().code, ErrorCode::FileExists);
        std::fs::remove_file(desk.repo.join(".envrc")).unwrap();
        restore().unwrap();
        assert_eq!(desk.read(".envrc"), "use flake\n");
        assert_eq!(restore().unwrap_err().code, ErrorCode::InvalidRequest);
    }
}
