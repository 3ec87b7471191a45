//! The script that stands before an agent in `PATH`.

use std::path::Path;

use cofferdam_core::error::Problem;

use crate::arguments::setup::Agent;

/// By this line a script is known to be ours.
const MARK: &str = "# Written by `cofferdam setup";

/// An agent as it is wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wrapped {
    /// The name on our command line.
    pub(super) name: &'static str,
    /// The name of its program.
    pub(super) program: &'static str,
    /// The profile by which it runs, where there is one.
    pub(super) profile: &'static str,
    /// First arguments with which it is the owner who acts, on the agent itself.
    own: &'static [&'static str],
    /// What of it no script can stand before.
    rest: &'static str,
}

/// Gives what is known about an agent.
pub(super) const fn wrapped(agent: Agent) -> Wrapped {
    match agent {
        Agent::Claude => Wrapped {
            name: "claude",
            program: "claude",
            profile: "claude",
            own: &[
                "auth",
                "config",
                "doctor",
                "install",
                "login",
                "logout",
                "mcp",
                "plugin",
                "setup-token",
                "update",
            ],
            rest: "the extensions for editors and the desktop program, which bring their own",
        },
        Agent::Codex => Wrapped {
            name: "codex",
            program: "codex",
            profile: "codex",
            own: &["completion", "login", "logout", "mcp", "update"],
            rest: "the extensions for editors, which bring their own",
        },
        Agent::Gemini => Wrapped {
            name: "gemini",
            program: "gemini",
            profile: "gemini",
            own: &["extensions", "mcp"],
            rest: "the companions for editors",
        },
        Agent::Opencode => Wrapped {
            name: "opencode",
            program: "opencode",
            profile: "opencode",
            own: &["auth", "models", "uninstall", "upgrade"],
            rest: "the desktop program and the extensions for editors",
        },
        Agent::Cursor => Wrapped {
            name: "cursor",
            program: "cursor-agent",
            profile: "cursor",
            own: &[
                "about", "login", "logout", "mcp", "models", "status", "update", "whoami",
            ],
            rest: "the editor itself and the agent in it, and the command-line agent by its other \
                   name, agent; its profile was never tried with the agent itself: `cofferdam profile \
                   show cursor` says what is not known",
        },
    }
}

/// Says what runs as before.
pub(super) fn not_covered(wrapped: &Wrapped) -> Vec<String> {
    let program = wrapped.program;
    vec![
        format!(
            "`{program} {}`, --version and --help: there it is you who acts",
            wrapped.own.join("|")
        ),
        format!("{program} called by its whole path, or by an alias or function of your shell"),
        wrapped.rest.to_owned(),
        "programs that start it with a PATH of their own".to_owned(),
    ]
}

/// Tells whether a script is one of ours.
pub(super) fn is_ours(script: &str) -> bool {
    script
        .lines()
        .nth(1)
        .is_some_and(|line| line.starts_with(MARK))
}

/// Writes the script; `own` is where this program lies.
pub(super) fn script(wrapped: &Wrapped, own: &Path) -> Result<String, Problem> {
    let own = super::quoted(super::plain_path(own)?);
    let Wrapped {
        name,
        program,
        profile,
        own: verbs,
        ..
    } = wrapped;
    let profile = format!("--profile {profile} ");
    let plain = verbs
        .iter()
        .chain(&["-h", "--help", "-v", "-V", "--version"])
        .copied()
        .collect::<Vec<_>>()
        .join("|");
    Ok(format!(
        r#"#!/bin/sh
{MARK} {name}`; `cofferdam setup {name} --undo` removes it.
# Runs {program} as a task behind walls. COFFERDAM_WRAP=off {program} runs it as before, once.
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd -P) || exit 125
# The real one is the next in PATH: the directory of this script is taken out of it.
path=
rest=$PATH:
while [ -n "$rest" ]; do
  one=${{rest%%:*}}
  rest=${{rest#*:}}
  [ -n "$one" ] || continue
  [ "$(CDPATH= cd -- "$one" 2>/dev/null && pwd -P)" = "$here" ] && continue
  path=$path${{path:+:}}$one
done
PATH=$path
export PATH
case ${{COFFERDAM_WRAP:-on}}:${{1-}} in
  off:*|on:{plain_on}) exec {program} "$@" ;;
esac
exec {own} task run {profile}-- {program} "$@"
"#,
        plain_on = plain.replace('|', "|on:"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_of_claude() {
        let text = script(&wrapped(Agent::Claude), Path::new("/opt/it's/cofferdam")).unwrap();
        assert!(is_ours(&text));
        let last: Vec<&str> = text.lines().skip(17).collect();
        insta::assert_snapshot!(last.join("\n"), @r#"
          off:*|on:auth|on:config|on:doctor|on:install|on:login|on:logout|on:mcp|on:plugin|on:setup-token|on:update|on:-h|on:--help|on:-v|on:-V|on:--version) exec claude "$@" ;;
        esac
        exec '/opt/it'\''s/cofferdam' task run --profile claude -- claude "$@"
        "#);
    }

    #[test]
    fn scripts_of_others_are_not_ours() {
        assert!(!is_ours("#!/bin/sh\nexec claude\n"));
        assert!(!is_ours(""));
    }
}
