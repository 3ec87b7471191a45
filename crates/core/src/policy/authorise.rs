//! Whether a path outside of the workspace may be authorised: what would be given away with it.

use serde_json::json;

use super::effective::EffectivePolicy;
use crate::bytes::BytePath;
use crate::error::{ErrorCode, Problem};
use crate::facts::{HostFacts, PathKind};
use crate::spec::Access;

/// Names of files and directories with secrets, wherever they stand.
const SECRET_NAMES: &[&str] = &[
    ".ssh",
    ".aws",
    ".azure",
    ".gcp",
    ".google",
    ".kube",
    ".docker",
    ".gnupg",
    ".npmrc",
    ".netrc",
    ".pypirc",
    ".git-credentials",
    ".bash_history",
    ".zsh_history",
    ".psql_history",
    ".mysql_history",
    ".pgpass",
    ".password-store",
    ".vault-token",
    ".mozilla",
    ".thunderbird",
    "Keychains",
    "keyrings",
];

/// Paths with secrets below a home directory.
const SECRET_PATHS: &[&str] = &[
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/google-chrome",
    ".config/chromium",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".claude/.credentials.json",
    ".codex/auth.json",
];

/// Names that the host's tools execute or obey, wherever they stand: not for writing.
const OBEYED_NAMES: &[&str] = &[
    ".git",
    ".claude",
    ".codex",
    ".cursor",
    ".mcp.json",
    ".vscode",
    ".envrc",
    ".cofferdam.toml",
];

/// Paths below a home directory that are executed or obeyed: not for writing.
const OBEYED_PATHS: &[&str] = &[
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
    ".zlogin",
    ".xprofile",
    ".pam_environment",
    ".gitconfig",
    ".claude.json",
    ".config/cofferdam",
    ".config/autostart",
    ".config/systemd",
    ".config/git",
    ".config/fish",
    ".local/bin",
    "bin",
];

/// What is the kernel's, or a way to its programs: not even for reading.
const KERNEL: &[&str] = &["/proc", "/sys", "/dev", "/run", "/var/run", "/boot"];

/// What the system consists of: not for writing.
const SYSTEM: &[&str] = &[
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/sbin",
    "/usr",
    "/var/lib",
    "/var/spool",
];

/// A path that is to be authorised, as it is on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPath {
    /// Where it really is, every link resolved.
    pub real: BytePath,
    /// What stands there.
    pub kind: PathKind,
    /// What shall be done there.
    pub access: Access,
    /// Git directories that were found at it and right below it.
    pub repositories: Vec<BytePath>,
}

/// Checks a path against what is denied, secret and protected, and against what is given already.
/// `stands` tells whether something stands at a path. Gives those places below it that stay read
/// only, since of nested paths the deeper one holds.
///
/// # Errors
///
/// `path_refused` with the reason and, where there is one, the place that it conflicts with;
/// `socket_refused` for a socket.
pub fn check_authorisation(
    wanted: &WantedPath,
    policy: &EffectivePolicy,
    facts: &HostFacts,
    stands: &dyn Fn(&BytePath) -> bool,
) -> Result<Vec<BytePath>, Problem> {
    let path = &wanted.real;
    match wanted.kind {
        PathKind::Directory | PathKind::File => {}
        PathKind::Socket => {
            return Err(Problem::new(
                ErrorCode::SocketRefused,
                format!("{path} is a socket, not a file"),
            )
            .with_field("path")
            .with_hint("the owner grants sockets by allow.sockets of the user's policy"));
        }
        PathKind::Absent | PathKind::Other => {
            return Err(refused(path, "is neither a file nor a directory", None));
        }
    }
    if path.depth() == 0 {
        return Err(refused(path, "is everything", None));
    }
    let place = Place {
        path,
        homes: [&facts.owner.home, &facts.caller.home],
        stands,
    };
    place.own(facts)?;
    place.closed(KERNEL, "belongs to the kernel and to services")?;
    place.secret(facts)?;
    place.denied(policy, facts)?;
    if wanted.access == Access::Write {
        place.closed(SYSTEM, "is part of the system")?;
        place.obeyed(policy, facts)?;
        if let Some(found) = wanted.repositories.first() {
            return Err(refused(
                path,
                "holds a repository, whose hooks the host obeys",
                Some(found),
            ));
        }
        if facts.workspace.root.is_within(path) {
            let why = "holds the workspace with its protected names";
            return Err(refused(path, why, Some(&facts.workspace.root)));
        }
    }
    given(wanted, policy, facts)
}

