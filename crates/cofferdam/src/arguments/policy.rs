//! `cofferdam policy …`, and the flags that shape a policy from the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use cofferdam_core::policy;
use cofferdam_core::spec::Network;

/// A provider as a flag names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProviderChoice {
    /// bwrap, or what the policy lets it fall back to
    Auto,
    /// Namespaces and mounts by bubblewrap, Landlock and seccomp within
    Bwrap,
    /// Landlock and seccomp on each command, no namespaces
    Landlock,
    /// No walls at all
    Direct,
    /// Nothing is real: for tests
    Memory,
    /// A container of Docker or Podman that holds what bwrap would show
    Container,
    /// A guest of its own (not in this version)
    Microvm,
}

impl ProviderChoice {
    /// Gives the value of the policy's field.
    pub(crate) const fn choice(self) -> policy::ProviderChoice {
        match self {
            Self::Auto => policy::ProviderChoice::Auto,
            Self::Bwrap => policy::ProviderChoice::Bwrap,
            Self::Landlock => policy::ProviderChoice::Landlock,
            Self::Direct => policy::ProviderChoice::Direct,
            Self::Memory => policy::ProviderChoice::Memory,
            Self::Container => policy::ProviderChoice::Container,
            Self::Microvm => policy::ProviderChoice::Microvm,
        }
    }
}

/// A permission as a flag names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PermissionChoice {
    /// Nothing is changed
    Readonly,
    /// Writing your checkout is asked for
    Approval,
    /// What crosses the walls is asked for
    #[value(name = "auto_approval")]
    AutoApproval,
    /// Nothing is asked; the walls decide
    Unrestricted,
}

impl PermissionChoice {
    /// Gives the value of the policy's field.
    pub(crate) const fn permission(self) -> policy::Permission {
        match self {
            Self::Readonly => policy::Permission::Readonly,
            Self::Approval => policy::Permission::Approval,
            Self::AutoApproval => policy::Permission::AutoApproval,
            Self::Unrestricted => policy::Permission::Unrestricted,
        }
    }
}

/// A network level as a flag names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkChoice {
    /// Own loopback only
    None,
    /// Own loopback and the hosts that the policy allows
    Restricted,
    /// The host's network
    Full,
}

impl NetworkChoice {
    /// Gives the level.
    pub(crate) const fn level(self) -> Network {
        match self {
            Self::None => Network::None,
            Self::Restricted => Network::Restricted,
            Self::Full => Network::Full,
        }
    }
}

/// The flags that every command with walls takes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Walls")]
pub(crate) struct WallArguments {
    /// Directory that may be written [default: the git top level of the current directory, or the
    /// current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Directory within the workspace in which the command starts [default: the current directory
    /// where it lies within, else the workspace]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// What puts the walls up [default: as the policy says, auto]
    #[arg(long, value_enum, value_name = "PROVIDER")]
    pub(crate) provider: Option<ProviderChoice>,
    /// How much of the network is seen
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) net: Option<NetworkChoice>,
    /// Host that may be reached: HOST, HOST:PORT, *.HOST, or @dev for what package clients and
    /// git remotes use here; means --net restricted; may be given several times
    #[arg(long, value_name = "HOST")]
    pub(crate) allow: Vec<String>,
    /// The same, for reading only: GET, HEAD and what a fetch of git posts; TLS of these hosts ends
    /// in the proxy; may be given several times
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_read: Vec<String>,
    /// Host that is refused whatever allows it; may be given several times
    #[arg(long, value_name = "HOST")]
    pub(crate) deny: Vec<String>,
    /// Variable of here that holds a secret for one host: inside it holds a placeholder, and only
    /// the host is told the value, as `Authorization: Bearer`; may be given several times
    #[arg(long, value_name = "NAME=HOST")]
    pub(crate) broker: Vec<String>,
    /// Ask about a host that nothing allows, instead of refusing it
    #[arg(long)]
    pub(crate) ask: bool,
    /// What may be changed before you are asked [default: unrestricted]
    #[arg(long, value_name = "MODE")]
    pub(crate) permission: Option<PermissionChoice>,
    /// Profile of the agent that is run, or none [default: found by the program's name in tasks]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Path that may be read and written; may be given several times
    #[arg(long, value_name = "PATH")]
    pub(crate) rw: Vec<PathBuf>,
    /// Path that may be read; may be given several times
    #[arg(long, value_name = "PATH")]
    pub(crate) ro: Vec<PathBuf>,
    /// Variable for the command, with a value or taken from here; may be given several times
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
    /// Service on loopback here that stands at the same address inside; may be given several times
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) reach: Vec<String>,
    /// Port of the inside that is opened on 127.0.0.1 here, or every one; may be given several times
    #[arg(long, value_name = "auto|[OUTSIDE:]PORT")]
    pub(crate) publish: Vec<String>,
    /// Policy file in place of the user's own
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
}

/// `cofferdam policy …`
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show each value with the layer that gave it, the plan, and what enforces it
    #[command(after_help = "\
Examples:
  cofferdam policy explain
  cofferdam policy explain --net full --ro ~/datasets -- python3 train.py
  cofferdam policy explain --json | jq .enclosure.mounts")]
    Explain(Box<ExplainArguments>),
    /// Check a policy file
    #[command(after_help = "\
Unknown keys, wrong values and contradictions are errors; the exit code is 0 only for a good file.

Example:
  cofferdam policy check .cofferdam/policy.toml")]
    Check {
        /// The file, TOML or JSON
        file: PathBuf,
    },
    /// Print the JSON Schema of a policy file
    #[command(after_help = "Example:\n  cofferdam policy schema > policy.schema.json")]
    Schema,
    /// Turn a runner policy (JSON) into a policy file, on standard output
    #[command(after_help = "\
Example:
  cofferdam policy import runner_policy.json > ~/.config/cofferdam/policy.toml")]
    Import {
        /// The runner policy
        file: PathBuf,
    },
}

/// What `policy explain` takes.
#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    #[command(flatten)]
    pub(crate) walls: WallArguments,
    /// Show what holds in a task, where @dev is allowed by default
    #[arg(long)]
    pub(crate) task: bool,
    /// The command whose plan is shown
    #[arg(trailing_var_arg = true, value_name = "CMD", help_heading = "Command")]
    pub(crate) command: Vec<OsString>,
}
