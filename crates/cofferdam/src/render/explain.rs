//! `policy explain`: each value with its layer, the plan, and what enforces it.

use std::fmt::Write as _;

use cofferdam_core::commands::{CommandJudgement, CommandRuleReference, Judged};
use cofferdam_core::policy::{Explanation, Layer};
use cofferdam_core::spec::{
    Access, CommandSpec, EnclosureSpec, Enforce, Mechanism, Mount, PathAccess, ProtectedState,
};

use super::table::Table;
use super::{BAD, CAUTION, FAINT, GOOD, PLACE, STRONG, duration, paint};

/// Renders the whole explanation.
pub(crate) fn explanation(explanation: &Explanation, with_command: bool) -> String {
    let enclosure = &explanation.launch.enclosure;
    let mut text = section("Values");
    let mut table = Table::new(&["FIELD", "VALUE", "FROM"]);
    for field in &explanation.fields {
        table.row([field.field.clone(), field.value.clone(), layer(field.layer)]);
    }
    text.push_str(&table.render());
    if !explanation.proposals.is_empty() {
        text.push_str(&section(
            "The project file asks for more, and does not get it",
        ));
        for proposal in &explanation.proposals {
            let _ = writeln!(
                text,
                "{} = {}  {}",
                proposal.field,
                proposal.value,
                paint(CAUTION, &proposal.reason)
            );
        }
    }
    text.push_str(&section("Rules"));
    let mut table = Table::new(&["RULE", "ON", "HOW", "HELD BY"]);
    for rule in &explanation.rules {
        table.row([
            rule.rule.clone(),
            rule.path
                .as_ref()
                .map_or_else(String::new, |path| paint(PLACE, path)),
            rule.enforce.map_or("", how).to_owned(),
            held_by(&rule.enforced_by),
        ]);
    }
    text.push_str(&table.render());
    if !explanation.gaps.is_empty() {
        text.push_str(&section("Not enforced by this provider"));
        for gap in &explanation.gaps {
            let _ = writeln!(text, "{}  {}", paint(CAUTION, &gap.what), gap.why);
        }
    }
    if !explanation.dev.is_empty() {
        text.push_str(&section("What --allow @dev would add"));
        let mut table = Table::new(&["HOST", "FOUND"]);
        for host in &explanation.dev {
            table.row([host.rule.clone(), paint(FAINT, &host.origin)]);
        }
        text.push_str(&table.render());
    }
    text.push_str(&place(enclosure));
    if with_command {
        text.push_str(&command(&explanation.launch.command));
    }
    if let Some(judgement) = &explanation.commands {
        text.push_str(&commands(judgement));
    }
    text
}

/// Tells what the rules about commands say about each simple command.
fn commands(judgement: &CommandJudgement) -> String {
    let mut text = section("Simple commands, by rules that advise (the walls hold)");
    let mut table = Table::new(&["COMMAND", "RULES SAY", "RULE", "THROUGH"]);
    for one in &judgement.commands {
        let word = one.judged.as_str();
        table.row([
            super::one_line(&one.line, 70),
            match one.judged {
                Judged::Deny => paint(BAD, word),
                Judged::Ask | Judged::Unclear => paint(CAUTION, word),
                Judged::Allow => paint(GOOD, word),
                _ => paint(FAINT, word),
            },
            one.rule
                .as_ref()
                .map_or_else(String::new, CommandRuleReference::name),
            one.through.join(" > "),
        ]);
    }
    text.push_str(&table.render());
    for unclear in &judgement.unclear {
        let on = super::one_line(&unclear.on, 70);
        let _ = writeln!(text, "{}  {on}", paint(CAUTION, &unclear.why));
    }
    let verdict = judgement.verdict.as_str();
    let _ = writeln!(text, "{verdict}: {}", super::one_line(&judgement.why, 110));
    text
}

fn section(title: &str) -> String {
    format!("\n{}\n", paint(STRONG, title))
}

fn layer(layer: Layer) -> String {
    let word = layer.as_str().replace('_', " ");
    match layer {
        Layer::BuiltIn => paint(FAINT, word),
        Layer::Managed => paint(CAUTION, word),
        _ => paint(GOOD, word),
    }
}

const fn how(enforce: Enforce) -> &'static str {
    match enforce {
        Enforce::Prevent => "prevent",
        Enforce::Undo => "undo",
        Enforce::Report => "report",
    }
}

