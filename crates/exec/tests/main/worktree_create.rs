//! Making trees.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail where they stand")]

use std::path::Path;

use cofferdam_core::error::ErrorCode;
use cofferdam_core::task::{Carry, CleanupStatus};
use cofferdam_exec::workspace::{OrphanKind, Placement, WorkspaceError, WorkspaceStep};

use crate::worktree::{Field, git, paths, shell};

fn code(error: &WorkspaceError) -> ErrorCode {
    error.code()
}

#[test]
fn a_tree_has_its_own_git_directory_and_knows_the_users_branches() {
    let field = Field::named("répo with ünicode 'n \" quotes\nand lines");
    field.user_git(&["branch", "other"]);
    field.user_git(&["tag", "-m", "t", "v1"]);
    field.user_git(&[
        "remote",
        "add",
        "origin",
        "https://me:secret@example.com/x.git",
    ]);
    let worktree = field.create("w");
    let tree = worktree.record.tree.as_path();
    assert_eq!(git(tree, &["status", "--porcelain"]), "");
    assert_eq!(
        git(tree, &["symbolic-ref", "HEAD"]),
        "refs/heads/cofferdam/run1/w"
    );
    assert_eq!(
        git(tree, &["rev-parse", "HEAD"]),
        field.user_git(&["rev-parse", "main"])
    );
    assert_eq!(
        git(tree, &["rev-parse", "other"]),
        field.user_git(&["rev-parse", "other"])
    );
    assert_eq!(git(tree, &["describe", "--tags"]), "v1");
    assert_eq!(
        git(tree, &["remote", "get-url", "origin"]),
        "https://example.com/x.git"
    );
    assert_eq!(git(tree, &["config", "user.name"]), "T");
    assert_eq!(git(tree, &["rev-parse", "--git-common-dir"]), ".git");
    assert_eq!(git(tree, &["fsck", "--strict"]), "");
    assert_eq!(
        worktree.record.base.reference.as_deref(),
        Some("refs/heads/main")
    );
    assert!(worktree.record.base.committed_at.is_some());
    let plan = field.workspaces().plan(&worktree.record);
    assert_eq!(
        plan.view(Placement::AtRepository).inside,
        field.repository.as_path().into()
    );
    assert_eq!(plan.view(Placement::AtOwnPath).inside, worktree.record.tree);
    assert_eq!(plan.borrowed.len(), 1);
    assert_eq!(
        plan.borrowed[0].source,
        field.repository.join(".git/objects").into()
    );
}

#[test]
fn a1_sixty_parallel_requests_on_one_repository_all_succeed() {
    let field = Field::new();
    let upstream = field.top.path().join("upstream");
    git(
        field.top.path(),
        &["clone", "-q", "--bare", "repo", "upstream"],
    );
    field.user_git(&["remote", "add", "origin", upstream.to_str().unwrap()]);
    field.user_git(&["fetch", "-q", "origin"]);
    let workspaces = field.workspaces();
    let made: Vec<_> = std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..60)
            .map(|number| {
                let (workspaces, field) = (&workspaces, &field);
                scope.spawn(move || {
                    let mut request = field.request(&format!("w{number}"));
                    request.base = Some("origin/main".to_owned());
                    workspaces
                        .create(&request, &mut |_| {})
                        .map(|worktree| worktree.record)
                })
            })
            .collect();
        tasks
            .into_iter()
            .map(|task| task.join().unwrap().unwrap())
            .collect()
    });
    assert_eq!(made.len(), 60);
    for record in &made {
        assert_eq!(git(record.tree.as_path(), &["status", "--porcelain"]), "");
    }
    assert_eq!(
        field
            .references()
            .iter()
            .filter(|name| name.contains("/base/"))
            .count(),
        60
    );
}

#[test]
fn looking_for_orphans_beside_tasks_that_begin_and_end_disturbs_nobody() {
    let field = Field::new();
    let workspaces = field.workspaces();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                workspaces.orphans().unwrap();
            }
        });
        for number in 0..20 {
            let worktree = field.create(&format!("w{number}"));
            let record = field.harvest(&worktree.record);
            let receipt = workspaces.remove(&record, Some(worktree.lease)).unwrap();
            assert_eq!(receipt.status(), CleanupStatus::Removed);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        looker.join().unwrap();
    });
}

