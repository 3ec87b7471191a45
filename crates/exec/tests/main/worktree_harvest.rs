//! Bringing in what a task did.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail where they stand")]

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::task::{ChangeKind, CleanupStatus};
use cofferdam_exec::workspace::{InsideCall, InsideGit, InsideOutput, Workspaces};

use crate::worktree::{Field, git, git_fails, paths, shell};

#[test]
fn user_repository_is_byte_identical_but_for_the_branch() {
    let field = Field::new();
    shell(
        &field.repository,
        "git pack-refs --all; git gc -q; echo dirty >>a.txt; echo u >untracked",
    );
    let before = field.fingerprint();
    let worktree = field.create("w");
    field.work(&worktree, "echo more >>a.txt; git commit -qam work; echo new >new; git stash -qu; git config x.y z; git tag t");
    field.work(
        &worktree,
        "git tag -d t; git stash drop -q; echo rest >rest",
    );
    let record = field.harvest(&worktree.record);
    let receipt = field
        .workspaces()
        .remove(&record, Some(worktree.lease))
        .unwrap();
    assert_eq!(receipt.status(), CleanupStatus::Removed);
    field.assert_same(&before);
    assert_eq!(
        field.references(),
        ["refs/heads/cofferdam/run1/w", "refs/heads/main"]
    );
    assert_eq!(field.user_git(&["fsck", "--strict", "--no-dangling"]), "");
    // Nothing is left among the trees either.
    assert_eq!(field.workspaces().orphans().unwrap(), []);
    assert!(!worktree.record.tree.as_path().exists());
}

#[test]
fn c1_untracked_renamed_deleted_and_binary_files_are_in_the_result() {
    let field = Field::new();
    let worktree = field.create("w");
    field.work(
        &worktree,
        "echo four >>a.txt; rm Makefile; git mv d/deep.txt d/moved.txt; printf '\\0\\1' >bin.dat
         echo n >new.txt; mkdir -p ignored; echo i >ignored/i; printf x >'odd \"name
of a file'; ln -s /etc/passwd link; chmod +x a.txt; git add bin.dat",
    );
    let record = field.harvest(&worktree.record);
    let harvest = record.harvest.as_ref().unwrap();
    let find = |path: &str| {
        harvest
            .modified_files
            .iter()
            .find(|file| file.path == path.into())
            .unwrap()
    };
    assert_eq!(
        paths(harvest.modified_files.iter().map(|file| &file.path)),
        [
            "Makefile",
            "a.txt",
            "bin.dat",
            "d/moved.txt",
            "link",
            "new.txt",
            "odd \"name\nof a file"
        ]
    );
    assert_eq!(find("Makefile").change, ChangeKind::Deleted);
    assert_eq!(
        (find("a.txt").added_lines, find("a.txt").removed_lines),
        (1, 0)
    );
    assert_eq!(find("d/moved.txt").change, ChangeKind::Renamed);
    assert_eq!(find("d/moved.txt").from, Some("d/deep.txt".into()));
    assert!(find("bin.dat").binary && !find("bin.dat").untracked);
    assert!(find("new.txt").untracked && !find("a.txt").untracked);
    assert_eq!(paths(&harvest.ignored), ["ignored/"]);
    assert!(harvest.uncommitted && harvest.own_commits == 0 && harvest.moved_to.is_none());
    assert_eq!(field.user_git(&["show", "cofferdam/run1/w:new.txt"]), "n");
    assert_eq!(
        field.user_git(&["log", "-1", "--format=%an <%ae> %s", "cofferdam/run1/w"]),
        "User <user@example.com> cofferdam: uncommitted work of w"
    );
    let diff = String::from_utf8(field.workspaces().diff(&record).unwrap()).unwrap();
    assert!(
        diff.contains("rename to d/moved.txt") && diff.contains("GIT binary patch"),
        "{diff}"
    );
    // The task's own index is as it was left.
    assert!(git(worktree.record.tree.as_path(), &["status", "--porcelain"]).contains("?? new.txt"));
}

#[test]
fn a_task_that_did_nothing_leaves_nothing() {
    let field = Field::new();
    let before = field.fingerprint();
    let worktree = field.create("w");
    let record = field.harvest(&worktree.record);
    assert_eq!(record.harvest.as_ref().unwrap().branch, None);
    let receipt = field
        .workspaces()
        .remove(&record, Some(worktree.lease))
        .unwrap();
    assert_eq!(receipt.status(), CleanupStatus::Removed);
    field.assert_same(&before);
    assert_eq!(field.references(), ["refs/heads/main"]);
}

