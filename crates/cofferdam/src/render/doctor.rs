//! What `doctor` says about a machine.

use std::fmt::Write as _;

use cofferdam_core::facts::{HostFacts, ProviderFacts};
use cofferdam_core::spec::ProviderKind;

use super::table::Table;
use super::{BAD, CAUTION, GOOD, PLACE, STRONG, paint};

/// Gives what a provider is, in a few words.
const fn what(provider: ProviderKind) -> &'static str {
    match provider {
        ProviderKind::Direct => "no walls",
        ProviderKind::Bwrap => "namespaces, mounts, Landlock, seccomp",
        ProviderKind::Landlock => "Landlock and seccomp on each command",
        ProviderKind::Container => "Docker or Podman",
        ProviderKind::Microvm => "a guest of its own",
        ProviderKind::Memory => "nothing is real: for tests",
    }
}

/// Renders the table, and below it the remedies.
pub(crate) fn doctor(facts: &HostFacts) -> String {
    let mut table = Table::new(&["PROVIDER", "STATE", "WALLS", "PROGRAM"]);
    for provider in &facts.providers {
        table.row([
            paint(STRONG, provider.provider),
            state(provider),
            what(provider.provider).to_owned(),
            program(provider),
        ]);
    }
    let mut text = table.render();
    let _ = write!(
        text,
        "\nkernel {}, Landlock ABI {}, overlays in a user namespace: {}\n",
        facts.kernel,
        facts.landlock_abi,
        if facts.overlay { "yes" } else { "no" }
    );
    for provider in &facts.providers {
        let Some(problem) = &provider.problem else {
            continue;
        };
        let _ = write!(
            text,
            "\n{} {}: {}\n",
            paint(STRONG, provider.provider),
            paint(CAUTION, problem.code),
            problem.message
        );
        if let Some(hint) = &problem.hint {
            for line in hint.lines() {
                let _ = writeln!(text, "  {}", paint(PLACE, line));
            }
        }
    }
    text
}

fn state(provider: &ProviderFacts) -> String {
    match &provider.problem {
        None => paint(GOOD, "works"),
        Some(problem) => paint(BAD, problem.code),
    }
}

fn program(provider: &ProviderFacts) -> String {
    match (&provider.program, &provider.version) {
        (Some(path), Some(version)) => format!("{} ({version})", paint(PLACE, path)),
        (Some(path), None) => paint(PLACE, path),
        (None, _) => String::new(),
    }
}