#[test]
fn a2_a_failure_halfway_is_taken_back_and_the_retry_works() {
    let field = Field::new();
    // A blob of the base is gone: the checkout fails after the reference and directory are made.
    let blob = field.user_git(&["rev-parse", "HEAD:a.txt"]);
    let object = field
        .repository
        .join(".git/objects")
        .join(&blob[..2])
        .join(&blob[2..]);
    let content = std::fs::read(&object).unwrap();
    std::fs::remove_file(&object).unwrap();
    let before = field.fingerprint();
    let (made, steps) = field.make_told(&field.request("w"));
    assert_eq!(code(&made.unwrap_err()), ErrorCode::GitFailed);
    assert!(
        steps
            .iter()
            .any(|step| matches!(step, WorkspaceStep::BaseHeld { .. })),
        "{steps:?}"
    );
    let Some(WorkspaceStep::RolledBack { left, .. }) = steps.last() else {
        panic!("{steps:?}")
    };
    assert_eq!(*left, Vec::<String>::new());
    field.assert_same(&before);
    assert_eq!(field.workspaces().orphans().unwrap(), []);
    std::fs::write(&object, content).unwrap();
    field.create("w");
}

#[test]
fn a2_a_required_filter_with_a_missing_program_does_not_stop_a_tree() {
    let field = Field::new();
    shell(
        &field.repository,
        "echo '*.bin filter=lfs' >.gitattributes; echo pointer >x.bin; git add -A; git commit -qm lfs
         git config filter.lfs.smudge 'no-such-program'; git config filter.lfs.required true
         git config filter.lfs.clean 'no-such-program'; git config filter.lfs.process no-such-program",
    );
    let worktree = field.create("w");
    let tree = worktree.record.tree.as_path();
    assert_eq!(
        std::fs::read_to_string(tree.join("x.bin")).unwrap(),
        "pointer\n"
    );
    assert!(
        worktree.record.notes[0].contains("lfs"),
        "{:?}",
        worktree.record.notes
    );
}

#[test]
fn a3_a_taken_branch_says_what_holds_it() {
    let field = Field::new();
    let first = field.create("w");
    let error = field.make(&field.request("w")).unwrap_err();
    assert_eq!(code(&error), ErrorCode::BranchTaken);
    assert!(error.to_string().contains("task_w has it"), "{error}");
    assert!(first.record.tree.as_path().join("a.txt").exists());
    // One that is checked out elsewhere.
    field.user_git(&[
        "worktree",
        "add",
        "-q",
        "-b",
        "cofferdam/run1/x",
        "../elsewhere",
    ]);
    let error = field.make(&field.request("x")).unwrap_err();
    assert_eq!(code(&error), ErrorCode::BranchTaken);
    assert!(error.to_string().contains("elsewhere"), "{error}");
}

#[test]
fn a4_a_branch_that_stands_in_the_way_is_found_before_anything_is_made() {
    for name in ["cofferdam", "cofferdam/run1", "cofferdam/run1/w/deeper"] {
        let field = Field::new();
        field.user_git(&["branch", name]);
        let before = field.fingerprint();
        let error = field.make(&field.request("w")).unwrap_err();
        assert_eq!(code(&error), ErrorCode::BranchTaken, "{name}");
        field.assert_same(&before);
    }
}

#[test]
fn a5_unborn_bare_and_no_repository_are_told_apart() {
    let field = Field::new();
    let top = field.top.path();
    git(top, &["init", "-q", "unborn"]);
    git(top, &["init", "-q", "--bare", "bare"]);
    std::fs::create_dir(top.join("plain")).unwrap();
    let with = |directory: &str| {
        let mut request = field.request("w");
        request.workspace = top.join(directory).into();
        let error = field.make(&request).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        code(&error)
    };
    assert_eq!(with("unborn"), ErrorCode::RepoUnborn);
    assert_eq!(with("bare"), ErrorCode::RepoBare);
    assert_eq!(with("plain"), ErrorCode::NotARepository);
    assert_eq!(with("repo/.git"), ErrorCode::NotARepository);
    assert!(!field.trees.join(".records").exists());
}