#[test]
fn commits_and_the_uncommitted_rest_are_both_on_the_branch() {
    let field = Field::new();
    let worktree = field.create("w");
    field.work(&worktree, "echo 1 >one; git add one; git commit -qm one; echo 2 >two; git add two; git commit -qm two; echo 3 >three");
    let harvest = field.harvest(&worktree.record).harvest.unwrap();
    assert_eq!(harvest.own_commits, 2);
    assert_eq!(
        field.user_git(&["log", "--format=%s", "main..cofferdam/run1/w"]),
        "cofferdam: uncommitted work of w\ntwo\none"
    );
    assert!(harvest.descends_from_base);
    assert_eq!(
        harvest.commit,
        field.user_git(&["rev-parse", "cofferdam/run1/w"])
    );
}

#[test]
fn a_harvest_that_was_cut_off_can_be_done_again() {
    let field = Field::new();
    let worktree = field.create("w");
    field.work(
        &worktree,
        "echo s >>a.txt; git stash -q; echo 1 >one; git add one; git commit -qm one; echo 2 >two",
    );
    let first = field.harvest(&worktree.record).harvest.unwrap();
    // The record that says so was never written.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let again = field.harvest(&worktree.record).harvest.unwrap();
    assert_eq!(again, first);
    field.work(&worktree, "echo 3 >three");
    let error = field
        .workspaces()
        .harvest(&worktree.record, &field.walls(&worktree.record));
    assert_eq!(error.unwrap_err().code(), ErrorCode::BranchTaken);
}

#[test]
fn b1_b4_other_branches_detached_commits_and_stashes_are_saved() {
    let field = Field::new();
    field.user_git(&["branch", "given"]);
    let worktree = field.create("w");
    field.work(
        &worktree,
        "echo own >own; git add own; git commit -qm own
         echo s >>a.txt; git stash -q; echo t >>a.txt; git stash -q
         git switch -qc other main; echo other >other; git add other; git commit -qm other
         git checkout -q given; echo moved >moved; git add moved; git commit -qm moved
         git checkout -q --detach main; echo detached >detached; git add detached; git commit -qm detached
         git update-ref refs/remotes/origin/x HEAD; echo rest >rest",
    );
    let record = field.harvest(&worktree.record);
    let harvest = record.harvest.as_ref().unwrap();
    assert_eq!(harvest.moved_to.as_deref(), Some("HEAD"));
    // What goes to the branch is where the task stood at its end.
    assert_eq!(
        field.user_git(&["log", "--format=%s", "main..cofferdam/run1/w"]),
        "cofferdam: uncommitted work of w\ndetached"
    );
    let saved: Vec<_> = harvest.saved.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(
        saved,
        [
            "refs/heads/cofferdam/run1/w",
            "refs/heads/given",
            "refs/heads/other",
            "stash@{0}",
            "stash@{1}",
        ]
    );
    let show = |reference: &str| field.user_git(&["log", "-1", "--format=%s", reference]);
    let prefix = "refs/cofferdam/saved/run1/w";
    assert_eq!(show(&format!("{prefix}/heads/other")), "other");
    assert_eq!(show(&format!("{prefix}/heads/cofferdam/run1/w")), "own");
    assert!(show(&format!("{prefix}/stash/1")).starts_with("WIP on cofferdam/run1/w"));
    assert_eq!(
        field.user_git(&["log", "-1", "--format=%s", "given"]),
        "base"
    );
    assert!(git_fails(
        &field.repository,
        &["rev-parse", "-q", "--verify", "refs/stash"]
    ));
    let receipt = field
        .workspaces()
        .remove(&record, Some(worktree.lease))
        .unwrap();
    assert_eq!(
        (receipt.status(), receipt.proof.saved_references),
        (CleanupStatus::Removed, 5)
    );
}