/// Checks a file outside of the workspace, which somebody wants to have written by the owner, against
/// what is denied, secret, protected and the system's. A file that can be written already is refused:
/// nobody has to be asked about it.
///
/// # Errors
///
/// As [`check_authorisation`].
pub fn check_outside_file(
    wanted: &WantedPath,
    policy: &EffectivePolicy,
    facts: &HostFacts,
    stands: &dyn Fn(&BytePath) -> bool,
) -> Result<(), Problem> {
    let path = &wanted.real;
    if !matches!(wanted.kind, PathKind::File | PathKind::Absent) {
        return Err(refused(path, "is no regular file", None));
    }
    let place = Place {
        path,
        homes: [&facts.owner.home, &facts.caller.home],
        stands,
    };
    place.own(facts)?;
    place.closed(KERNEL, "belongs to the kernel and to services")?;
    place.secret(facts)?;
    place.denied(policy, facts)?;
    place.closed(SYSTEM, "is part of the system")?;
    place.obeyed(policy, facts)?;
    given(wanted, policy, facts).map(drop)
}

struct Place<'a> {
    path: &'a BytePath,
    homes: [&'a BytePath; 2],
    stands: &'a dyn Fn(&BytePath) -> bool,
}

impl Place<'_> {
    /// Home directories as a whole, the workspace, and what is ours.
    fn own(&self, facts: &HostFacts) -> Result<(), Problem> {
        let path = self.path;
        if let Some(home) = self.homes.iter().find(|home| home.is_within(path)) {
            return Err(refused(path, "is or holds a home directory", Some(home)));
        }
        let root = &facts.workspace.root;
        if path.is_within(root) {
            return Err(refused(path, "lies in the workspace already", Some(root)));
        }
        let data = &facts.data_dir;
        if path.is_within(data) || data.is_within(path) {
            let why = "is, holds or belongs to the data directory";
            return Err(refused(path, why, Some(data)));
        }
        Ok(())
    }

    fn closed(&self, tops: &[&str], why: &str) -> Result<(), Problem> {
        let tops = tops.iter().map(|top| BytePath::from(*top));
        match tops.into_iter().find(|top| self.touches(top)) {
            Some(top) => Err(refused(self.path, why, Some(&top))),
            None => Ok(()),
        }
    }

    fn secret(&self, facts: &HostFacts) -> Result<(), Problem> {
        let path = self.path;
        let name = path.file_name();
        if name == b".env" || name.starts_with(b".env.") {
            return Err(refused(path, "is a file with secrets by its name", None));
        }
        self.named(SECRET_NAMES, SECRET_PATHS, "holds secrets")?;
        let system = facts.system_secrets.iter().map(|one| &one.path);
        let tools = facts.toolchains.iter().flat_map(|one| &one.secrets);
        match system.chain(tools).find(|secret| self.touches(secret)) {
            Some(secret) => Err(refused(path, "is or holds what is secret", Some(secret))),
            None => Ok(()),
        }
    }

    fn denied(&self, policy: &EffectivePolicy, facts: &HostFacts) -> Result<(), Problem> {
        for denied in &policy.deny_read {
            let mut found = facts
                .paths
                .iter()
                .filter(|fact| fact.written == denied.value)
                .flat_map(|fact| [Some(&fact.path), fact.real.as_ref()])
                .flatten();
            if let Some(found) = found.find(|found| self.touches(found)) {
                let why = format!("is or holds what the policy denies ({})", denied.layer);
                return Err(refused(self.path, &why, Some(found)));
            }
        }
        Ok(())
    }

    fn obeyed(&self, policy: &EffectivePolicy, facts: &HostFacts) -> Result<(), Problem> {
        self.named(
            OBEYED_NAMES,
            OBEYED_PATHS,
            "is or holds what tools of the host obey",
        )?;
        let rules = policy.protect.iter().filter_map(|rule| {
            let mut facts = facts.paths.iter();
            facts.find(|fact| fact.written == rule.value.path)
        });
        let mut paths = rules.map(|fact| &fact.path);
        match paths.find(|path| self.touches(path)) {
            Some(found) => Err(refused(
                self.path,
                "is or holds a protected name",
                Some(found),
            )),
            None => Ok(()),
        }
    }

    /// Refuses names anywhere in the path, and paths below a home directory that it is, lies in, or
    /// holds.
    fn named(&self, names: &[&str], paths: &[&str], why: &str) -> Result<(), Problem> {
        let mut pieces = self.path.as_bytes().split(|byte| *byte == b'/');
        if pieces.any(|piece| names.iter().any(|name| name.as_bytes() == piece)) {
            return Err(refused(self.path, why, None));
        }
        for home in self.homes {
            let below = paths
                .iter()
                .chain(names)
                .map(|name| home.join(name.as_bytes()));
            if let Some(found) = below.into_iter().find(|found| self.touches(found)) {
                return Err(refused(self.path, why, Some(&found)));
            }
        }
        // A project's own settings of npm name its registry; credentials lie in the home directory.
        let mut inside = names
            .iter()
            .filter(|name| **name != ".npmrc")
            .map(|name| self.path.join(name.as_bytes()));
        match inside.find(|found| (self.stands)(found)) {
            Some(found) => Err(refused(self.path, why, Some(&found))),
            None => Ok(()),
        }
    }

    /// Tells whether the path is a place, lies in it, or holds it where it stands.
    fn touches(&self, place: &BytePath) -> bool {
        self.path.is_within(place) || (place.is_within(self.path) && (self.stands)(place))
    }
}

