//! A review: what matters first, then the differences.

use std::fmt::Write as _;

use cofferdam_core::outcome::DenialSource;
use cofferdam_core::profile::StateChange;
use cofferdam_core::task::{CleanupStatus, MergeStatus, VerificationStatus};
use cofferdam_runtime::{
    HostVerdict, ProtectedOutcome, ReviewedDenial, ReviewedFile, ReviewedHost, TaskReview,
};
use cofferdam_visibility::FreshnessVerdict;

use super::outcome::{status_style, walls};
use super::task::{changed, checked, merge_word, next, short, tail, verdict_style};
use super::tasks::coloured;
use super::{BAD, CAUTION, FAINT, GOOD, PLACE, STRONG, count, duration, one_line, paint};

/// Files, hosts and the like that are listed before the rest is only counted.
const SHOWN: usize = 12;

/// Says that nothing waits.
pub(crate) fn nothing(last: Option<u64>) -> String {
    let mut text = "nothing waits for you\n".to_owned();
    if let Some(last) = last {
        text.push_str(&next(&[
            format!("cofferdam review {last}"),
            "cofferdam task list".to_owned(),
        ]));
    }
    text
}

/// Says which changes of an agent's own state were applied.
pub(crate) fn applied(changes: &[&StateChange]) -> String {
    changes
        .iter()
        .map(|change| {
            format!(
                "{} {} ({})\n",
                paint(GOOD, "applied:"),
                paint(PLACE, change.host.to_string()),
                change.what.as_str()
            )
        })
        .collect()
}

/// Renders what matters about each task.
pub(crate) fn reviews(reviews: &[TaskReview]) -> String {
    let rendered: Vec<_> = reviews.iter().map(review).collect();
    rendered.join("\n")
}

/// Renders the differences of all tasks, each below its number where there are several.
pub(crate) fn patches(reviews: &[TaskReview]) -> String {
    let mut text = String::new();
    for review in reviews {
        if review.changes.patch_bytes.is_empty() {
            continue;
        }
        text.push('\n');
        if reviews.len() > 1 {
            let title = format!("what task {} changed", review.number);
            let _ = writeln!(text, "{}", paint(STRONG, title));
        }
        text.push_str(&coloured(&review.changes.patch_bytes));
    }
    for review in reviews {
        text.push_str(&state(review));
    }
    text
}

/// Renders the differences of the agent's own state that were held back.
pub(crate) fn state(review: &TaskReview) -> String {
    let mut text = String::new();
    for change in &review.agent_state {
        let diff = change.data.get("diff").and_then(serde_json::Value::as_str);
        if let (Some(false), Some(diff)) = (change.applied, diff)
            && !diff.is_empty()
        {
            let title = format!("not applied: {}", one_line(&change.summary, 100));
            let _ = writeln!(text, "\n{}", paint(STRONG, title));
            text.push_str(&coloured(diff.as_bytes()));
        }
    }
    text
}

/// Lines below names, the name only before the first of its lines.
#[derive(Default)]
struct Fields {
    text: String,
    last: &'static str,
}

impl Fields {
    fn add(&mut self, name: &'static str, value: impl AsRef<str>) {
        let shown = if self.last == name { "" } else { name };
        self.last = name;
        let label = paint(FAINT, format_args!("{shown:<9}"));
        let _ = writeln!(self.text, "  {label} {}", value.as_ref());
    }

    /// Adds lines up to a bound, and how many there are more.
    fn list<T>(&mut self, name: &'static str, things: &[T], line: impl Fn(&T) -> String) {
        for thing in things.iter().take(SHOWN) {
            self.add(name, line(thing));
        }
        if let Some(more) = things.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            self.add(name, paint(FAINT, format_args!("and {more} more")));
        }
    }
}

