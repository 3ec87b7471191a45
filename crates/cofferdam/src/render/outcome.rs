//! What `run` has to say about a command beside the command's own output.

use cofferdam_core::outcome::{CommandOutcome, EndedBy, Isolation, Status};
use cofferdam_core::spec::ProviderKind;

use super::{BAD, CAUTION, FAINT, GOOD, PLACE, count, duration, one_line, paint};

/// Gives the colour of a status.
pub(crate) const fn status_style(status: Status) -> anstyle::Style {
    match status {
        Status::Completed => GOOD,
        Status::Running => PLACE,
        Status::Cancelled | Status::Interrupted => CAUTION,
        Status::Failed | Status::Timeout | Status::Denied | Status::Error => BAD,
    }
}

/// Renders the walls in a few words.
pub(crate) fn walls(provider: Option<ProviderKind>, network: &str) -> String {
    let provider = provider.map_or("auto", ProviderKind::as_str);
    format!("{provider}, network {network}")
}

/// Gives the lines that are worth saying on standard error; none for an ordinary end.
pub(crate) fn notes(outcome: &CommandOutcome) -> Vec<String> {
    let mut lines = Vec::new();
    match outcome.status {
        Status::Timeout => lines.push(timeout(outcome)),
        Status::Cancelled => lines.push(paint(CAUTION, "cancelled")),
        _ => {}
    }
    if outcome.timeout_clamped
        && let Some(limit) = outcome.timeout_ms
    {
        lines.push(format!(
            "the time limit was clamped to {}, the most that the policy allows",
            duration(limit)
        ));
    }
    lines.extend(isolation(&outcome.isolation));
    if !outcome.leftovers.is_empty() {
        let names: Vec<_> = outcome
            .leftovers
            .iter()
            .take(5)
            .map(|process| format!("{} ({})", one_line(&process.name, 32), process.pid))
            .collect();
        let more = outcome.leftovers.len().saturating_sub(5);
        let more = if more == 0 {
            String::new()
        } else {
            format!(" and {more} more")
        };
        lines.push(format!(
            "ended {} that outlived the command: {}{more}",
            if outcome.leftovers.len() == 1 {
                "1 process".to_owned()
            } else {
                format!("{} processes", outcome.leftovers.len())
            },
            names.join(", ")
        ));
    }
    for path in &outcome.undone {
        lines.push(format!(
            "{} {}",
            paint(CAUTION, "put back:"),
            paint(PLACE, path)
        ));
    }
    for denial in &outcome.denials {
        let again = if denial.will_not_change {
            " (this will not change)"
        } else {
            ""
        };
        lines.push(format!(
            "{} {}: {}{again}; {}",
            paint(CAUTION, "denied"),
            one_line(&denial.subject, 120),
            denial.rule,
            denial.instead
        ));
    }
    if outcome.status != Status::Completed {
        for hint in &outcome.hints {
            let allow = hint
                .allow
                .as_ref()
                .map_or_else(String::new, |allow| format!(" ({})", paint(PLACE, allow)));
            lines.push(format!("{} {}{allow}", paint(PLACE, "maybe:"), hint.text));
        }
    }
    lines
}

fn timeout(outcome: &CommandOutcome) -> String {
    let limit = outcome.timeout_ms.unwrap_or(outcome.elapsed_ms);
    let idle = outcome
        .timeout_ms
        .is_none_or(|limit| outcome.elapsed_ms < limit);
    let how = match outcome.ended_by {
        Some(EndedBy::Cgroup) => ", ended by its control group",
        Some(EndedBy::Namespace) => ", ended with its process namespace",
        _ => "",
    };
    if let Some(error) = &outcome.error {
        return format!("{}: {}{how}", paint(BAD, "time limit"), error.message);
    }
    if idle {
        return format!(
            "{}: no output for too long, ended{how}",
            paint(BAD, "time limit")
        );
    }
    format!(
        "{}: ended after {}{how}",
        paint(BAD, "time limit"),
        duration(limit)
    )
}

/// Says what one should know about the walls: another provider than asked for, or none at all.
fn isolation(isolation: &Isolation) -> Option<String> {
    let effective = isolation.effective.provider?;
    match (isolation.requested.provider, effective) {
        (None, ProviderKind::Bwrap) => None,
        (None, other) => Some(format!(
            "{} {other} instead of bwrap, {}",
            paint(CAUTION, "fallback:"),
            count(isolation.gaps.len(), "gap")
        )),
        (Some(requested), ProviderKind::Direct) if requested == ProviderKind::Direct => None,
        (Some(requested), effective) if requested != effective => Some(format!(
            "{} {effective} instead of {requested}",
            paint(CAUTION, "fallback:")
        )),
        _ => None,
    }
}

/// Renders one line about a command for lists.
pub(crate) fn line(outcome: &CommandOutcome) -> String {
    let how = match (outcome.return_code, outcome.signal.as_deref()) {
        (_, Some(signal)) => format!(", {signal}"),
        (Some(code), None) if code != 0 => format!(", exit {code}"),
        _ => String::new(),
    };
    format!(
        "{}{how} {}",
        paint(status_style(outcome.status), outcome.status),
        paint(FAINT, format_args!("in {}", duration(outcome.elapsed_ms)))
    )
}