/// Holds it against what may be read and written already.
fn given(
    wanted: &WantedPath,
    policy: &EffectivePolicy,
    facts: &HostFacts,
) -> Result<Vec<BytePath>, Problem> {
    let path = &wanted.real;
    let of = |list: &[super::Sourced<BytePath>]| -> Vec<BytePath> {
        facts
            .paths
            .iter()
            .filter(|fact| list.iter().any(|one| one.value == fact.written))
            .map(|fact| fact.real.clone().unwrap_or_else(|| fact.path.clone()))
            .collect()
    };
    let (read, write) = (of(&policy.read), of(&policy.write));
    // The deepest one around it says what may be done there now.
    let around = |list: &[BytePath]| -> Option<BytePath> {
        let above = list.iter().filter(|one| path.is_within(one));
        above.max_by_key(|one| one.depth()).cloned()
    };
    let depth = |one: &Option<BytePath>| one.as_ref().map(BytePath::depth);
    let (reads, writes) = (around(&read), around(&write));
    let may_write = writes.is_some() && depth(&writes) >= depth(&reads);
    match wanted.access {
        Access::Read if may_write => Err(refused(
            path,
            "can be written already, and reading alone would take that away",
            writes.as_ref(),
        )
        .with_hint("name it in `protect` of the policy to take writing away")),
        Access::Read if reads.is_some() => {
            Err(refused(path, "can be read already", reads.as_ref()))
        }
        Access::Write if may_write => Err(refused(path, "can be written already", writes.as_ref())),
        Access::Read => Ok(Vec::new()),
        Access::Write => Ok(read
            .into_iter()
            .filter(|one| one != path && one.is_within(path))
            .collect()),
    }
}

fn refused(path: &BytePath, why: &str, place: Option<&BytePath>) -> Problem {
    let place = place.filter(|place| *place != path);
    let with = place.map_or_else(String::new, |place| format!(" ({place})"));
    let problem = Problem::new(
        ErrorCode::PathRefused,
        format!("{path} is refused: it {why}{with}"),
    )
    .with_field("path")
    .with_details(json!({"conflicts_with": place}));
    if place.is_some_and(|place| place.is_within(path)) {
        return problem.with_hint("authorise what is needed below it, not all of it");
    }
    problem
}
