//! What stands in a fresh tree, and whose it is.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail where they stand")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::spec::Identity;
use cofferdam_core::task::{Carry, CleanupStatus, WorkspaceStrategy};
use cofferdam_exec::workspace::{
    InsideCall, InsideGit, InsideOutput, LeftKind, MergeRequest, TreeState, WorkspaceError,
    WorkspaceStep, Workspaces,
};

use crate::worktree::{Field, git, git_fails, paths, shell};

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
    assert_eq!(receipt.status(), CleanupStatus::KeptDirty);
    assert!(tree.join("libs/inner/s").exists());
}

#[test]
fn other_object_and_reference_formats_work() {
    for format in ["--object-format=sha256", "--ref-format=reftable"] {
        let field = Field::new();
        let other = field.top.path().join("other");
        if format.ends_with("reftable")
            && git_fails(field.top.path(), &["init", "-q", format, "probe"])
        {
            println!("skipped: reftable, which this git does not know (2.45 and later do)");
            return;
        }
        git(
            field.top.path(),
            &["init", "-q", "-b", "main", format, "other"],
        );
        shell(
            &other,
            "echo a >a; git add a; git commit -qm a; git tag t; git branch side",
        );
        let mut request = field.request("w");
        request.workspace = other.as_path().into();
        let worktree = field.make(&request).unwrap();
        field.work(
            &worktree,
            "git log side >/dev/null; echo x >x; git add x; git commit -qm x; echo y >y",
        );
        let record = field.harvest(&worktree.record);
        assert_eq!(
            git(&other, &["show", "cofferdam/run1/w:y"]),
            "y",
            "{format}"
        );
        let merged = field
            .workspaces()
            .merge(&record, &MergeRequest::default())
            .unwrap();
        assert!(other.join("y").exists());
        field.workspaces().undo_merge(&record, &merged).unwrap();
        let dropped = field.workspaces().drop_task(&record).unwrap();
        assert_eq!(dropped.references.len(), 1);
        field
            .workspaces()
            .remove(&record, Some(worktree.lease))
            .unwrap();
    }
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

/// Runs helper commands as another user, at the tree's own path.
struct AsOwner<'a>(&'a Path);

impl InsideGit for AsOwner<'_> {
    #[expect(clippy::disallowed_methods, reason = "a stand-in for walls")]
    fn run(&self, call: &InsideCall) -> Result<InsideOutput, Problem> {
        use std::io::Write as _;
        use std::os::unix::process::CommandExt as _;
        use std::process::Stdio;
        let mut command = std::process::Command::new(call.argv[0].as_os_str());
        command
            .args(call.argv[1..].iter().map(BytePath::as_os_str))
            .current_dir(self.0);
        command
            .uid(12345)
            .gid(12345)
            .env("GIT_CONFIG_GLOBAL", "/dev/null");
        for variable in &call.environment {
            command.env(variable.name.as_os_str(), variable.value.as_os_str());
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = call.input.clone().unwrap_or_default();
        let _ = child.stdin.take().unwrap().write_all(&input);
        let output = child.wait_with_output().unwrap();
        let code = output.status.code();
        Ok(InsideOutput {
            code,
            stdout: output.stdout,
            stderr: output.stderr,
        })
    }
}

#[test]
fn root_works_on_somebody_elses_repository_as_that_user() {
    if std::fs::metadata("/proc/self")
        .map(|own| own.uid())
        .unwrap()
        != 0
    {
        println!("skipped: needs root");
        return;
    }
    let field = Field::new();
    shell(field.top.path(), "chown -R 12345:12345 . ; chmod 755 .");
    let mut options = field.options();
    options.identity = Some(Identity {
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
    let tree = worktree.record.tree.as_path();
    let owned = || {
        shell(
            field.top.path(),
            "test -z \"$(find repo data ! -uid 12345 | head -n1)\"",
        );
    };
    owned();
    std::fs::write(tree.join("new"), "n").unwrap();
    shell(tree, "chown 12345:12345 new");
    let record = workspaces
        .harvest(&worktree.record, &AsOwner(tree))
        .unwrap();
    workspaces.merge(&record, &MergeRequest::default()).unwrap();
    owned();
    assert!(field.repository.join("new").exists());
    let receipt = workspaces.remove(&record, Some(worktree.lease)).unwrap();
    assert_eq!(receipt.status(), CleanupStatus::Removed);
}
