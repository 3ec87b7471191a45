//! Merging, dropping and undoing.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail where they stand")]

use cofferdam_core::error::ErrorCode;
use cofferdam_exec::workspace::{MergeRequest, WorkspaceError, WorktreeRecord};

use crate::worktree::{Field, git_fails, paths, shell};

fn task(field: &Field, worker: &str, script: &str) -> WorktreeRecord {
    let worktree = field.create(worker);
    field.work(&worktree, script);
    let record = field.harvest(&worktree.record);
    field
        .workspaces()
        .remove(&record, Some(worktree.lease))
        .unwrap();
    record
}

fn request() -> MergeRequest {
    MergeRequest {
        target: None,
        message: "Merge task 1: try".to_owned(),
        protected: vec![".vscode/tasks.json".into(), ".claude".into()],
    }
}

#[test]
fn a_fast_forward_brings_the_clean_checkout_along_and_can_be_undone() {
    let field = Field::new();
    let record = task(&field, "w", "echo two >two; rm Makefile");
    let before = field.user_git(&["rev-parse", "main"]);
    // Touched and not changed is not dirty.
    shell(
        &field.repository,
        "cp -p Makefile copy; cat copy >Makefile; touch -d '2001-01-01' Makefile; rm copy",
    );
    let merged = field.workspaces().merge(&record, &request()).unwrap();
    assert!(merged.fast_forward);
    assert_eq!(merged.checkout, Some(field.repository.as_path().into()));
    assert_eq!(field.user_git(&["status", "--porcelain"]), "");
    assert!(field.repository.join("two").exists() && !field.repository.join("Makefile").exists());
    assert_eq!(
        field.user_git(&["rev-parse", "refs/cofferdam/undo/run1/w"]),
        before
    );
    // Once more: nothing to do.
    let again = field.workspaces().merge(&record, &request()).unwrap();
    assert_eq!(again.old, again.new);
    field.workspaces().undo_merge(&record, &merged).unwrap();
    assert_eq!(field.user_git(&["rev-parse", "main"]), before);
    assert_eq!(field.user_git(&["status", "--porcelain"]), "");
    assert!(!field.repository.join("two").exists() && field.repository.join("Makefile").exists());
    assert_eq!(
        field.references(),
        ["refs/heads/cofferdam/run1/w", "refs/heads/main"]
    );
    // And merged again, it can only be undone while the branch has not gone on.
    let merged = field.workspaces().merge(&record, &request()).unwrap();
    shell(
        &field.repository,
        "echo on >on; git add on; git commit -qm on",
    );
    let error = field.workspaces().undo_merge(&record, &merged).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TargetMoved);
}

#[test]
fn c6_a_merge_is_computed_without_a_tree_and_leaves_other_work_alone() {
    let field = Field::new();
    let record = task(&field, "w", "echo task >task.txt");
    shell(
        &field.repository,
        "echo user >user.txt; git add user.txt; git commit -qm user; git switch -qc elsewhere; echo staged >staged; git add staged",
    );
    let merged = field.workspaces().merge(&record, &request()).unwrap();
    assert!(!merged.fast_forward && merged.checkout.is_none());
    assert_eq!(
        field.user_git(&["log", "-1", "--format=%s", "main"]),
        "Merge task 1: try"
    );
    assert_eq!(field.user_git(&["show", "main:task.txt"]), "task");
    assert_eq!(field.user_git(&["show", "main:user.txt"]), "user");
    assert_eq!(
        field.user_git(&["symbolic-ref", "HEAD"]),
        "refs/heads/elsewhere"
    );
    assert_eq!(field.user_git(&["status", "--porcelain"]), "A  staged");
}

#[test]
fn a_conflict_is_reported_and_leaves_both_sides_intact() {
    let field = Field::new();
    let record = task(&field, "w", "sed -i s/two/task/ a.txt");
    shell(
        &field.repository,
        "sed -i s/two/user/ a.txt; git commit -qam user",
    );
    let before = field.fingerprint();
    let error = field.workspaces().merge(&record, &request()).unwrap_err();
    let WorkspaceError::MergeConflict { files } = &error else {
        panic!("{error}")
    };
    assert_eq!(paths(files), ["a.txt"]);
    field.assert_same(&before);
}

