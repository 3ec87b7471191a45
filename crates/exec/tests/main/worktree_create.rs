//! Making trees.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail where they stand")]

use std::path::Path;

use cofferdam_core::error::ErrorCode;
use cofferdam_core::task::{Carry, WorkspaceStrategy};
use cofferdam_exec::workspace::{
    LeftKind, OrphanKind, Placement, TreeState, WorkspaceError, WorkspaceStep, Workspaces,
};

use crate::worktree::{Field, git, git_command, git_fails, paths, shell};

fn code(error: &WorkspaceError) -> ErrorCode {
    error.code()
}

#[test]
fn a_tree_has_its_own_git_directory_and_knows_the_users_branches() {
    let field = Field::named("répo with ünicode 'n \" quotes");
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
    let field = Field::new();
    let workspaces = field.workspaces();
    let mut seen = Vec::new();
    let cut = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        workspaces.create(&field.request("w"), &mut |step| {
            if seen.is_empty() {
                assert!(matches!(step, WorkspaceStep::Intended { .. }));
                assert_eq!(field.references(), ["refs/heads/main"]);
            }
            seen.push(step.clone());
            // The plane dies here, as far as this tree is concerned.
            assert!(!matches!(step, WorkspaceStep::CheckedOut { .. }), "killed");
        })
    }));
    assert!(cut.is_err());
    let orphans = field.workspaces().orphans().unwrap();
    assert_eq!(orphans.len(), 1);
    assert_eq!(orphans[0].kind, OrphanKind::HalfMade);
    assert_eq!(orphans[0].record.as_ref().unwrap().record, "task_w");
    assert!(field.workspaces().take_back_half_made(&orphans[0]).unwrap());
    assert_eq!(field.references(), ["refs/heads/main"]);
    assert_eq!(field.workspaces().orphans().unwrap(), []);
    field.create("w");
    // Killed between the very first directory and its record.
    let records = field
        .trees
        .join(field.create("x").record.repository)
        .join(".records/run1/early");
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

#[test]
fn a_detached_head_and_a_linked_worktree_are_good_starts() {
    let field = Field::new();
    field.user_git(&["checkout", "-q", "--detach"]);
    let worktree = field.create("w");
    assert_eq!(worktree.record.base.reference, None);
    field.user_git(&["worktree", "add", "-q", "-b", "feature", "../linked"]);
    let linked = field.top.path().join("linked");
    shell(&linked, "echo l >l; git add l; git commit -qm l");
    let mut request = field.request("x");
    request.workspace = linked.as_path().into();
    let worktree = field.make(&request).unwrap();
    assert_eq!(
        worktree.record.base.reference.as_deref(),
        Some("refs/heads/feature")
    );
    field.work(&worktree, "test -f l; echo x >x");
    let record = field.harvest(&worktree.record);
    assert_eq!(field.user_git(&["show", "cofferdam/run1/x:x"]), "x");
    assert_eq!(record.harvest.unwrap().modified_files.len(), 1);
}

#[test]
fn uncommitted_work_is_carried_or_said_to_be_left_behind() {
    let field = Field::new();
    shell(
        &field.repository,
        "echo changed >a.txt; git add a.txt; echo again >>a.txt; rm Makefile; echo new >new.txt; mkdir nd; echo n >nd/n; mkdir ignored; echo i >ignored/i",
    );
    let before = field.fingerprint();
    let none = field.create("none");
    let left: Vec<_> = none
        .left_behind
        .iter()
        .map(|one| (one.path.to_string(), one.kind))
        .collect();
    assert_eq!(
        left,
        [
            ("Makefile".to_owned(), LeftKind::Modified),
            ("a.txt".to_owned(), LeftKind::Modified),
            ("nd/".to_owned(), LeftKind::Untracked),
            ("new.txt".to_owned(), LeftKind::Untracked),
        ]
    );
    assert!(none.record.tree.as_path().join("Makefile").exists());

    let mut request = field.request("tracked");
    request.carry = Carry::Tracked;
    let tracked = field.make(&request).unwrap();
    let tree = tracked.record.tree.as_path();
    assert_eq!(
        std::fs::read_to_string(tree.join("a.txt")).unwrap(),
        "changed\nagain\n"
    );
    assert!(!tree.join("Makefile").exists() && !tree.join("new.txt").exists());
    assert_eq!(
        paths(tracked.left_behind.iter().map(|one| &one.path)),
        ["nd/", "new.txt"]
    );

    let mut request = field.request("all");
    request.carry = Carry::All;
    let all = field.make(&request).unwrap();
    let tree = all.record.tree.as_path();
    assert!(tree.join("nd/n").exists() && !tree.join("ignored").exists());
    assert_eq!(all.left_behind, []);
    assert_eq!(git(tree, &["status", "--porcelain"]), "");
    assert_eq!(all.record.base.oid, field.user_git(&["rev-parse", "main"]));
    // Changes are measured from what was carried in; a task that did nothing leaves no branch.
    let record = field.harvest(&all.record);
    let harvest = record.harvest.as_ref().unwrap();
    assert_eq!((harvest.modified_files.len(), &harvest.branch), (0, &None));
    field.work(&tracked, "echo task >>a.txt");
    let record = field.harvest(&tracked.record);
    let harvest = record.harvest.as_ref().unwrap();
    assert_eq!(harvest.summary.insertions, 1);
    assert_eq!(
        field.user_git(&["rev-list", "--count", "main..cofferdam/run1/tracked"]),
        "2"
    );
    // The user's index and files are as they were, but for the references of the two others.
    let now = field.fingerprint();
    for (path, content) in &before {
        assert_eq!(now.get(path), Some(content), "{}", path.display());
    }
}

