//! Tools of the owner's own, those that come with the program, and those that a project proposes.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::{ToolList, ToolOrigin, ToolState, ToolView};
use cofferdam_core::tool::{Tool, read_tool};
use cofferdam_exec::host::Surroundings;
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::owned;
use crate::runtime::Runtime;

/// Most bytes of one tool's file.
const TOOL_BYTES: u64 = 1 << 20;
/// Most files of a project that are looked at.
const PROPOSALS: usize = 64;
/// Where a project proposes tools.
const PROJECT: [&str; 2] = [".cofferdam", "tools"];

/// The tools that come with the program.
const SHIPPED: &[(&str, &str)] = &[(
    "install_package",
    include_str!("../../tools/install_package.toml"),
)];

/// A tool that somebody wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolEntry {
    /// Its name.
    pub name: String,
    /// Where it comes from; the owner's take the place of shipped ones.
    pub origin: ToolOrigin,
    /// Its file, where it has one.
    pub file: Option<PathBuf>,
    /// What it says, or why it cannot be read.
    pub tool: Result<Tool, Problem>,
}

/// Every tool of one workspace, by name. What a project proposes stands beside, never in the place
/// of another.
#[derive(Debug, Clone, PartialEq)]
pub struct Tools {
    list: Vec<ToolEntry>,
    own: Option<PathBuf>,
}

impl Tools {
    /// Reads the tools that come with the program, those in the owner's `cofferdam/tools`, and what
    /// the workspace proposes in `.cofferdam/tools`. A name that `is_operation` knows is refused.
    pub fn read(
        surroundings: &Surroundings,
        workspace: Option<&Path>,
        is_operation: impl Fn(&str) -> bool,
    ) -> Self {
        let mut list: Vec<ToolEntry> = SHIPPED
            .iter()
            .map(|(name, text)| ToolEntry {
                name: (*name).to_owned(),
                origin: ToolOrigin::Shipped,
                file: None,
                tool: read_tool(text, name),
            })
            .collect();
        let own = owned::directory(surroundings, "tools");
        for (name, path) in own.as_deref().map(owned::files).unwrap_or_default() {
            list.retain(|one| one.name != name);
            let opened = File::open(&path).map_err(|error| unreadable(&path, &error));
            list.push(ToolEntry {
                tool: opened.and_then(|file| read_file(file, &path, &name)),
                name,
                origin: ToolOrigin::Owner,
                file: Some(path),
            });
        }
        list.extend(workspace.map(proposed).unwrap_or_default());
        for entry in &mut list {
            if entry.tool.is_ok() && is_operation(&entry.name) {
                entry.tool = Err(Problem::new(
                    ErrorCode::PolicyInvalidValue,
                    format!("{} is the name of an operation", entry.name),
                )
                .with_field("name")
                .with_hint("give the tool and its file another name"));
            }
        }
        list.sort_by(|left, right| {
            (&left.name, left.origin as u8).cmp(&(&right.name, right.origin as u8))
        });
        Self { list, own }
    }

    /// Lists them.
    pub fn entries(&self) -> &[ToolEntry] {
        &self.list
    }

    /// Lists those that can be run.
    pub fn runnable(&self) -> impl Iterator<Item = &Tool> {
        self.list
            .iter()
            .filter(|one| one.origin != ToolOrigin::Project)
            .filter_map(|one| one.tool.as_ref().ok())
    }