#[test]
fn c3_c4_a_dirty_checkout_of_the_target_is_refused_and_untouched() {
    let field = Field::new();
    let record = task(&field, "w", "echo task >new.txt; echo more >>a.txt");
    for script in [
        "echo dirty >>Makefile",
        "echo mine >>Makefile; git add Makefile",
        "git rm -q Makefile",
    ] {
        shell(&field.repository, script);
        let before = field.fingerprint();
        let error = field.workspaces().merge(&record, &request()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::CheckoutDirty, "{script}");
        field.assert_same(&before);
        shell(&field.repository, "git reset -q --hard");
    }
    // Untracked and ignored files in the way are as good as changes; others are not.
    shell(&field.repository, "echo mine >new.txt");
    let error = field.workspaces().merge(&record, &request()).unwrap_err();
    let WorkspaceError::CheckoutDirty { files, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(paths(files), ["new.txt"]);
    shell(&field.repository, "echo new.txt >.git/info/exclude");
    let error = field.workspaces().merge(&record, &request()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CheckoutDirty);
    assert_eq!(
        std::fs::read_to_string(field.repository.join("new.txt")).unwrap(),
        "mine\n"
    );
    shell(&field.repository, "mv new.txt aside.txt");
    field.workspaces().merge(&record, &request()).unwrap();
    assert!(field.repository.join("aside.txt").exists());
}

#[test]
fn c4_a_target_checked_out_in_a_linked_worktree_is_updated_there() {
    let field = Field::new();
    let record = task(&field, "w", "echo task >task.txt");
    field.user_git(&["switch", "-qc", "elsewhere"]);
    field.user_git(&["worktree", "add", "-q", "../linked", "main"]);
    let linked = field.top.path().join("linked");
    let merged = field.workspaces().merge(&record, &request()).unwrap();
    assert_eq!(merged.checkout, Some(linked.as_path().into()));
    assert!(linked.join("task.txt").exists() && !field.repository.join("task.txt").exists());
    assert_eq!(
        crate::worktree::git(&linked, &["status", "--porcelain"]),
        ""
    );
}

#[test]
fn protected_names_are_not_merged_unless_allowed() {
    let field = Field::new();
    let record = task(
        &field,
        "w",
        "mkdir .claude .vscode; echo x >.claude/settings.json; echo y >.vscode/tasks.json; echo z >.vscode/other",
    );
    let before = field.fingerprint();
    let error = field.workspaces().merge(&record, &request()).unwrap_err();
    let WorkspaceError::ProtectedChanged { files } = &error else {
        panic!("{error}")
    };
    assert_eq!(
        paths(files),
        [".claude/settings.json", ".vscode/tasks.json"]
    );
    field.assert_same(&before);
    let allowed = MergeRequest {
        protected: Vec::new(),
        ..request()
    };
    field.workspaces().merge(&record, &allowed).unwrap();
}

#[test]
fn d3_a_dropped_task_can_be_brought_back() {
    let field = Field::new();
    let record = task(
        &field,
        "w",
        "git switch -qc side; echo s >s; git add s; git commit -qm s; git switch -q -; echo w >w",
    );
    let before = field.references();
    assert!(before.contains(&"refs/cofferdam/saved/run1/w/heads/side".to_owned()));
    let dropped = field.workspaces().drop_task(&record).unwrap();
    assert_eq!(dropped.references.len(), 2);
    assert!(git_fails(
        &field.repository,
        &["rev-parse", "-q", "--verify", "cofferdam/run1/w"]
    ));
    field.user_git(&["gc", "-q", "--prune=now"]);
    field.workspaces().undo_drop(&record, &dropped).unwrap();
    assert_eq!(field.references(), before);
    assert_eq!(field.user_git(&["show", "cofferdam/run1/w:w"]), "w");
    field.user_git(&["switch", "-q", "cofferdam/run1/w"]);
    let error = field.workspaces().drop_task(&record).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TaskState);
}
