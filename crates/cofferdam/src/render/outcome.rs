//! What `run` has to say about a command beside the command's own output.

use cofferdam_core::outcome::{CommandOutcome, EndedBy, Isolation, Status};
use cofferdam_core::spec::ProviderKind;

use super::{BAD, CAUTION, GOOD, PLACE, count, duration, one_line, paint};

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
        Some(EndedBy::Cgroup) => " by its control group",
        Some(EndedBy::Namespace) => " with its process namespace",
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
        (None, other) if other != ProviderKind::Bwrap => Some(format!(
            "{} {other} instead of bwrap, {}",
            paint(CAUTION, "fallback:"),
            count(isolation.gaps.len(), "gap")
        )),
        (Some(requested), effective) if requested != effective => Some(format!(
            "{} {effective} instead of {requested}",
            paint(CAUTION, "fallback:")
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_core::outcome::{Denial, DenialSource, Hint, Leftover};
    use cofferdam_core::spec::Gap;

    use super::*;
    use crate::render::fixtures::{level, outcome};
    use crate::render::plain;

    fn said(outcome: &CommandOutcome) -> String {
        plain(&notes(outcome).join("\n"))
    }

    #[test]
    fn an_ordinary_end_says_nothing() {
        assert_eq!(said(&outcome(Status::Completed)), "");
        assert_eq!(said(&outcome(Status::Failed)), "");
    }

    #[test]
    fn what_is_out_of_the_ordinary_is_said_in_a_line_each() {
        let mut odd = outcome(Status::Timeout);
        odd.timeout_ms = Some(1_000);
        odd.ended_by = Some(EndedBy::Namespace);
        odd.isolation.effective = level(Some(ProviderKind::Landlock));
        odd.isolation.gaps = vec![Gap {
            what: "stat_outside".to_owned(),
            why: "no mount namespace".to_owned(),
        }];
        odd.leftovers = vec![Leftover {
            pid: 7,
            name: "sleep".to_owned(),
        }];
        odd.undone = vec![".git/hooks/post-commit".into()];
        odd.denials = vec![Denial {
            source: DenialSource::Mount,
            rule: "git hooks".to_owned(),
            subject: ".git/hooks/post-commit".to_owned(),
            instead: "let the owner install hooks".to_owned(),
            askable: false,
            will_not_change: false,
        }];
        odd.hints = vec![Hint {
            text: "the host example.org could not be reached".to_owned(),
            allow: Some("--net full".to_owned()),
        }];
        insta::assert_snapshot!(said(&odd), @r"
        time limit: ended after 1.0 s with its process namespace
        fallback: landlock instead of bwrap, 1 gap
        ended 1 process that outlived the command: sleep (7)
        put back: .git/hooks/post-commit
        denied .git/hooks/post-commit: git hooks; let the owner install hooks
        maybe: the host example.org could not be reached (--net full)
        ");
    }

    #[test]
    fn fc_78_hints_are_never_said_about_success() {
        let mut good = outcome(Status::Completed);
        good.hints = vec![Hint {
            text: "a guess".to_owned(),
            allow: None,
        }];
        assert_eq!(said(&good), "");
    }
}