/// Gives the word of a mechanism.
pub(crate) fn mechanism(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::UserNamespace => "user namespace",
        Mechanism::MountNamespace => "mount namespace",
        Mechanism::PidNamespace => "pid namespace",
        Mechanism::NetworkNamespace => "network namespace",
        Mechanism::OtherNamespaces => "ipc, uts and cgroup namespaces",
        Mechanism::Landlock => "landlock",
        Mechanism::Seccomp => "seccomp",
        Mechanism::NoNewPrivileges => "no_new_privs",
        Mechanism::Cgroup => "control group",
        Mechanism::ContainerEngine => "container engine",
        Mechanism::Rlimit => "rlimit",
        Mechanism::SnapshotUndo => "snapshot and undo",
        Mechanism::Supervisor => "supervisor",
        Mechanism::EgressProxy => "egress proxy",
    }
}

fn held_by(mechanisms: &[Mechanism]) -> String {
    if mechanisms.is_empty() {
        return paint(BAD, "nothing");
    }
    mechanisms
        .iter()
        .map(|one| mechanism(*one))
        .collect::<Vec<_>>()
        .join(", ")
}

fn place(enclosure: &EnclosureSpec) -> String {
    let mut text = section("Place");
    let mut line = |name: &str, value: String| {
        let _ = writeln!(
            text,
            "{}  {value}",
            paint(FAINT, format_args!("{name:<11}"))
        );
    };
    line("provider", enclosure.provider.to_string());
    line("network", enclosure.network.as_str().to_owned());
    line("workspace", paint(PLACE, &enclosure.workspace));
    line(
        "acts as",
        format!(
            "uid {}, gid {}",
            enclosure.identity.uid, enclosure.identity.gid
        ),
    );
    for (access, target) in shown(enclosure) {
        line(access, target);
    }
    for cache in &enclosure.caches {
        line(
            "cache",
            format!("{} {}", cache.path, paint(FAINT, "under a private layer")),
        );
    }
    let absent = |one: &&cofferdam_core::spec::Protection| one.state == ProtectedState::Absent;
    let count = enclosure.protections.iter().filter(absent).count();
    if count > 0 {
        line(
            "absent",
            format!("{} that must not appear", super::count(count, "name")),
        );
    }
    for variable in &enclosure.environment {
        line(
            "environment",
            super::one_line(&format!("{}={}", variable.name, variable.value), 110),
        );
    }
    line("held by", held_by(&enclosure.enforced_by));
    line("hash", enclosure.hash().to_string());
    text
}

/// Lists what can be seen, by mounts where there are some, else by Landlock's rules.
fn shown(enclosure: &EnclosureSpec) -> Vec<(&'static str, String)> {
    if enclosure.mounts.is_empty() {
        return enclosure
            .landlock
            .paths
            .iter()
            .map(|rule| {
                let word = match rule.access {
                    PathAccess::List => "lists",
                    PathAccess::Read => "reads",
                    PathAccess::ReadExecute => "runs",
                    PathAccess::Write => "writes",
                    PathAccess::Device => "device",
                };
                (word, paint(PLACE, &rule.path))
            })
            .collect();
    }
    enclosure
        .mounts
        .iter()
        .filter_map(|mount| match mount {
            Mount::Bind {
                source,
                target,
                access,
                ..
            } => {
                let word = match access {
                    Access::Read => "reads",
                    Access::Write => "writes",
                };
                let from = if source == target {
                    String::new()
                } else {
                    format!(" {}", paint(FAINT, format_args!("from {source}")))
                };
                Some((word, format!("{}{from}", paint(PLACE, target))))
            }
            Mount::Temporary { target, .. } => Some(("private", paint(PLACE, target))),
            Mount::Mask { target, .. } => Some(("hides", paint(PLACE, target))),
            _ => None,
        })
        .collect()
}

