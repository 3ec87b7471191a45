//! Views of the journal as text: a tree, tables, a few lines.

use std::fmt::Write as _;

use cofferdam_core::outcome::Status;
use cofferdam_core::task::VerificationStatus;
use cofferdam_visibility::{
    Activity, ClaimVerdict, Counts, FreshnessVerdict, Node, NodeDetail, RuntimeSummary,
    TaskEvidence, ThreadMessages, ThreadSummary, Topology, VerifierSummary,
};

use super::outcome::status_style;
use super::table::Table;
use super::task::verdict_style;
use super::{BAD, CAUTION, FAINT, GOOD, PLACE, STRONG, duration, harmless, one_line, paint, size};

/// Renders the tree of who works on what.
pub(crate) fn topology(topology: &Topology) -> String {
    if topology.roots.is_empty() {
        return "nothing has happened yet\n".to_owned();
    }
    let mut text = String::new();
    for root in &topology.roots {
        branch(root, "", "", &mut text);
    }
    text
}

fn branch(node: &Node, lead: &str, below: &str, text: &mut String) {
    let _ = writeln!(text, "{}{}", paint(FAINT, lead), leaf(node));
    for (index, child) in node.children.iter().enumerate() {
        let last = index + 1 == node.children.len();
        let (lead, next) = if last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        branch(
            child,
            &format!("{below}{lead}"),
            &format!("{below}{next}"),
            text,
        );
    }
}

fn leaf(node: &Node) -> String {
    let status = |fallback: &str| match node.status {
        Some(status) => paint(status_style(status), status),
        None => fallback.to_owned(),
    };
    let label = one_line(&node.label, 72);
    match &node.detail {
        NodeDetail::Conversation { .. } => {
            format!(
                "{} {} {}",
                paint(FAINT, "conversation"),
                paint(STRONG, label),
                status("")
            )
        }
        NodeDetail::Agent { .. } => format!("{} {label} {}", paint(FAINT, "agent"), status("")),
        NodeDetail::Task {
            branch,
            verification,
            ..
        } => {
            let verdict = verification.map_or_else(String::new, |verdict| {
                format!(
                    ", {}",
                    paint(
                        verdict_style(verdict),
                        format_args!("verifier {}", verdict.as_str())
                    )
                )
            });
            let branch = branch
                .as_ref()
                .map_or_else(String::new, |branch| format!(" {}", paint(PLACE, branch)));
            format!(
                "{} {} {}{verdict}{branch}",
                paint(FAINT, "task"),
                paint(STRONG, label),
                status("")
            )
        }
        NodeDetail::Command {
            return_code,
            signal,
            elapsed_ms,
            provider,
            denials,
            ..
        } => {
            let mut said = format!("{} {label} {}", paint(FAINT, "command"), status(""));
            match (signal, return_code) {
                (Some(signal), _) => {
                    let _ = write!(said, ", {signal}");
                }
                (None, Some(code)) if *code != 0 => {
                    let _ = write!(said, ", exit {code}");
                }
                _ => {}
            }
            if let Some(provider) = provider {
                let _ = write!(said, " {}", paint(FAINT, provider));
            }
            if let Some(elapsed) = elapsed_ms {
                let _ = write!(said, " {}", paint(FAINT, duration(*elapsed)));
            }
            if *denials > 0 {
                let _ = write!(
                    said,
                    " {}",
                    paint(CAUTION, format_args!("{denials} denied"))
                );
            }
            said
        }
    }
}

/// Renders what supports and contradicts a task's result.
pub(crate) fn evidence(evidence: &TaskEvidence) -> String {
    let goal = evidence.goal.as_deref().unwrap_or(&evidence.task_id);
    let status = evidence.status.map_or_else(String::new, |status| {
        format!(" {}", paint(status_style(status), status))
    });
    let verifier = evidence.verification.map_or_else(String::new, |verdict| {
        let said = format!("verifier {}", verdict.as_str());
        format!(" · {}", paint(verdict_style(verdict), said))
    });
    let mut text = format!("{}{status}{verifier}\n", paint(STRONG, one_line(goal, 100)));
    let verdict = match evidence.freshness.verdict {
        FreshnessVerdict::Fresh
            if matches!(
                evidence.verification,
                Some(VerificationStatus::Failed | VerificationStatus::Error)
            ) =>
        {
            let said = "a check passed after the last edit, and another did not";
            paint(CAUTION, said)
        }
        FreshnessVerdict::Fresh => paint(GOOD, "a check passed after the last edit"),
        FreshnessVerdict::Stale => paint(BAD, "files changed after the last check that passed"),
        FreshnessVerdict::NeverPassed => paint(CAUTION, "no check passed"),
    };
    let _ = writeln!(text, "{verdict}");
    let mut section = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = write!(text, "\n{}\n", paint(STRONG, title));
            for line in lines {
                let _ = writeln!(text, "  {line}");
            }
        }
    };
    section(
        "Claims",
        evidence
            .claims
            .iter()
            .map(|claim| {
                let word = match claim.verdict {
                    ClaimVerdict::Supported => paint(GOOD, "supported   "),
                    ClaimVerdict::Contradicted => paint(BAD, "contradicted"),
                    ClaimVerdict::Unverified => paint(CAUTION, "unverified  "),
                };
                format!("{word} {}", one_line(&claim.text, 100))
            })
            .collect(),
    );
    section(
        "Facts",
        evidence
            .facts
            .iter()
            .map(|fact| {
                format!(
                    "{} {:<14} {}",
                    paint(FAINT, format_args!("{:>6}", fact.pos)),
                    fact.kind,
                    one_line(&fact.summary, 90)
                )
            })
            .collect(),
    );
    section(
        "Commands",
        evidence
            .commands
            .iter()
            .map(|command| {
                let status = command.status.unwrap_or(Status::Running);
                let code = match command.return_code {
                    Some(code) if code != 0 => format!(", exit {code}"),
                    _ => String::new(),
                };
                format!(
                    "{} {}{code} {} {}",
                    paint(FAINT, format_args!("{:>6}", command.pos)),
                    paint(status_style(status), status),
                    one_line(command.command.as_deref().unwrap_or_default(), 80),
                    paint(FAINT, size(command.output_bytes))
                )
            })
            .collect(),
    );
    section(
        "Files",
        evidence
            .files
            .iter()
            .map(|file| one_line(&file.path, 110))
            .collect(),
    );
    section(
        "Denied",
        evidence
            .denials
            .iter()
            .map(|fact| {
                format!(
                    "{}: {}",
                    paint(CAUTION, one_line(&fact.denial.subject, 80)),
                    fact.denial.rule
                )
            })
            .collect(),
    );
    section(
        "Hosts",
        evidence
            .hosts
            .iter()
            .map(|host| {
                let verdict = match (host.reached, host.refused) {
                    (0, _) => paint(CAUTION, "refused"),
                    (_, 0) => "reached".to_owned(),
                    _ => "reached, and refused before or after".to_owned(),
                };
                let origin = host.origin.as_deref().unwrap_or_default();
                format!(
                    "{}:{} {verdict} {origin}",
                    one_line(&host.host, 80),
                    host.port
                )
                .trim_end()
                .to_owned()
            })
            .collect(),
    );
    text
}