#[test]
fn a6_a_failed_tree_gives_an_error_and_no_path_to_run_in() {
    let field = Field::new();
    let mut request = field.request("w");
    request.base = Some("no-such-revision".to_owned());
    assert_eq!(
        code(&field.make(&request).unwrap_err()),
        ErrorCode::GitFailed
    );
}

#[test]
fn a7_the_tree_is_that_of_the_repository_in_which_the_workspace_lies() {
    let field = Field::new();
    shell(
        &field.repository,
        "mkdir sub; git init -q sub/inner; cd sub/inner; echo i >i; git add i; git commit -qm i",
    );
    let mut request = field.request("w");
    request.workspace = field.repository.join("sub/inner").into();
    let worktree = field.make(&request).unwrap();
    assert!(worktree.record.tree.as_path().join("i").exists());
    let mut request = field.request("x");
    request.workspace = field.repository.join("d").into();
    let worktree = field.make(&request).unwrap();
    assert_eq!(worktree.record.prefix, "d/".into());
}

#[test]
fn a8_the_base_is_recorded_with_its_age_and_distance() {
    let field = Field::new();
    git(field.top.path(), &["clone", "-q", "repo", "clone"]);
    shell(
        &field.repository,
        "for i in 1 2 3; do echo $i >>a.txt; git commit -qam $i; done",
    );
    let clone = field.top.path().join("clone");
    git(&clone, &["fetch", "-q"]);
    let mut request = field.request("w");
    request.workspace = clone.as_path().into();
    let base = field.make(&request).unwrap().record.base;
    assert_eq!(base.oid, git(&clone, &["rev-parse", "HEAD"]));
    assert_eq!(base.upstream.as_deref(), Some("refs/remotes/origin/main"));
    assert_eq!((base.behind, base.ahead), (Some(3), Some(0)));
    assert!(base.fetched_at.is_some() && base.committed_at.is_some());
}

#[test]
fn a10_a_tree_that_is_not_as_it_should_be_is_not_handed_out() {
    let field = Field::new();
    let workspaces = field.workspaces();
    // The index vanishes right after the checkout.
    let made = workspaces.create(&field.request("w"), &mut |step| {
        if let WorkspaceStep::CheckedOut { .. } = step {
            let tree = find_tree(&field.trees);
            std::fs::remove_file(tree.join(".git/index")).unwrap();
        }
    });
    assert!(matches!(
        made.unwrap_err(),
        WorkspaceError::NotAsMade { .. }
    ));
    assert_eq!(field.references(), ["refs/heads/main"]);
}

fn find_tree(trees: &Path) -> std::path::PathBuf {
    let repository = std::fs::read_dir(trees)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let repository = repository
        .into_iter()
        .find(|path| path.join("run1").exists())
        .unwrap();
    repository.join("run1/w")
}

#[test]
fn a_commit_in_the_tree_works_where_the_user_has_no_name() {
    let field = Field::new();
    field.user_git(&["config", "--unset", "user.name"]);
    field.user_git(&["config", "--unset", "user.email"]);
    let worktree = field.create("w");
    let config = std::fs::read_to_string(worktree.record.tree.as_path().join(".git/config"));
    assert!(config.unwrap().contains("email = \"cofferdam@localhost\""));
}

#[test]
fn a11_a_sparse_checkout_is_kept() {
    let field = Field::new();
    field.user_git(&["sparse-checkout", "set", "d"]);
    let worktree = field.create("w");
    let tree = worktree.record.tree.as_path();
    assert!(tree.join("d/deep.txt").exists());
    assert_eq!(git(tree, &["sparse-checkout", "list"]), "d");
    field.work(
        &worktree,
        "echo changed >d/deep.txt; mkdir e; echo out >e/new",
    );
    let record = field.harvest(&worktree.record);
    let harvest = record.harvest.unwrap();
    assert_eq!(
        paths(harvest.modified_files.iter().map(|file| &file.path)),
        ["d/deep.txt", "e/new"]
    );
}