fn command(command: &CommandSpec) -> String {
    let mut text = section("Command");
    let words: Vec<_> = command.argv.iter().map(ToString::to_string).collect();
    let _ = writeln!(text, "{}", words.join(" "));
    let _ = writeln!(
        text,
        "{} {}",
        paint(FAINT, "in"),
        paint(PLACE, &command.cwd)
    );
    for variable in &command.environment {
        let said = format!("{}={}", variable.name, variable.value);
        let _ = writeln!(
            text,
            "{} {}",
            paint(FAINT, "with"),
            super::one_line(&said, 110)
        );
    }
    if let Some(limit) = command.timeout_ms {
        let _ = writeln!(
            text,
            "{} {}",
            paint(FAINT, "no longer than"),
            duration(limit)
        );
    }
    if let Some(limit) = command.idle_timeout_ms {
        let _ = writeln!(
            text,
            "{} {}",
            paint(FAINT, "silent no longer than"),
            duration(limit)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use cofferdam_core::policy::{EffectivePolicy, Proposal, Sourced};
    use cofferdam_core::spec::Network;
    use serde_json::json;

    use super::*;
    use crate::render::plain;

    #[test]
    fn values_rules_place_and_command_stand_in_this_order() {
        let mut policy = EffectivePolicy::built_in();
        policy.network = Sourced::new(Network::Full, Layer::CommandLine);
        policy.proposals = vec![Proposal {
            field: "network".to_owned(),
            value: "\"full\"".to_owned(),
            reason: "a project file may only narrow".to_owned(),
        }];
        let launch = serde_json::from_value(json!({
            "enclosure": {
                "provider": "bwrap", "workspace": "/w", "workspace_source": "/w",
                "identity": {"uid": 1000, "gid": 1000, "groups": []},
                "scratch": "/data/scratch/encl_1",
                "mounts": [
                    {"kind": "bind", "source": "/usr", "target": "/usr", "access": "read", "optional": false},
                    {"kind": "bind", "source": "/tree", "target": "/w", "access": "write", "optional": false},
                    {"kind": "mask", "target": "/etc/shadow", "directory": false},
                ],
                "caches": [], "network": "full",
                "landlock": {"paths": [], "deny_tcp": false, "scope_signals": true, "scope_abstract_sockets": true},
                "seccomp": {"enabled": true, "sockets": "host", "nested_sandbox": false, "ptrace": false},
                "protections": [
                    {"path": "/w/.git/hooks", "state": "absent", "enforce": "undo", "rule": "git hooks"},
                ],
                "environment": [{"name": "LANG", "value": "C.UTF-8"}],
                "limits": {},
                "enforced_by": ["mount_namespace", "seccomp", "snapshot_undo"],
                "gaps": [{"what": "stat_outside", "why": "names can be seen"}],
            },
            "command": {
                "argv": ["make", "-s"], "cwd": "/w", "environment": [], "streams": "pipes",
                "timeout_ms": 60000, "idle_timeout_ms": null, "limits": {},
            },
        }));
        let launch = launch.expect("a plan");
        let text = explanation(&Explanation::new(&policy, launch), true);
        let text: Vec<_> = plain(&text)
            .lines()
            .filter(|line| !line.starts_with("hash"))
            .map(str::to_owned)
            .collect();
        insta::assert_snapshot!(text.join("\n"), @r#"
        Values
        FIELD                 VALUE           FROM
        provider              "auto"          built in
        fallback              []              built in
        network               "full"          command line
        workspace             "write"         built in
        env.inherit           "listed"        built in
        caches                "private"       built in
        allow.nested_sandbox  false           built in
        allow.ptrace          false           built in
        allow.signal_peers    false           built in
        setup                 []              built in
        permission            "unrestricted"  built in

        The project file asks for more, and does not get it
        network = "full"  a project file may only narrow

        Rules
        RULE                                  ON             HOW   HELD BY
        network full                                               nothing
        reading by allow-list                                      mount namespace
        writing by allow-list                                      mount namespace
        processes of others are out of reach                       nothing
        no rights are gained                                       nothing
        dangerous system calls are refused                         seccomp
        git hooks                             /w/.git/hooks  undo  snapshot and undo

        Not enforced by this provider
        stat_outside  names can be seen

        Place
        provider     bwrap
        network      full
        workspace    /w
        acts as      uid 1000, gid 1000
        reads        /usr
        writes       /w from /tree
        hides        /etc/shadow
        absent       1 name that must not appear
        environment  LANG=C.UTF-8
        held by      mount namespace, seccomp, snapshot and undo

        Command
        make -s
        in /w
        no longer than 1 min 0 s
        "#);
    }
}