    /// Gives a tool that can be run.
    ///
    /// # Errors
    ///
    /// `invalid_request` for a name that nobody knows, `approval_unavailable` for what a project
    /// proposes, and why the owner's file cannot be read.
    pub fn find(&self, name: &str) -> Result<&Tool, Problem> {
        // What a project proposes comes last among those of one name.
        let found = self.list.iter().find(|one| one.name == name);
        let Some(entry) = found else {
            let names: Vec<&str> = self.runnable().map(|one| one.name.as_str()).collect();
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!("there is no tool {name:?}"),
            )
            .with_field("name")
            .with_hint(format!("tools are: {}", names.join(", "))));
        };
        let tool = entry.tool.as_ref().map_err(Clone::clone)?;
        match self.proposal(entry) {
            Some(problem) => Err(problem),
            None => Ok(tool),
        }
    }

    /// Gives the one of a name, also one that is only proposed.
    pub fn entry(&self, name: &str) -> Option<&ToolEntry> {
        self.list.iter().find(|one| one.name == name)
    }

    /// Tells all of them.
    pub fn views(&self) -> ToolList {
        let view = |entry: &ToolEntry| {
            let proposal = self.proposal(entry);
            let state = match (&entry.tool, &proposal) {
                (Err(_), _) => ToolState::Broken,
                (Ok(_), Some(_)) => ToolState::Proposed,
                (Ok(_), None) => ToolState::Runnable,
            };
            let tool = entry.tool.as_ref().ok();
            ToolView {
                name: entry.name.clone(),
                origin: entry.origin,
                state,
                description: tool.map(|one| one.description.clone()).unwrap_or_default(),
                argv: tool.map(|one| one.argv.clone()).unwrap_or_default(),
                arguments: tool.map(Tool::argument_schema),
                hints: tool.map(|one| one.hints).unwrap_or_default(),
                file: entry.file.as_ref().map(|path| path.display().to_string()),
                problem: entry.tool.as_ref().err().cloned().or(proposal),
            }
        };
        ToolList {
            tools: self.list.iter().map(view).collect(),
        }
    }

    /// Tells how what a project proposes becomes runnable.
    fn proposal(&self, entry: &ToolEntry) -> Option<Problem> {
        if entry.origin != ToolOrigin::Project {
            return None;
        }
        let problem = Problem::new(
            ErrorCode::ApprovalUnavailable,
            format!(
                "the tool {} is only proposed by the project; its owner has not accepted it",
                entry.name
            ),
        )
        .with_field("name");
        Some(match (&entry.file, &self.own) {
            (Some(file), Some(own)) => problem.with_hint(format!(
                "the owner reads it and accepts it with: install -D -m 644 {} {}",
                file.display(),
                own.join(format!("{}.toml", entry.name)).display()
            )),
            _ => problem,
        })
    }
}

fn unreadable(path: &Path, why: &dyn std::fmt::Display) -> Problem {
    Problem::new(
        ErrorCode::PolicyUnreadable,
        format!("the tool {} cannot be read: {why}", path.display()),
    )
}

/// Reads a tool's file; its name must be that of the file.
fn read_file(file: File, path: &Path, name: &str) -> Result<Tool, Problem> {
    let found = file.metadata().map_err(|error| unreadable(path, &error))?;
    if !found.is_file() {
        return Err(unreadable(path, &"it is no regular file"));
    }
    let mut text = String::new();
    file.take(TOOL_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| unreadable(path, &error))?;
    if text.len() as u64 > TOOL_BYTES {
        return Err(unreadable(path, &"it is too large"));
    }
    let tool = read_tool(&text, &path.display().to_string())?;
    if tool.name != name {
        return Err(Problem::new(
            ErrorCode::PolicyInvalidValue,
            format!(
                "{}: name is {:?}, and the file is that of {name:?}",
                path.display(),
                tool.name
            ),
        )
        .with_field("name")
        .with_hint(format!("call the file {}.toml", tool.name)));
    }
    Ok(tool)
}

