//! Gathering what a plan depends on: one function, one value.
//!
//! [`gather`] looks at the host and gives [`HostFacts`]; nothing else of the plane asks the host what
//! it is like. It starts no program once bubblewrap has been tried, and takes less than a
//! millisecond on an ordinary repository.

mod data_dir;
mod files;
mod git;
mod git_config;
mod git_index;
mod paths;
mod person;
mod policy_files;
mod probes;
mod protected;
mod surroundings;
mod system;
mod toolchains;
mod workspace;

use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::facts::{HostFacts, WorkspaceFacts};
use cofferdam_core::plan::{is_inheritable, looks_secret};
use cofferdam_core::policy::EffectivePolicy;
use cofferdam_core::spec::Variable;

pub use data_dir::data_dir;
pub use policy_files::{
    MANAGED_POLICY, PROJECT_POLICY, PolicyFile, policy_files, read_layer, read_policy_layers,
};
pub use surroundings::Surroundings;
pub use workspace::{Workspace, resolve_workspace};

/// Shortest value that is worth masking; shorter ones would mask ordinary text.
const SECRET_BYTES: usize = 6;

/// What [`gather`] looks at.
#[derive(Debug, Clone, Copy)]
pub struct GatherRequest<'a> {
    /// Environment and directory of the caller.
    pub surroundings: &'a Surroundings,
    /// The workspace.
    pub workspace: &'a Workspace,
    /// The data directory.
    pub data_dir: &'a Path,
    /// The policy in effect: it says which variables come along and which paths matter.
    pub policy: &'a EffectivePolicy,
    /// Where the tree really lies, when a task has one of its own in the workspace's place.
    pub tree: Option<&'a Path>,
}

/// Gathers everything that a plan may depend on besides policy, workspace and command.
pub fn gather(request: &GatherRequest<'_>) -> HostFacts {
    let GatherRequest {
        surroundings,
        workspace,
        data_dir,
        policy,
        tree,
    } = *request;
    let accounts = person::accounts();
    let caller = person::caller(surroundings, &accounts);
    let owner = person::owner(&caller, workspace.uid, &accounts);
    let is_own = owner == caller;
    let home = owner.home.as_path().to_owned();
    let root = workspace.root.as_path();
    let homes = workspace::homes(surroundings, &accounts);

    let repository =
        git::find(root).filter(|found| !workspace::holds_home(&found.top_level, &homes));
    let git = repository
        .as_ref()
        .map(|found| git::git_facts(found, surroundings, &home, is_own));
    let git_config = match &git {
        Some(git) => git.portable_config.clone(),
        None => git::portable_config(surroundings, &home, is_own),
    };
    let mut tool_homes: Vec<PathBuf> = Vec::new();
    let written = accounts
        .iter()
        .find(|one| one.uid == owner.identity.uid)
        .map(|one| one.home.clone());
    for candidate in std::iter::once(home.clone()).chain(written) {
        if candidate != Path::new("/") && !tool_homes.contains(&candidate) {
            tool_homes.push(candidate);
        }
    }
    let (system_secrets, system_listings) = system::system_secrets(&owner.identity);
    let probed = probes::probe(
        data_dir,
        &owner.identity,
        surroundings.get("PATH"),
        &[root, data_dir],
    );
    let shell = ["/bin/bash", "/usr/bin/bash"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .unwrap_or("/bin/sh");
    HostFacts {
        kernel: probed.kernel,
        data_dir: BytePath::from(data_dir),
        providers: probed.providers,
        landlock_abi: probed.landlock_abi,
        overlay: probed.overlay,
        system: system::system_paths(),
        system_secrets,
        system_listings,
        toolchains: toolchains::toolchains(surroundings, is_own, &tool_homes, root),
        environment: environment(surroundings, policy),
        secret_names: secret_names(surroundings),
        workspace: WorkspaceFacts {
            root: BytePath::from(root),
            spellings: workspace
                .spellings
                .iter()
                .map(|path| BytePath::from(path.as_path()))
                .collect(),
            protected: protected::protected_names(root, git.as_ref()),
            env_files: protected::env_files(root, workspace.directory.as_deref(), git.as_ref()),
            git,
        },
        paths: paths::path_facts(
            policy,
            paths::Bases {
                home: &home,
                workspace: root,
                tree: tree.unwrap_or(root),
            },
        ),
        shell: BytePath::from(shell),
        git_config,
        caller,
        owner,
    }
}

/// Takes the variables that the policy lets come along.
fn environment(surroundings: &Surroundings, policy: &EffectivePolicy) -> Vec<Variable> {
    surroundings
        .variables()
        .iter()
        .filter(|(name, _)| {
            name.to_str()
                .is_some_and(|name| is_inheritable(policy, name))
        })
        .map(|(name, value)| Variable {
            name: BytePath::from(name.as_os_str()),
            value: BytePath::from(value.as_os_str()),
        })
        .collect()
}

fn secret_names(surroundings: &Surroundings) -> Vec<String> {
    surroundings
        .variables()
        .keys()
        .filter_map(|name| name.to_str())
        .filter(|name| looks_secret(name))
        .map(str::to_owned)
        .collect()
}

/// Gives the values of the caller's variables whose names look like secrets, for masking what is
/// recorded. They stand in no fact and no plan.
pub fn secret_values(surroundings: &Surroundings) -> Vec<(String, Vec<u8>)> {
    surroundings
        .variables()
        .iter()
        .filter_map(|(name, value)| {
            let name = name.to_str().filter(|name| looks_secret(name))?;
            let value = value.as_encoded_bytes();
            (value.len() >= SECRET_BYTES).then(|| (name.to_owned(), value.to_vec()))
        })
        .collect()
}
