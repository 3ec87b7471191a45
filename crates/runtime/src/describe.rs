//! What an agent is told about where it runs (E9).

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use cofferdam_core::error::Problem;
use cofferdam_core::operation::{Described, EnvironmentDescription};
use cofferdam_core::plan::{self, WorkspaceView};
use cofferdam_core::spec::{EnclosureSpec, Network, StreamPlan};

use crate::host::{PolicyRequest, Resolved};
use crate::refusal;
use crate::run::FrontDoor;
use crate::runtime::Runtime;

/// Programs that are worth a word when they are there.
const TOOLS: &[&str] = &[
    "bash", "git", "rg", "fd", "jq", "make", "cmake", "gcc", "clang", "python3", "pip", "uv",
    "pytest", "node", "npm", "pnpm", "yarn", "bun", "deno", "tsc", "cargo", "rustc", "go", "java",
    "mvn", "gradle", "dotnet", "ruby", "bundle", "perl", "php", "composer", "curl", "wget", "tmux",
    "sqlite3", "psql", "gh",
];

impl Runtime {
    /// Describes where commands of a front door would run; nothing is started.
    ///
    /// # Errors
    ///
    /// Whatever would refuse every command.
    pub fn describe_environment(
        &self,
        policy: &PolicyRequest,
        front_door: FrontDoor,
    ) -> Result<EnvironmentDescription, Problem> {
        let (resolved, spec) = self.place(policy)?;
        let tools = tools(&spec);
        Ok(EnvironmentDescription::new(Described {
            policy: &resolved.policy,
            spec: &spec,
            requested: refusal::requested(&resolved.policy),
            shell: &resolved.facts.shell,
            options: front_door.options(StreamPlan::Pipes),
            tools: &tools,
        }))
    }

    /// Gives policy, facts and the plan of the place in which commands would run.
    fn place(&self, policy: &PolicyRequest) -> Result<(Resolved, EnclosureSpec), Problem> {
        let resolved = self.look(policy, Network::None, None)?;
        let view = WorkspaceView::live(&resolved.facts.workspace);
        let spec = plan::prepare(&resolved.policy, &view, &resolved.facts, &self.scratch())?;
        Ok((resolved, spec))
    }
}

/// Lists the well-known programs on the search path of a place, as far as the host shows them.
fn tools(spec: &EnclosureSpec) -> Vec<String> {
    let path = spec
        .environment
        .iter()
        .find(|one| one.name.as_bytes() == b"PATH")
        .map(|one| one.value.to_text().into_owned())
        .unwrap_or_default();
    let directories: Vec<&Path> = path.split(':').map(Path::new).collect();
    let is_there = |name: &&&str| {
        directories.iter().any(|directory| {
            std::fs::metadata(directory.join(name))
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
    };
    TOOLS
        .iter()
        .filter(is_there)
        .map(|name| (*name).to_owned())
        .collect()
}
