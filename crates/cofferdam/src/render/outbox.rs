//! What is held and would leave the machine.

use std::fmt::Write as _;

use cofferdam_core::operation::{OutboxAnswer, OutboxPage, PushProposed};
use cofferdam_core::outbox::{Effect, Held, HeldState, ProposedBy, SentAs};

use super::table::Table;
use super::task::{next, short};
use super::{BAD, CAUTION, FAINT, GOOD, PLACE, STRONG, count, harmless, one_line, paint};

/// Commits that are listed before the rest is only counted.
const COMMITS_SHOWN: usize = 12;

/// Renders a state.
pub(crate) fn state(state: HeldState) -> String {
    let style = match state {
        HeldState::Held | HeldState::Releasing => CAUTION,
        HeldState::Released => GOOD,
        HeldState::Refused => FAINT,
        HeldState::Failed => BAD,
    };
    paint(style, state.as_str())
}

/// Renders a list.
pub(crate) fn list(page: &OutboxPage) -> String {
    if page.held.is_empty() {
        return "nothing is held\n".to_owned();
    }
    let mut table = Table::new(&["ID", "TASK", "STATE", "WHAT"]);
    for one in &page.held {
        table.row([
            paint(STRONG, &one.proposal.proposal_id),
            one.proposal.task_number.to_string(),
            state(one.state),
            one_line(&one.proposal.summary, 90),
        ]);
    }
    let mut text = table.render();
    if page.left_out > 0 {
        let _ = writeln!(text, "and {} older ones", page.left_out);
    }
    if let Some(first) = page.held.iter().find(|one| one.state.waits()) {
        let id = &first.proposal.proposal_id;
        text.push_str(&next(&[
            format!("cofferdam outbox show {id}"),
            format!("cofferdam outbox release {id}"),
        ]));
    }
    text
}

/// Renders one with all that is needed to answer. What comes from inside is shown without what a
/// terminal obeys.
pub(crate) fn held(held: &Held) -> String {
    let mut text = body(held);
    if held.state.waits() {
        let id = &held.proposal.proposal_id;
        text.push_str(&next(&[
            format!("cofferdam outbox release {id}"),
            format!("cofferdam outbox refuse {id}"),
        ]));
    }
    text
}

/// Renders what was just proposed.
pub(crate) fn proposed(proposed: &PushProposed) -> String {
    let mut text = String::new();
    if !proposed.is_new {
        let _ = writeln!(text, "it was proposed before");
    }
    text.push_str(&body(&proposed.held));
    text.push_str(&next(&proposed.next));
    text
}

fn body(held: &Held) -> String {
    let proposal = &held.proposal;
    let Effect::Push { push } = &proposal.effect;
    let mut text = format!(
        "{} {}: {}\n",
        paint(STRONG, &proposal.proposal_id),
        state(held.state),
        one_line(&proposal.summary, 120)
    );
    let mut line = |name: &str, value: &str| {
        let label = paint(FAINT, format_args!("{name:<9}"));
        let _ = writeln!(text, "  {label} {value}");
    };
    let by = match proposal.by {
        ProposedBy::Operation => "a call",
        ProposedBy::Task => "the task itself, with git push",
        ProposedBy::Merge => "you, with a merge",
    };
    line("task", &format!("{} · asked by {by}", proposal.task_number));
    line("from", &one_line(&push.repository.to_string(), 120));
    for url in &push.urls {
        let to = format!("{} {}", push.remote, paint(PLACE, one_line(url, 120)));
        line("to", &to);
    }
    line("branch", &paint(PLACE, one_line(&push.branch, 120)));
    line("commit", &push.commit);
    line("changes", &push.summary.text);
    if let Some(hook) = &push.hook {
        line(
            "hook",
            &format!("{} runs before", one_line(&hook.to_string(), 120)),
        );
    }
    let shown = push.commits.len().min(COMMITS_SHOWN);
    let skipped = push.commits.len() - shown;
    for (index, commit) in push.commits.iter().skip(skipped).enumerate() {
        let name = if index == 0 { "commits" } else { "" };
        let subject = one_line(&commit.subject, 90);
        line(
            name,
            &format!("{} {subject}", paint(PLACE, short(&commit.oid))),
        );
    }
    let more = push.commits_left_out + skipped as u64;
    if more > 0 {
        line("", &paint(FAINT, format_args!("and {more} older")));
    }
    if push.commits.is_empty() {
        line("commits", "none that the remote is not known to have");
    }
    for caution in &push.cautions {
        line("caution", &paint(CAUTION, one_line(caution, 160)));
    }
    if let Some(answer) = &held.answer {
        let reason = answer.reason.as_deref().unwrap_or_default();
        let said = one_line(reason, 200);
        line("answer", &format!("by the {} {said}", answer.by.as_str()));
    }
    if let Some(sent) = &held.sent {
        line("sent", how(sent.sent_as));
        for row in harmless(&sent.said).lines() {
            line("", &paint(FAINT, row));
        }
    }
    if let Some(problem) = &held.problem {
        line("problem", &one_line(&problem.message, 300));
    }
    text
}

const fn how(sent_as: SentAs) -> &'static str {
    match sent_as {
        SentAs::New => "as a new branch",
        SentAs::Forward => "the branch went forward",
        SentAs::Same => "the remote had it already",
    }
}

/// Renders what became of an answer.
pub(crate) fn answered(answer: &OutboxAnswer) -> String {
    let mut text = String::new();
    let mut waits = 0;
    for one in &answer.answers {
        let held = &one.held;
        let how = held
            .sent
            .as_ref()
            .map_or_else(String::new, |sent| format!(" ({})", how(sent.sent_as)));
        let _ = writeln!(
            text,
            "{}: {}{how}",
            state(held.state),
            one_line(&held.proposal.summary, 120)
        );
        if let Some(sent) = &held.sent {
            for row in harmless(&sent.said).lines() {
                let _ = writeln!(text, "  {}", paint(FAINT, row));
            }
        }
        waits += usize::from(held.state.waits());
    }
    if waits > 0 {
        let _ = writeln!(text, "{} still held", count(waits, "proposal"));
        text.push_str(&next(&["cofferdam outbox".to_owned()]));
    }
    text
}

/// Renders one in a line, for a review.
pub(crate) fn in_review(held: &Held) -> String {
    let Effect::Push { push } = &held.proposal.effect;
    let mut text = format!(
        "{} {}, {}",
        state(held.state),
        one_line(&held.proposal.summary, 90),
        count(
            usize::try_from(push.commits_left_out)
                .unwrap_or(usize::MAX)
                .saturating_add(push.commits.len()),
            "commit"
        ),
    );
    for url in &push.urls {
        let _ = write!(text, "\n            {}", paint(FAINT, one_line(url, 110)));
    }
    for caution in &push.cautions {
        let _ = write!(
            text,
            "\n            {}",
            paint(CAUTION, one_line(caution, 110))
        );
    }
    text
}
