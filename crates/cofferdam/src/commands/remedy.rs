//! Changes to a machine that let it enforce more: each is data, printed before it is made.

use std::fmt;
use std::path::{Path, PathBuf};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::facts::HostFacts;
use cofferdam_core::spec::ProviderKind;

/// Lets bubblewrap make user namespaces where AppArmor keeps them from having capabilities.
const APPARMOR_PROFILE: &str = "\
abi <abi/4.0>,
include <tunables/global>

# Unprivileged user namespaces for bubblewrap, which takes rights away with them.
profile bwrap /usr/bin/bwrap flags=(unconfined) {
  userns,
  include if exists <local/bwrap>
}
";

/// Keeps a setting of the kernel over a restart.
const SYSCTL_FILE: &str = "/etc/sysctl.d/60-cofferdam.conf";

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Runs a program as root.
    Run(Vec<&'static str>),
    /// Writes a file.
    Write {
        /// Where.
        path: PathBuf,
        /// What it holds afterwards.
        content: String,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(words) => write!(formatter, "run: {}", words.join(" ")),
            Self::Write { path, content } => {
                write!(formatter, "write {}:", path.display())?;
                content
                    .lines()
                    .try_for_each(|line| write!(formatter, "\n    {line}"))
            }
        }
    }
}

/// What is there on this machine that a remedy depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tools {
    /// The program that installs packages.
    pub(crate) packages: Option<Packages>,
    /// Whether profiles of AppArmor can be loaded.
    pub(crate) apparmor: bool,
    /// Whether the kernel has the switch that closes user namespaces for ordinary users, closed.
    pub(crate) clone_closed: bool,
}

/// A program that installs packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packages {
    Apt,
    Dnf,
    Pacman,
    Apk,
    Zypper,
}

impl Packages {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Apt, "/usr/bin/apt-get"),
        (Self::Dnf, "/usr/bin/dnf"),
        (Self::Pacman, "/usr/bin/pacman"),
        (Self::Apk, "/sbin/apk"),
        (Self::Zypper, "/usr/bin/zypper"),
    ];

    fn install(self, package: &'static str) -> Change {
        Change::Run(match self {
            Self::Apt => vec![
                "apt-get",
                "install",
                "-y",
                "--no-install-recommends",
                package,
            ],
            Self::Dnf => vec!["dnf", "install", "-y", package],
            Self::Pacman => vec!["pacman", "-S", "--noconfirm", package],
            Self::Apk => vec!["apk", "add", package],
            Self::Zypper => vec!["zypper", "--non-interactive", "install", package],
        })
    }
}

impl Tools {
    /// Looks what there is.
    pub(crate) fn find() -> Self {
        let closed = std::fs::read_to_string("/proc/sys/kernel/unprivileged_userns_clone")
            .is_ok_and(|text| text.trim() == "0");
        Self {
            packages: Packages::ALL
                .into_iter()
                .find(|(_, path)| Path::new(path).exists())
                .map(|(packages, _)| packages),
            apparmor: Path::new("/sys/kernel/security/apparmor/profiles").exists(),
            clone_closed: closed,
        }
    }
}

/// Gives the changes that would make the default provider work; none where there is no remedy that a
/// program should carry out.
pub(crate) fn changes(facts: &HostFacts, tools: Tools) -> Vec<Change> {
    let Some(problem) = bwrap_problem(facts) else {
        return Vec::new();
    };
    let sysctl = |setting: &str| Change::Write {
        path: SYSCTL_FILE.into(),
        content: format!("{setting}\n"),
    };
    let load = || Change::Run(vec!["sysctl", "--load", SYSCTL_FILE]);
    match problem.code {
        ErrorCode::BwrapMissing => tools
            .packages
            .map(|packages| packages.install("bubblewrap"))
            .into_iter()
            .collect(),
        ErrorCode::UsernsNoCaps if tools.apparmor => vec![
            Change::Write {
                path: "/etc/apparmor.d/bwrap".into(),
                content: APPARMOR_PROFILE.to_owned(),
            },
            Change::Run(vec![
                "apparmor_parser",
                "--replace",
                "/etc/apparmor.d/bwrap",
            ]),
        ],
        ErrorCode::UsernsExhausted => vec![sysctl("user.max_user_namespaces = 15000"), load()],
        _ if tools.clone_closed => vec![sysctl("kernel.unprivileged_userns_clone = 1"), load()],
        _ => Vec::new(),
    }
}

/// Gives the reason for which the default provider does not work.
pub(crate) fn bwrap_problem(facts: &HostFacts) -> Option<&Problem> {
    facts
        .providers
        .iter()
        .find(|found| found.provider == ProviderKind::Bwrap)
        .and_then(|found| found.problem.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_printed_whole() {
        let text = [
            Packages::Apt.install("bubblewrap"),
            Change::Write {
                path: SYSCTL_FILE.into(),
                content: "user.max_user_namespaces = 15000\n".to_owned(),
            },
        ]
        .map(|change| change.to_string())
        .join("\n");
        insta::assert_snapshot!(text, @r"
        run: apt-get install -y --no-install-recommends bubblewrap
        write /etc/sysctl.d/60-cofferdam.conf:
            user.max_user_namespaces = 15000
        ");
    }
}
