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

/// Renders the table, what the kernel has, and the remedies.
pub(crate) fn doctor(facts: &HostFacts) -> String {
    format!(
        "{}\nkernel {}, Landlock ABI {}, overlays in a user namespace: {}\n{}",
        table(&facts.providers),
        facts.kernel,
        facts.landlock_abi,
        if facts.overlay { "yes" } else { "no" },
        remedies(&facts.providers)
    )
}

fn table(providers: &[ProviderFacts]) -> String {
    let mut table = Table::new(&["PROVIDER", "STATE", "WALLS", "PROGRAM"]);
    for provider in providers {
        table.row([
            paint(STRONG, provider.provider),
            state(provider),
            what(provider.provider).to_owned(),
            program(provider),
        ]);
    }
    table.render()
}

fn remedies(providers: &[ProviderFacts]) -> String {
    let mut text = String::new();
    for provider in providers {
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

#[cfg(test)]
mod tests {
    use cofferdam_core::error::{ErrorCode, Problem};

    use super::*;
    use crate::render::plain;

    #[test]
    fn each_provider_says_what_is_wrong_and_what_helps() {
        let provider = |provider, problem| ProviderFacts {
            provider,
            problem,
            program: None,
            version: None,
        };
        let missing = Problem::new(ErrorCode::BwrapMissing, "bubblewrap is not installed")
            .with_hint("apt-get install bubblewrap");
        let providers = [
            ProviderFacts {
                program: Some("/usr/bin/bwrap".into()),
                version: Some("0.8.0".to_owned()),
                ..provider(ProviderKind::Bwrap, Some(missing))
            },
            provider(ProviderKind::Direct, None),
        ];
        let text = format!("{}{}", table(&providers), remedies(&providers));
        insta::assert_snapshot!(plain(&text), @r"
        PROVIDER  STATE          WALLS                                  PROGRAM
        bwrap     bwrap_missing  namespaces, mounts, Landlock, seccomp  /usr/bin/bwrap (0.8.0)
        direct    works          no walls

        bwrap bwrap_missing: bubblewrap is not installed
          apt-get install bubblewrap
        ");
    }
}
