//! Submodules of a task's tree, filled from the user's own store and never from a network.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::borrow::borrow_objects;
use super::gitdir::GitDirectory;
use super::populate::{Parts, without_filters};
use super::{Places, WorkspaceError, WorktreeRecord};
use crate::git::{Configuration, Git};

/// Fills each submodule of the tree whose commit is in the user's store; notes the others.
pub(crate) fn populate(
    git: &Git,
    parts: Parts<'_>,
    record: &mut WorktreeRecord,
    places: &Places,
) -> Result<(), WorkspaceError> {
    let tree = record.tree_path().to_path_buf();
    let task_git = tree.join(".git");
    let listed = git
        .call(&tree)
        .args(["config", "-z", "--list", "-f", ".gitmodules"])
        .run()?;
    if listed.code() != Some(0) {
        record
            .notes
            .push("the tree's .gitmodules cannot be read; submodules are empty".to_owned());
        return Ok(());
    }
    let modules = Configuration::parse(&listed.stdout);
    let staged = git
        .on(&task_git, &tree)
        .args(["ls-files", "-z", "--stage"])
        .output()?;
    for name in modules.names("submodule") {
        let Some(path) = modules.get(&format!("submodule.{name}.path")) else {
            continue;
        };
        let Some(commit) = gitlink(&staged, path) else {
            continue;
        };
        let path = PathBuf::from(OsStr::from_bytes(path));
        let url = modules.text(&format!("submodule.{name}.url"));
        let shown = path.display().to_string();
        let module = Module {
            name: &name,
            path: &path,
            commit: &commit,
            url: url.as_deref(),
        };
        let note = match fill(git, parts, &tree, places, &module) {
            Ok(None) if tree.join(&path).join(".gitmodules").is_file() => {
                format!("submodules of submodule {shown} are empty")
            }
            Ok(None) => continue,
            Ok(Some(why)) => format!("submodule {shown} is empty: {why}"),
            Err(error) => format!("submodule {shown} is empty: {error}"),
        };
        record.notes.push(note);
    }
    Ok(())
}

/// Finds the commit that a tree has at the path of a submodule.
fn gitlink(staged: &[u8], path: &[u8]) -> Option<String> {
    staged.split(|byte| *byte == 0).find_map(|entry| {
        let rest = entry.strip_prefix(b"160000 ")?;
        let tab = rest.iter().position(|byte| *byte == b'\t')?;
        let oid = rest[..tab].split(|byte| *byte == b' ').next()?;
        (&rest[tab + 1..] == path).then(|| String::from_utf8_lossy(oid).into_owned())
    })
}

struct Module<'a> {
    name: &'a str,
    path: &'a Path,
    commit: &'a str,
    url: Option<&'a str>,
}

/// Fills one submodule; gives why not, when the user's store does not have it.
fn fill(
    git: &Git,
    parts: Parts<'_>,
    tree: &Path,
    places: &Places,
    module: &Module<'_>,
) -> Result<Option<String>, WorkspaceError> {
    let plain = |path: &Path| {
        path.components().all(
            |part| matches!(part, Component::Normal(name) if !name.eq_ignore_ascii_case(".git")),
        )
    };
    if !plain(Path::new(module.name)) || !plain(module.path) {
        return Ok(Some("its name or path is odd".to_owned()));
    }
    let store = parts
        .repository
        .common_dir
        .join("modules")
        .join(module.name);
    let objects = store.join("objects");
    if !objects.is_dir() {
        return Ok(Some("it is not initialised in the checkout".to_owned()));
    }
    let has = git
        .call(tree)
        .env("GIT_DIR", store.as_os_str().as_bytes())
        .args(["cat-file", "-e", &format!("{}^{{commit}}", module.commit)])
        .run()?;
    if has.code() != Some(0) {
        return Ok(Some(format!(
            "commit {} is not in the checkout's store",
            module.commit
        )));
    }
    let label = format!("module-{}", module.name.replace('/', "-"));
    let borrowed = borrow_objects(places, &label, &objects)?;
    let borrowed: Vec<&Path> = borrowed.iter().map(PathBuf::as_path).collect();
    let own = tree.join(".git/modules").join(module.name);
    let up = |path: &Path| "../".repeat(path.components().count());
    let below = format!("{}modules/{}", ".git/", module.name);
    let work_tree = format!("{}{}", up(Path::new(&below)), module.path.display());
    let file = WorkspaceError::file;
    if let Some(parent) = own.parent() {
        std::fs::create_dir_all(parent).map_err(file("making", parent))?;
    }
    let shallow = std::fs::read(store.join("shallow")).ok();
    let directory = GitDirectory {
        borrowed: &borrowed,
        object_format: &parts.repository.object_format,
        configuration: parts.configuration,
        references: &[],
        head: module.commit,
        branch: None,
        exclude: b"",
        attributes: None,
        sparse: None,
        shallow: shallow.as_deref(),
        work_tree: Some(&work_tree),
    };
    directory
        .write(&own)
        .map_err(file("writing git directory", &own))?;
    let place = tree.join(module.path);
    let pointer = place.join(".git");
    let text = format!("gitdir: {}{below}\n", up(module.path));
    std::fs::write(&pointer, text).map_err(file("writing", &pointer))?;
    let call = git.on(&own, &place).args(["read-tree", "-m", "-u", "HEAD"]);
    without_filters(call, parts.configuration)
        .timeout(Duration::from_hours(1))
        .output()?;
    let settings = tree.join(".git/config");
    let mut text = format!(
        "[submodule \"{}\"]\n\tactive = true\n",
        module.name.replace('"', "")
    );
    if let Some(url) = module.url.filter(|url| !url.contains(['"', '\\', '\n'])) {
        let _ = writeln!(text, "\turl = \"{url}\"");
    }
    std::fs::OpenOptions::new()
        .append(true)
        .open(&settings)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(file("writing", &settings))?;
    Ok(None)
}