#[test]
fn b3_a_task_that_breaks_its_own_repository_breaks_nobody_elses() {
    let field = Field::new();
    let before = field.fingerprint();
    let worktree = field.create("w");
    field.work(
        &worktree,
        "echo w >w; GIT_DIR=$PWD/.git git init -q; git config core.bare true",
    );
    let record = field.harvest(&worktree.record);
    assert_eq!(field.user_git(&["show", "cofferdam/run1/w:w"]), "w");
    assert_eq!(field.user_git(&["config", "core.bare"]), "false");
    field
        .workspaces()
        .remove(&record, Some(worktree.lease))
        .unwrap();
    field.assert_same(&before);
}

#[test]
fn b10_prune_and_gc_of_the_task_reach_only_its_own() {
    let field = Field::new();
    field.user_git(&["worktree", "add", "-q", "-b", "linked", "../linked"]);
    let first = field.create("first");
    let second = field.create("second");
    std::fs::rename(
        field.top.path().join("linked"),
        field.top.path().join("away"),
    )
    .unwrap();
    field.work(&first, "echo x >x; git add x; git commit -qm x; git worktree prune --expire=now; git gc -q --prune=now; git repack -qadf");
    std::fs::rename(
        field.top.path().join("away"),
        field.top.path().join("linked"),
    )
    .unwrap();
    assert_eq!(
        git(&field.top.path().join("linked"), &["status", "--porcelain"]),
        ""
    );
    assert_eq!(
        git(second.record.tree.as_path(), &["status", "--porcelain"]),
        ""
    );
    field.harvest(&first.record);
    assert_eq!(field.user_git(&["show", "cofferdam/run1/first:x"]), "x");
}

#[test]
fn d4_commits_that_a_detached_head_left_are_saved_and_amended_ones_are_not() {
    let field = Field::new();
    let worktree = field.create("w");
    field.work(
        &worktree,
        "git checkout -q --detach; echo lost >lost; git add lost; git commit -qm lost; git switch -q -
         echo a >a; git add a; git commit -qm first; git commit -q --amend -m amended",
    );
    let record = field.harvest(&worktree.record);
    let harvest = record.harvest.unwrap();
    let saved: Vec<_> = harvest
        .saved
        .iter()
        .map(|one| one.reference.as_str())
        .collect();
    assert_eq!(saved, ["refs/cofferdam/saved/run1/w/detached/0"]);
    assert_eq!(
        field.user_git(&["log", "-1", "--format=%s", saved[0]]),
        "lost"
    );
    assert_eq!(
        field.user_git(&["log", "--format=%s", "main..cofferdam/run1/w"]),
        "amended"
    );
}

/// Walls in which `git add` says that it could not read a file.
struct Unreadable(crate::worktree::Walls);

impl InsideGit for Unreadable {
    fn run(&self, call: &InsideCall) -> Result<InsideOutput, Problem> {
        let mut output = self.0.run(call)?;
        if call.argv.contains(&"--ignore-errors".into()) {
            output.code = Some(1);
            output.stderr = b"error: open(\"secret\"): Permission denied\n".to_vec();
        }
        Ok(output)
    }
}

#[test]
fn c12_an_unreadable_file_keeps_the_tree_and_the_rest_is_saved() {
    let field = Field::new();
    let worktree = field.create("w");
    field.work(&worktree, "echo w >w");
    let walls = Unreadable(field.walls(&worktree.record));
    let record = field
        .workspaces()
        .harvest(&worktree.record, &walls)
        .unwrap();
    assert_eq!(field.user_git(&["show", "cofferdam/run1/w:w"]), "w");
    let receipt = field
        .workspaces()
        .remove(&record, Some(worktree.lease))
        .unwrap();
    assert_eq!(receipt.status(), CleanupStatus::KeptDirty);
    assert!(receipt.proof.unsaved[0].why.contains("Permission denied"));
}

/// Harvests a task whose git directory is of no use; gives why, and what became of its tree.
fn rescued(field: &Field, script: &str) -> (String, CleanupStatus) {
    let worktree = field.create("w");
    field.work(&worktree, script);
    let workspaces: Workspaces = field.workspaces();
    let record = workspaces
        .harvest(&worktree.record, &field.walls(&worktree.record))
        .unwrap();
    let harvest = record.harvest.clone().unwrap();
    let receipt = workspaces.remove(&record, Some(worktree.lease)).unwrap();
    assert_eq!(field.user_git(&["fsck", "--no-dangling"]), "");
    // Nothing of what it was done with is in the tree or in the commit.
    let is_ours = |name: &str| name.contains("git-cofferdam");
    if let Ok(names) = std::fs::read_dir(record.tree.as_path()) {
        for name in names.flatten() {
            assert!(!is_ours(&name.file_name().to_string_lossy()));
        }
    }
    let listed = field.user_git(&["ls-tree", "-r", "--name-only", &harvest.commit]);
    assert!(!is_ours(&listed), "{listed}");
    (harvest.rescued.unwrap(), receipt.status())
}