#[test]
fn a12_nothing_is_deleted_to_make_room() {
    let field = Field::new();
    let worktree = field.create("w");
    field.work(
        &worktree,
        "echo mine >mine; git add mine; git commit -qm mine",
    );
    drop(worktree.lease);
    let error = field.make(&field.request("w")).unwrap_err();
    assert_eq!(code(&error), ErrorCode::BranchTaken);
    assert!(worktree.record.tree.as_path().join("mine").exists());
    // A directory that stands there without a record is somebody's too.
    let stranger = worktree.record.tree.as_path().parent().unwrap().join("x");
    std::fs::create_dir(&stranger).unwrap();
    std::fs::write(stranger.join("file"), "f").unwrap();
    let error = field.make(&field.request("x")).unwrap_err();
    assert_eq!(code(&error), ErrorCode::DirectoryTaken);
    assert!(stranger.join("file").exists());
    let kinds: Vec<_> = field
        .workspaces()
        .orphans()
        .unwrap()
        .iter()
        .map(|one| one.kind)
        .collect();
    assert_eq!(kinds, [OrphanKind::Unharvested, OrphanKind::Foreign]);
}

#[test]
fn a14_hooks_and_helpers_of_the_repository_do_not_run() {
    let field = Field::new();
    let canary = field.top.path().join("canary");
    let hook = format!("#!/bin/sh\necho $0 >>{}\n", canary.display());
    for name in [
        "post-checkout",
        "reference-transaction",
        "post-index-change",
        "pre-commit",
    ] {
        let path = field.repository.join(".git/hooks").join(name);
        std::fs::write(&path, &hook).unwrap();
        shell(&field.repository, &format!("chmod +x .git/hooks/{name}"));
    }
    let helper = field.top.path().join("helper");
    std::fs::write(&helper, &hook).unwrap();
    shell(field.top.path(), "chmod +x helper");
    for key in [
        "core.fsmonitor",
        "diff.external",
        "core.pager",
        "core.sshCommand",
        "core.editor",
    ] {
        field.user_git(&["config", key, helper.to_str().unwrap()]);
    }
    let mut request = field.request("w");
    std::fs::write(field.repository.join("a.txt"), "dirty").unwrap();
    request.carry = Carry::All;
    let worktree = field.make(&request).unwrap();
    std::fs::write(worktree.record.tree.as_path().join("new"), "n").unwrap();
    let record = field.harvest(&worktree.record);
    field.workspaces().diff(&record).unwrap();
    field
        .workspaces()
        .remove(&record, Some(worktree.lease))
        .unwrap();
    assert!(
        !canary.exists(),
        "{}",
        std::fs::read_to_string(&canary).unwrap()
    );
}

#[test]
fn a16_a17_the_intent_comes_first_and_a_half_made_tree_is_found() {
    for fatal in ["intended", "base_held", "prepared", "checked_out", "seeded"] {
        let field = Field::new();
        shell(
            &field.repository,
            "echo x >.env; echo .env >.worktreeinclude",
        );
        let workspaces = field.workspaces();
        let mut seen = Vec::new();
        let cut = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            workspaces.create(&field.request("w"), &mut |step| {
                if seen.is_empty() {
                    assert!(matches!(step, WorkspaceStep::Intended { .. }));
                    assert_eq!(field.references(), ["refs/heads/main"]);
                }
                let word = serde_json::to_value(&step).unwrap()["step"].clone();
                seen.push(word.clone());
                // The plane dies here, as far as this tree is concerned.
                assert_ne!(word, fatal);
            })
        }));
        assert!(cut.is_err(), "{fatal}: {seen:?}");
        let orphans = field.workspaces().orphans().unwrap();
        if fatal == "intended" {
            assert_eq!(orphans, []);
        } else {
            assert_eq!(orphans.len(), 1, "{fatal}");
            assert_eq!(orphans[0].kind, OrphanKind::HalfMade);
            assert_eq!(orphans[0].record.as_ref().unwrap().record, "task_w");
            assert!(field.workspaces().take_back_half_made(&orphans[0]).unwrap());
        }
        assert_eq!(field.references(), ["refs/heads/main"]);
        assert_eq!(field.workspaces().orphans().unwrap(), []);
        field.create("w");
    }
    // Killed between the very first directory and its record.
    let field = Field::new();
    let places = field.trees.join(field.create("x").record.repository);
    let records = places.join(".records/run1/early");
    std::fs::create_dir(&records).unwrap();
    let orphans = field.workspaces().orphans().unwrap();
    let early = orphans
        .iter()
        .find(|one| one.kind == OrphanKind::HalfMade)
        .unwrap();
    assert!(field.workspaces().take_back_half_made(early).unwrap());
    assert!(!records.exists());
    field.create("early");
}