fn review(review: &TaskReview) -> String {
    let mut fields = Fields::default();
    if !review.goal.is_empty() {
        fields.add("goal", one_line(&review.goal, 100));
    }
    if review.command != review.goal {
        fields.add("command", paint(FAINT, one_line(&review.command, 100)));
    }
    place(&mut fields, review);
    changes(&mut fields, review);
    checks(&mut fields, review);
    fields.list("hosts", &review.hosts, |one| {
        let line = host(one);
        match denial_of(review, one) {
            Some(denial) => format!("{line}{}{}", certain(denial), flag(denial)),
            None => line,
        }
    });
    let denials: Vec<_> = other_denials(review).collect();
    fields.list("denied", &denials, |one| {
        let often = if one.times > 1 {
            format!(" {} times", one.times)
        } else {
            String::new()
        };
        format!(
            "{} {}{often}{}",
            paint(CAUTION, one_line(&one.denial.subject, 80)),
            paint(FAINT, format_args!("({})", one_line(&one.denial.rule, 40))),
            certain(one) + &instead(one),
        )
    });
    fields.list("protected", &review.protected, |one| {
        let became = match one.outcome {
            ProtectedOutcome::Undone => paint(GOOD, "put back"),
            ProtectedOutcome::InChanges => paint(
                CAUTION,
                "in the changes: merged only with --allow-protected",
            ),
        };
        let what = one
            .what
            .as_ref()
            .map_or_else(String::new, |what| format!(" {}", one_line(what, 40)));
        format!("{}{what}, {became}", paint(PLACE, one_line(&one.path, 80)))
    });
    fields.list("state", &review.agent_state, |one| {
        let became = match one.applied {
            Some(true) => paint(FAINT, " (came back)"),
            Some(false) => paint(CAUTION, " (held back)"),
            None => String::new(),
        };
        format!("{}{became}", one_line(&one.summary, 110))
    });
    fields.list("held", &review.held, super::outbox::in_review);
    fields.list("asks", &review.questions, |one| {
        paint(CAUTION, one_line(&one.ask.summary, 110))
    });
    fields.list("not in", &review.left_behind, |one| one_line(one, 110));
    fields.list("not out", &review.not_brought_in, |one| one_line(one, 110));
    fields.list("notes", &review.notes, |one| one_line(one, 110));
    if let Some(merge) = merge(review) {
        fields.add("merge", merge);
    }
    let mut text = head(review);
    text.push_str(&fields.text);
    if let Some(problem) = &review.error {
        text.push_str(&super::problem(problem));
    }
    if let Some(problem) = &review.changes.patch_problem {
        let line = format!("no diff: {}", problem.message);
        let _ = writeln!(text, "  {}", paint(FAINT, line));
    }
    text.push_str(&next(&review.next));
    text
}

fn head(review: &TaskReview) -> String {
    let elapsed = review
        .elapsed_ms
        .map_or_else(String::new, |time| format!(" in {}", duration(time)));
    let how = match review.return_code {
        Some(code) if code != 0 => format!(" (exit {code})"),
        _ => String::new(),
    };
    let verdict = if review.checks.checks.is_empty() {
        paint(FAINT, "not verified")
    } else {
        let word = format!("verifier {}", review.checks.status.as_str());
        paint(verdict_style(review.checks.status), word)
    };
    let mut alarms = String::new();
    let refused = review
        .hosts
        .iter()
        .filter(|one| one.verdict == HostVerdict::Refused);
    for (number, noun, verb) in [
        (refused.count(), "host", " refused"),
        (other_denials(review).count(), "denial", ""),
        (held(review), "effect", " held"),
        (review.questions.len(), "question", ""),
    ] {
        if number > 0 {
            let said = format!("{}{verb}", count(number, noun));
            let _ = write!(alarms, " · {}", paint(CAUTION, said));
        }
    }
    format!(
        "{} {}{how}{elapsed} · {verdict}{alarms}\n",
        paint(STRONG, format_args!("task {}", review.number)),
        paint(status_style(review.status), review.status),
    )
}

/// Counts what waits to leave.
fn held(review: &TaskReview) -> usize {
    let waits = review.held.iter().filter(|one| one.state.waits());
    waits.count()
}

fn place(fields: &mut Fields, review: &TaskReview) {
    let Some(isolation) = &review.isolation else {
        return;
    };
    if let Some(branch) = &isolation.branch {
        let base = isolation
            .base
            .as_deref()
            .map_or_else(String::new, |base| format!(" from {}", short(base)));
        fields.add("branch", format!("{}{base}", paint(PLACE, branch)));
    }
    let level = isolation.effective;
    fields.add(
        "walls",
        format!(
            "{} · {}",
            isolation.mode.as_str(),
            walls(level.provider, level.network.as_str())
        ),
    );
    let stays = !matches!(
        isolation.cleanup_status,
        CleanupStatus::NotNeeded | CleanupStatus::Removed
    );
    if let (true, Some(path)) = (stays, &isolation.workspace_path) {
        fields.add("tree", paint(PLACE, path));
    }
}

fn changes(fields: &mut Fields, review: &TaskReview) {
    let changes = &review.changes;
    if changes.files.is_empty() {
        fields.add("changes", "none");
    } else {
        fields.add(
            "changes",
            format!(
                "{}, {} {}",
                count(changes.files.len(), "file"),
                paint(GOOD, format_args!("+{}", changes.summary.insertions)),
                paint(BAD, format_args!("−{}", changes.summary.deletions)),
            ),
        );
    }
    // By whom is worth a word only where there is a choice.
    let doers = |file: &ReviewedFile| {
        let steps = changes.commands.iter().filter(|one| one.kind != "check");
        if steps.count() < 2 {
            return String::new();
        }
        let named: Vec<String> = file
            .commands
            .iter()
            .filter_map(|id| {
                let command = changes.commands.iter().find(|one| one.command_id == *id)?;
                Some(one_line(command.command.as_deref()?, 40))
            })
            .collect();
        if named.is_empty() {
            String::new()
        } else {
            format!(" {}", paint(FAINT, format_args!("by {}", named.join(", "))))
        }
    };
    fields.list("changes", &changes.files, |file| {
        format!("{}{}", changed(&file.file), doers(file))
    });
    fields.list("commits", &changes.commits, |commit| {
        format!(
            "{} {} {}",
            paint(PLACE, short(&commit.oid)),
            one_line(&commit.subject, 80),
            paint(FAINT, count(commit.files.len(), "file")),
        )
    });
}