fn open_proposals(workspace: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut directory = openat(CWD, workspace, flags, Mode::empty())?;
    for name in PROJECT {
        directory = openat(&directory, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(directory)
}

/// Reads what a workspace proposes. Whoever works there may put anything there: no link is followed,
/// since what it leads to would be told, and nothing is opened that could block.
fn proposed(workspace: &Path) -> Vec<ToolEntry> {
    let Ok(directory) = open_proposals(workspace) else {
        return Vec::new();
    };
    let path = PROJECT
        .iter()
        .fold(workspace.to_owned(), |path, name| path.join(name));
    owned::files(&path)
        .into_iter()
        .take(PROPOSALS)
        .map(|(name, path)| {
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = openat(&directory, format!("{name}.toml"), flags, Mode::empty())
                .map(File::from)
                .map_err(|error| unreadable(&path, &error));
            ToolEntry {
                tool: opened.and_then(|file| read_file(file, &path, &name)),
                name,
                origin: ToolOrigin::Project,
                file: Some(path),
            }
        })
        .collect()
}

impl Runtime {
    /// Reads every tool of a workspace; a name that `is_operation` knows is refused.
    pub fn tools(&self, workspace: &Path, is_operation: impl Fn(&str) -> bool) -> Tools {
        Tools::read(&self.surroundings, Some(workspace), is_operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        "schema = 1\nname = \"one\"\ndescription = \"says one\"\nargv = [\"echo\", \"one\"]\n";

    fn scene() -> (tempfile::TempDir, Surroundings, PathBuf) {
        let top = tempfile::tempdir().expect("a directory");
        let work = top.path().join("work");
        for name in ["work/.cofferdam/tools", "home/.config/cofferdam/tools"] {
            std::fs::create_dir_all(top.path().join(name)).expect("a directory");
        }
        let home = [("HOME", top.path().join("home"))];
        let surroundings = Surroundings::new(home, &work);
        (top, surroundings, work)
    }

    #[test]
    fn what_comes_with_the_program_is_good() {
        for (name, text) in SHIPPED {
            let tool = read_tool(text, name).unwrap_or_else(|problem| panic!("{problem:?}"));
            assert_eq!(tool.name, *name);
        }
    }

    #[test]
    fn row_122_a_project_only_proposes() {
        let (top, surroundings, work) = scene();
        let proposed = work.join(".cofferdam/tools/one.toml");
        std::fs::write(&proposed, ONE).expect("written");
        let read = || Tools::read(&surroundings, Some(&work), |_| false);
        let problem = read().find("one").expect_err("only proposed");
        assert_eq!(problem.code, ErrorCode::ApprovalUnavailable);
        let own = top.path().join("home/.config/cofferdam/tools/one.toml");
        let hint = problem.hint.expect("how");
        assert!(hint.contains(&own.display().to_string()), "{hint}");
        assert_eq!(read().views().tools[1].state, ToolState::Proposed);
        std::fs::copy(&proposed, &own).expect("accepted");
        // What was accepted holds, whatever the project says now.
        std::fs::write(&proposed, ONE.replace("\"one\"]", "\"two\"]")).expect("written");
        assert_eq!(read().find("one").expect("accepted").argv, ["echo", "one"]);
    }

    #[test]
    fn row_122_a_proposal_leads_nowhere_else() {
        let (top, surroundings, work) = scene();
        let secret = top.path().join("secret.toml");
        std::fs::write(&secret, "token = \"very secret\"\n").expect("written");
        let link = work.join(".cofferdam/tools/one.toml");
        std::os::unix::fs::symlink(&secret, link).expect("a link");
        let tools = Tools::read(&surroundings, Some(&work), |_| false);
        let told = format!("{:?}", tools.views());
        assert!(told.contains("cannot be read"), "{told}");
        assert!(
            !told.contains("very secret") && !told.contains("token"),
            "{told}"
        );
        std::fs::remove_dir_all(work.join(".cofferdam")).expect("gone");
        std::fs::create_dir_all(top.path().join("other/tools")).expect("a directory");
        std::fs::write(top.path().join("other/tools/one.toml"), ONE).expect("written");
        std::os::unix::fs::symlink(top.path().join("other"), work.join(".cofferdam"))
            .expect("a link");
        let tools = Tools::read(&surroundings, Some(&work), |_| false);
        assert!(tools.entry("one").is_none());
    }

    #[test]
    fn row_122_no_tool_takes_the_name_of_an_operation() {
        let (top, surroundings, _) = scene();
        let own = top.path().join("home/.config/cofferdam/tools");
        std::fs::write(own.join("one.toml"), ONE).expect("written");
        std::fs::write(own.join("two.toml"), ONE).expect("written");
        let tools = Tools::read(&surroundings, None, |name| name == "one");
        for name in ["one", "two"] {
            let problem = tools.find(name).expect_err(name);
            assert_eq!(problem.field.as_deref(), Some("name"), "{name}");
        }
        assert!(tools.runnable().all(|one| one.name == "install_package"));
    }
}