#[test]
fn b8_seeds_are_copied_only_where_they_are_ignored_and_never_over_something() {
    let field = Field::new();
    shell(
        &field.repository,
        "echo 'SECRET=1' >.env; mkdir -p ignored/deep; echo x >ignored/deep/x; ln -s /etc/passwd ignored/link
         echo visible >visible.cfg; echo tracked >tracked.cfg; git add -f tracked.cfg
         printf '.env\\nignored/\\n*.cfg\\n' >.worktreeinclude; git add .worktreeinclude; git commit -qm seeds",
    );
    let worktree = field.create("w");
    let tree = worktree.record.tree.as_path();
    assert_eq!(
        paths(worktree.record.seeds.iter().map(|seed| &seed.path)),
        [".env", "ignored/deep/x"]
    );
    assert!(tree.join("ignored/deep/x").exists() && !tree.join("visible.cfg").exists());
    assert!(!tree.join("ignored/link").exists());
    assert_eq!(
        worktree.record.notes.len(),
        2,
        "{:?}",
        worktree.record.notes
    );
    // Even when the task stops ignoring them, they are in no snapshot.
    field.work(
        &worktree,
        "echo >.gitignore; echo y >>ignored/deep/x; echo new >new",
    );
    let record = field.harvest(&worktree.record);
    let harvest = record.harvest.unwrap();
    assert_eq!(
        paths(harvest.modified_files.iter().map(|file| &file.path)),
        [".gitignore", "new"]
    );
    assert_eq!(paths(&harvest.seeds_changed), ["ignored/deep/x"]);
    assert!(git_fails(
        &field.repository,
        &["show", "cofferdam/run1/w:.env"]
    ));
}

#[test]
fn submodules_come_from_the_users_store_or_are_said_to_be_empty() {
    let field = Field::new();
    let inner = Field::new();
    let url = inner.repository.to_str().unwrap().to_owned();
    field.user_git(&[
        "submodule",
        "--quiet",
        "add",
        "--name",
        "a/b",
        &url,
        "libs/inner",
    ]);
    field.user_git(&["submodule", "--quiet", "add", &url, "absent"]);
    field.user_git(&["commit", "-qm", "sub"]);
    field.user_git(&["submodule", "--quiet", "deinit", "-f", "absent"]);
    std::fs::remove_dir_all(field.repository.join(".git/modules/absent")).unwrap();
    let worktree = field.create("w");
    let tree = worktree.record.tree.as_path();
    assert!(tree.join("libs/inner/a.txt").exists());
    assert_eq!(git(tree, &["status", "--porcelain"]), "");
    assert_eq!(
        git(&tree.join("libs/inner"), &["log", "--format=%s"]),
        "base"
    );
    assert_eq!(
        worktree.record.notes.len(),
        1,
        "{:?}",
        worktree.record.notes
    );
    assert!(worktree.record.notes[0].contains("submodule absent is empty"));
    // What is committed in there is not on a reference of the user's: the tree stays.
    field.work(
        &worktree,
        "cd libs/inner; echo s >s; git add s; git commit -qm s",
    );
    let record = field.harvest(&worktree.record);
    assert_eq!(
        paths(
            record
                .harvest
                .as_ref()
                .unwrap()
                .unsaved
                .iter()
                .map(|one| &one.path)
        ),
        ["libs/inner"]
    );
    let receipt = field
        .workspaces()
        .remove(&record, Some(worktree.lease))
        .unwrap();
    assert_eq!(
        receipt.status(),
        cofferdam_core::task::CleanupStatus::KeptDirty
    );
    assert!(tree.join("libs/inner/s").exists());
}