/// Renders the list of threads.
pub(crate) fn threads(threads: &[ThreadSummary]) -> String {
    if threads.is_empty() {
        return "no threads yet\n".to_owned();
    }
    let mut table = Table::new(&["THREAD", "MESSAGES", "LAST", "PARTICIPANTS"]);
    for thread in threads {
        table.row([
            paint(PLACE, &thread.thread_id),
            thread.messages.to_string(),
            thread.last.strftime("%Y-%m-%d %H:%M:%S").to_string(),
            one_line(&thread.participants.join(", "), 60),
        ]);
    }
    table.render()
}

/// Renders the messages of a thread.
pub(crate) fn messages(thread: &ThreadMessages) -> String {
    let mut text = String::new();
    for message in &thread.messages {
        let name = |who: Option<&String>| one_line(who.map_or("?", String::as_str), 40);
        let _ = writeln!(
            text,
            "{} {} → {}",
            paint(FAINT, message.time.strftime("%H:%M:%S")),
            paint(STRONG, name(message.from.as_ref())),
            name(message.to.as_ref())
        );
        for line in harmless(&message.text).lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

/// Renders what the verifiers said.
pub(crate) fn verifier(summary: &VerifierSummary) -> String {
    let counts = &summary.counts;
    let mut text = format!(
        "{} passed, {} failed, {} could not be run, {} skipped, {} running\n",
        paint(GOOD, counts.passed),
        paint(BAD, counts.failed),
        counts.error,
        counts.skipped,
        counts.running
    );
    for run in &summary.runs {
        let task = run.task_id.as_deref().unwrap_or("no task");
        let status = run.status.map_or_else(
            || paint(PLACE, "running"),
            |status| paint(verdict_style(status), status.as_str()),
        );
        let _ = write!(text, "\n{} {status}\n", paint(STRONG, task));
        for check in &run.checks {
            let code = match check.return_code {
                Some(code) if code != 0 => format!(" (exit {code})"),
                _ => String::new(),
            };
            let _ = writeln!(
                text,
                "  {} {}{code}",
                paint(
                    verdict_style(check.status),
                    format_args!("{:<7}", check.status.as_str())
                ),
                one_line(&check.check, 90)
            );
        }
        for check in &run.pending {
            let _ = writeln!(
                text,
                "  {} {}",
                paint(FAINT, "pending"),
                one_line(check, 90)
            );
        }
        if !run.tampered_inputs.is_empty() {
            let _ = writeln!(
                text,
                "  {} {}",
                paint(CAUTION, "the task changed what the checks read:"),
                one_line(&run.tampered_inputs.join(", "), 90)
            );
        }
    }
    text
}

/// Renders the state of the whole.
pub(crate) fn summary(summary: &RuntimeSummary) -> String {
    let state = match summary.status {
        Activity::Running => paint(PLACE, "running"),
        Activity::Idle => paint(FAINT, "idle"),
    };
    let mut text = format!("{state}\n");
    let mut line = |name: &str, value: String| {
        let _ = writeln!(
            text,
            "  {}  {value}",
            paint(FAINT, format_args!("{name:<13}"))
        );
    };
    line("conversations", counts(&summary.conversations));
    line("agents", counts(&summary.agents));
    line("tasks", counts(&summary.tasks));
    line("commands", counts(&summary.commands));
    line(
        "used",
        format!(
            "{} of wall time, {} of processor time, {} of output",
            duration(summary.usage.wall_ms),
            duration(summary.usage.user_ms + summary.usage.system_ms),
            size(summary.usage.output_bytes)
        ),
    );
    let denied: Vec<_> = summary
        .denials
        .iter()
        .map(|(source, count)| format!("{count} by {source}"))
        .collect();
    if !denied.is_empty() {
        line("denied", paint(CAUTION, denied.join(", ")));
    }
    line("events", summary.events.total.to_string());
    text
}

fn counts(counts: &Counts) -> String {
    let parts: Vec<_> = counts
        .by_status
        .iter()
        .map(|(status, count)| format!("{count} {status}"))
        .collect();
    if parts.is_empty() {
        counts.total.to_string()
    } else {
        format!("{} ({})", counts.total, parts.join(", "))
    }
}

#[cfg(test)]
mod tests;