#[test]
fn a_tree_with_a_git_directory_in_it_does_not_come_in() {
    let field = Field::new();
    let (why, status) = rescued(
        &field,
        "echo honest >honest
         blob=$(echo evil | git hash-object -w --stdin)
         inner=$(printf '100755 blob %s\\tconfig\\n' $blob | git mktree)
         outer=$(printf '040000 tree %s\\t.GIT\\n' $inner | git mktree --missing)
         git update-ref HEAD $(git commit-tree -m evil -p HEAD $outer); git reset -q --soft HEAD",
    );
    assert!(why.contains("hasDotgit") || why.contains(".git"), "{why}");
    assert_eq!(status, CleanupStatus::KeptDirty);
    let branch = "cofferdam/run1/w";
    assert_eq!(
        field.user_git(&["show", &format!("{branch}:honest")]),
        "honest"
    );
    let all = field.user_git(&["rev-list", "--objects", branch]);
    assert!(!all.contains(".GIT"), "{all}");
    assert_eq!(
        field.user_git(&["rev-list", "--count", "main..cofferdam/run1/w"]),
        "1"
    );
}

#[test]
fn files_are_saved_when_the_tasks_repository_is_gone_or_broken() {
    let broken = "echo x >x; git add x; git commit -qm x; o=$(git rev-parse HEAD:x); rm -f .git/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-)";
    let work =
        "echo x >x; rm a.txt; printf '!*\n' >.gitignore; mkdir -p ignored; echo i >ignored/i;";
    for (script, is_gone) in [
        (broken.to_owned(), false),
        (format!("{work} rm -rf .git"), true),
        (format!("{work} rm -rf .git; ln -s /etc .git"), false),
        (
            format!("{work} rm -rf .git; git init -q; git add -A; git commit -qm mine"),
            false,
        ),
        (format!("{work} echo broken >.git/HEAD"), false),
    ] {
        let field = Field::new();
        let before = field.fingerprint();
        let (why, status) = rescued(&field, &script);
        assert_eq!(
            why.contains("removed its git directory"),
            is_gone,
            "{script}: {why}"
        );
        // What is not ours to judge stays.
        let stays = matches!(
            status,
            CleanupStatus::KeptDirty | CleanupStatus::KeptUnknown
        );
        let goes = status == CleanupStatus::Removed;
        assert_eq!((goes, stays), (is_gone, !is_gone), "{script}: {status:?}");
        assert_eq!(
            field.user_git(&["show", "cofferdam/run1/w:x"]),
            "x",
            "{script}"
        );
        if script.starts_with(work) {
            let listed = field.user_git(&["ls-tree", "-r", "--name-only", "cofferdam/run1/w"]);
            assert!(!listed.contains("a.txt"), "{script}: {listed}");
        }
        field.assert_same(&before);
    }
}

#[test]
fn a_pack_beyond_the_bound_is_rejected() {
    let field = Field::new();
    let worktree = field.create("w");
    field.work(&worktree, "head -c 200000 /dev/urandom >big");
    let mut options = field.options();
    options.pack_bound = 100_000;
    let workspaces = Workspaces::open(options).unwrap();
    let error = workspaces
        .harvest(&worktree.record, &field.walls(&worktree.record))
        .unwrap_err();
    assert!(error.to_string().contains("100000 are allowed"), "{error}");
    field.harvest(&worktree.record);
}