fn checks(fields: &mut Fields, review: &TaskReview) {
    let checks = &review.checks;
    for check in &checks.checks {
        fields.add("checks", checked(check));
        if check.status != VerificationStatus::Passed {
            for line in tail(&check.output) {
                fields.add("checks", paint(FAINT, format_args!("│ {line}")));
            }
        }
    }
    if let Some(freshness) = &checks.freshness {
        let age = freshness
            .check_after_edit_ms
            .map(|age| duration(age.unsigned_abs()));
        match (freshness.verdict, age) {
            (FreshnessVerdict::Fresh, Some(age)) => {
                let line = format!("the last good one {age} after the last edit");
                fields.add("checks", paint(FAINT, line));
            }
            (FreshnessVerdict::Stale, Some(age)) => {
                let line = format!("out of date: files changed {age} after the last good check");
                fields.add("checks", paint(CAUTION, line));
            }
            _ => {}
        }
    }
    if !checks.tampered_inputs.is_empty() {
        let names: Vec<_> = checks
            .tampered_inputs
            .iter()
            .map(|path| one_line(&path.to_string(), 80))
            .collect();
        fields.add(
            "caution",
            format!(
                "{} {}",
                paint(CAUTION, "the task changed what the checks read:"),
                names.join(", ")
            ),
        );
    }
}

/// Gives the denial that a refused host led to, which is shown with it.
fn denial_of<'a>(review: &'a TaskReview, host: &ReviewedHost) -> Option<&'a ReviewedDenial> {
    if host.verdict != HostVerdict::Refused {
        return None;
    }
    let named = match host.port {
        Some(port) => format!("{}:{port}", host.host),
        None => host.host.clone(),
    };
    review.denials.iter().find(|one| {
        one.denial.source == DenialSource::Proxy
            && (one.denial.subject == named || one.denial.subject == host.host)
    })
}

/// Gives the denials that are not shown with a host.
fn other_denials(review: &TaskReview) -> impl Iterator<Item = &ReviewedDenial> {
    review.denials.iter().filter(|one| {
        let mut hosts = review.hosts.iter();
        !hosts.any(|host| denial_of(review, host) == Some(*one))
    })
}

fn certain(one: &ReviewedDenial) -> String {
    if one.denial.will_not_change {
        format!(" {}", paint(CAUTION, "(will not change)"))
    } else {
        String::new()
    }
}

/// Gives the flag that would allow it, where the denial names one.
fn flag(one: &ReviewedDenial) -> String {
    let text = &one.denial.instead;
    let begin = ["--allow ", "--reach "]
        .iter()
        .find_map(|flag| text.find(flag));
    begin.map_or_else(String::new, |at| {
        let words: Vec<&str> = text[at..].split_whitespace().take(2).collect();
        let words = words.join(" ");
        let named = one_line(words.trim_end_matches(['.', ',', ';']), 100);
        format!("; {} lets it through", paint(PLACE, named))
    })
}

fn instead(one: &ReviewedDenial) -> String {
    let text = one_line(&one.denial.instead, 160);
    format!("\n            {}", paint(FAINT, text))
}

fn host(host: &ReviewedHost) -> String {
    let name = match host.port {
        Some(port) => format!("{}:{port}", one_line(&host.host, 80)),
        None => one_line(&host.host, 80),
    };
    let often = if host.times > 1 {
        format!(" {} times", host.times)
    } else {
        String::new()
    };
    match host.verdict {
        HostVerdict::Reached => format!("{} {name}{often}", paint(GOOD, "reached")),
        HostVerdict::Refused | HostVerdict::Failed => {
            let word = match host.verdict {
                HostVerdict::Failed => paint(CAUTION, "not reached"),
                _ => paint(BAD, "refused"),
            };
            let why = host.reason.as_ref().map_or_else(String::new, |why| {
                format!(" {}", paint(FAINT, format_args!("({})", one_line(why, 60))))
            });
            format!("{word} {name}{often}{why}")
        }
    }
}

fn merge(review: &TaskReview) -> Option<String> {
    let oid = review
        .merge
        .oid
        .as_deref()
        .map_or_else(String::new, |oid| format!(" as {}", short(oid)));
    match review.merge.status {
        MergeStatus::NotRequested | MergeStatus::Nothing => None,
        MergeStatus::Merged => Some(format!("{}{oid}", paint(GOOD, "merged"))),
        MergeStatus::Conflict => {
            let conflicts = review.merge.conflicts.iter();
            let names: Vec<_> = conflicts
                .map(|path| one_line(&path.to_string(), 80))
                .collect();
            Some(format!(
                "{} in {}; nothing was touched",
                paint(BAD, "conflict"),
                names.join(", ")
            ))
        }
        status => Some(paint(CAUTION, merge_word(status))),
    }
}

#[cfg(test)]
mod tests;