#[test]
fn a_shallow_clone_and_a_repository_with_alternates_work() {
    let field = Field::new();
    shell(
        &field.repository,
        "echo more >>a.txt; git commit -qam second",
    );
    let top = field.top.path();
    let url = format!("file://{}", field.repository.display());
    git(top, &["clone", "-q", "--depth=1", &url, "shallow"]);
    git(top, &["clone", "-q", "--shared", "repo", "shared"]);
    for name in ["shallow", "shared"] {
        let mut request = field.request(name);
        request.workspace = top.join(name).into();
        let worktree = field.make(&request).unwrap();
        field.work(
            &worktree,
            "git log >/dev/null; echo x >x; git add x; git commit -qm x; echo y >y",
        );
        let record = field.harvest(&worktree.record);
        assert_eq!(record.harvest.unwrap().modified_files.len(), 2, "{name}");
        let branch = format!("cofferdam/run1/{name}");
        assert_eq!(git(&top.join(name), &["show", &format!("{branch}:y")]), "y");
    }
}

#[test]
fn a_persistent_tree_is_used_again_and_refused_while_it_lives() {
    let field = Field::new();
    let mut request = field.request("w");
    request.strategy = WorkspaceStrategy::Persistent;
    let first = field.make(&request).unwrap();
    let mut second = request.clone();
    second.run = "run2".to_owned();
    second.record = "task_2".to_owned();
    assert!(matches!(
        field.make(&second).unwrap_err(),
        WorkspaceError::Live { .. }
    ));
    field.work(
        &first,
        "echo one >one; mkdir ignored; echo cache >ignored/cache",
    );
    let record = field.harvest(&first.record);
    drop(first.lease);
    let worktree = field.make(&second).unwrap();
    assert!(worktree.reused);
    assert_eq!(worktree.record.tree, record.tree);
    assert_eq!(worktree.record.base.oid, record.harvest.unwrap().commit);
    field
        .workspaces()
        .attach(&worktree.record, &field.walls(&worktree.record))
        .unwrap();
    let tree = worktree.record.tree.as_path();
    assert_eq!(
        git(tree, &["symbolic-ref", "HEAD"]),
        "refs/heads/cofferdam/run2/w"
    );
    assert_eq!(git(tree, &["status", "--porcelain"]), "");
    assert!(tree.join("ignored/cache").exists());
    field.work(&worktree, "echo two >two");
    let record = field.harvest(&worktree.record);
    let files = record.harvest.unwrap().modified_files;
    assert_eq!(paths(files.iter().map(|file| &file.path)), ["two"]);
    assert_eq!(
        field
            .user_git(&["log", "--format=%s", "main..cofferdam/run2/w"])
            .lines()
            .count(),
        2
    );
    // Once the user has it all and goes on, the tree follows.
    drop(worktree.lease);
    field.user_git(&["merge", "-q", "cofferdam/run2/w"]);
    shell(
        &field.repository,
        "echo user >user; git add user; git commit -qm user",
    );
    second.run = "run3".to_owned();
    let worktree = field.make(&second).unwrap();
    assert_eq!(
        worktree.record.base.oid,
        field.user_git(&["rev-parse", "main"])
    );
    field
        .workspaces()
        .attach(&worktree.record, &field.walls(&worktree.record))
        .unwrap();
    assert!(tree.join("user").exists() && tree.join("ignored/cache").exists());
    assert_eq!(git(tree, &["status", "--porcelain"]), "");
}

#[test]
fn root_works_on_somebody_elses_repository_as_that_user() {
    if !rustix_is_root() {
        println!("skipped: needs root");
        return;
    }
    let field = Field::new();
    shell(field.top.path(), "chown -R 12345:12345 . ; chmod 755 .");
    let mut options = field.options();
    options.identity = Some(cofferdam_core::spec::Identity {
        uid: 12345,
        gid: 12345,
        groups: Vec::new(),
    });
    let workspaces = Workspaces::open(options).unwrap();
    let mut steps = Vec::new();
    let worktree = workspaces
        .create(&field.request("w"), &mut |step| steps.push(step))
        .unwrap();
    assert!(matches!(steps.last(), Some(WorkspaceStep::Ready { .. })));
    assert_eq!(worktree.record.state, TreeState::Ready);
    let owners = git_command(field.top.path());
    drop(owners);
    shell(
        field.top.path(),
        "test -z \"$(find repo data ! -uid 12345 | head -n1)\"",
    );
}

fn rustix_is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}