#[test]
fn hostile_settings_of_the_task_do_not_reach_the_plane() {
    let field = Field::new();
    let worktree = field.create("w");
    let canary = field.top.path().join("canary");
    let tree = worktree.record.tree.as_path();
    std::fs::write(
        tree.join("evil"),
        format!("#!/bin/sh\necho ran >>{}\n", canary.display()),
    )
    .unwrap();
    field.work(
        &worktree,
        "chmod +x evil; E=$PWD/evil; for k in core.fsmonitor core.hooksPath diff.external core.pager core.sshCommand core.gitProxy core.alternateRefsCommand uploadpack.packObjectsHook credential.helper; do git config $k $E; done
         git config filter.x.clean $E; git config filter.x.smudge $E; echo '* filter=x' >.git/info/attributes
         git config core.worktree /; git config include.path /etc/passwd",
    );
    // The clean filter may run inside the walls, where it can write nothing outside; never outside.
    let record = field
        .workspaces()
        .harvest(&worktree.record, &field.walls(&worktree.record));
    if crate::worktree::bwrap_works() {
        assert!(!canary.exists());
    }
    drop(record);
}

#[test]
fn a_nested_repository_and_an_unfinished_merge_keep_the_tree() {
    let field = Field::new();
    let worktree = field.create("w");
    field.work(
        &worktree,
        "git init -q nested; cd nested; echo n >n; git add n; git commit -qm n",
    );
    let record = field.harvest(&worktree.record);
    let receipt = field
        .workspaces()
        .remove(&record, Some(worktree.lease))
        .unwrap();
    assert_eq!(receipt.status(), CleanupStatus::KeptDirty);
    assert!(worktree.record.tree.as_path().join("nested/n").exists());

    let field = Field::new();
    let worktree = field.create("w");
    field.work(
        &worktree,
        "git switch -qc side; echo side >a.txt; git commit -qam side; git switch -q -; echo main >a.txt; git commit -qam own; git merge -q side || true",
    );
    let record = field.harvest(&worktree.record);
    assert_eq!(record.harvest.as_ref().unwrap().in_progress, ["merge"]);
    assert!(
        field
            .user_git(&["show", "cofferdam/run1/w:a.txt"])
            .contains("<<<<<<<")
    );
    let receipt = field
        .workspaces()
        .remove(&record, Some(worktree.lease))
        .unwrap();
    assert_eq!(receipt.status(), CleanupStatus::KeptDirty);
}

#[test]
fn d5_d7_a_tree_in_which_somebody_works_is_kept() {
    let field = Field::new();
    let worktree = field.create("w");
    let record = field.harvest(&worktree.record);
    let receipt = field.workspaces().remove(&record, None).unwrap();
    assert_eq!(receipt.status(), CleanupStatus::KeptLive);
    let mut sleeper = sleeper(&worktree.record.tree.as_path().join("d"));
    let receipt = field
        .workspaces()
        .remove(&record, Some(worktree.lease))
        .unwrap();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(receipt.status(), CleanupStatus::KeptLive);
    assert_eq!(receipt.proof.processes_inside, [sleeper.id()]);
    let receipt = field.workspaces().remove(&record, None).unwrap();
    assert_eq!(receipt.status(), CleanupStatus::Removed);
    let receipt = field.workspaces().remove(&record, None).unwrap();
    assert_eq!(receipt.status(), CleanupStatus::NotNeeded);
}

#[expect(clippy::disallowed_methods, reason = "a stranger's process")]
fn sleeper(directory: &std::path::Path) -> std::process::Child {
    std::process::Command::new("sleep")
        .arg("60")
        .current_dir(directory)
        .spawn()
        .unwrap()
}

#[test]
fn d1_d2_a_path_that_is_not_the_one_that_was_made_is_kept() {
    let field = Field::new();
    let worktree = field.create("w");
    let mut record = field.harvest(&worktree.record);
    drop(worktree.lease);
    let tree = record.tree.as_path().to_path_buf();
    let moved = tree.with_extension("moved");
    std::fs::rename(&tree, &moved).unwrap();
    std::os::unix::fs::symlink(&field.repository, &tree).unwrap();
    let receipt = field.workspaces().remove(&record, None).unwrap();
    assert_eq!(receipt.status(), CleanupStatus::KeptUnknown);
    std::fs::remove_file(&tree).unwrap();
    std::fs::create_dir(&tree).unwrap();
    assert_eq!(
        field.workspaces().remove(&record, None).unwrap().status(),
        CleanupStatus::KeptUnknown
    );
    record.tree = field.repository.as_path().into();
    assert_eq!(
        field.workspaces().remove(&record, None).unwrap().status(),
        CleanupStatus::KeptUnknown
    );
    assert!(field.repository.join("a.txt").exists() && moved.exists());
}
