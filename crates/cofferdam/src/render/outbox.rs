//! What is held and would leave the machine.

use std::fmt::Write as _;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::operation::{OutboxAnswer, OutboxPage, Proposed};
use cofferdam_core::outbox::{
    Effect, Held, HeldCommit, HeldState, ProgramInput, ProposedBy, PublishEffect,
    PullRequestEffect, PushEffect, SentAs, WriteOutsideEffect,
};

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
        HeldState::Failed | HeldState::Unknown => BAD,
    };
    paint(style, state.as_str())
}

/// Renders a list.
pub(crate) fn list(page: &OutboxPage) -> String {
    let mut text = String::new();
    for one in &page.pending {
        let _ = writeln!(
            text,
            "task {} still runs and wants to {}; it is held when the task has ended",
            one.task_number,
            one_line(&one.summary, 120)
        );
    }
    if page.held.is_empty() {
        return text + "nothing is held\n";
    }
    let mut table = Table::new(&["ID", "TASK", "STATE", "WHAT"]);
    for one in &page.held {
        table.row([
            paint(STRONG, &one.proposal.proposal_id),
            number(one),
            state(one.state),
            one_line(&one.proposal.summary, 90),
        ]);
    }
    text.push_str(&table.render());
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

/// Gives the number of its task; a dash where it came from a checkout.
fn number(held: &Held) -> String {
    let number = held.proposal.task_number;
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
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
pub(crate) fn proposed(proposed: &Proposed) -> String {
    let mut text = String::new();
    if !proposed.is_new {
        let _ = writeln!(text, "it was proposed before");
    }
    if let Some(before) = &proposed.before {
        text.push_str(&body(before));
    }
    text.push_str(&body(&proposed.held));
    text.push_str(&next(&proposed.next));
    text
}

/// Rows with a name before them.
struct Rows(String);

impl Rows {
    fn line(&mut self, name: &str, value: &str) {
        let label = paint(FAINT, format_args!("{name:<9}"));
        let _ = writeln!(self.0, "  {label} {value}");
    }

    fn commits(&mut self, commits: &[HeldCommit], left_out: u64) {
        let shown = commits.len().min(COMMITS_SHOWN);
        let skipped = commits.len() - shown;
        for (index, commit) in commits.iter().skip(skipped).enumerate() {
            let name = if index == 0 { "commits" } else { "" };
            let subject = one_line(&commit.subject, 90);
            self.line(
                name,
                &format!("{} {subject}", paint(PLACE, short(&commit.oid))),
            );
        }
        let more = left_out + skipped as u64;
        if more > 0 {
            self.line("", &paint(FAINT, format_args!("and {more} older")));
        }
    }

    fn text(&mut self, name: &str, text: &str) {
        for (index, row) in harmless(text).lines().enumerate() {
            self.line(if index == 0 { name } else { "" }, row);
        }
    }

    fn path(&mut self, name: &str, path: &BytePath) {
        self.line(name, &one_line(&path.to_string(), 200));
    }

    fn to(&mut self, remote: &str, urls: &[String]) {
        for url in urls {
            let to = format!("{remote} {}", paint(PLACE, one_line(url, 120)));
            self.line("to", &to);
        }
    }

    fn effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Push { push } => self.push(push),
            Effect::PullRequest { pull_request } => self.pull_request(pull_request),
            Effect::Publish { publish } => self.publish(publish),
            Effect::WriteOutside { write_outside } => self.write(write_outside),
        }
    }

    fn push(&mut self, push: &PushEffect) {
        self.path("from", &push.repository);
        self.to(&push.remote, &push.urls);
        self.line("branch", &paint(PLACE, one_line(&push.branch, 120)));
        self.line("commit", &push.commit);
        self.line("changes", &push.summary.text);
        if let Some(hook) = &push.hook {
            let hook = one_line(&hook.to_string(), 120);
            self.line("hook", &format!("{hook} runs before"));
        }
        self.commits(&push.commits, push.commits_left_out);
        if push.commits.is_empty() {
            self.line("commits", "none that the remote is not known to have");
        }
    }

    fn pull_request(&mut self, request: &PullRequestEffect) {
        self.path("from", &request.repository);
        self.to(&request.remote, &request.urls);
        self.line("branch", &paint(PLACE, one_line(&request.branch, 120)));
        self.line("commit", &request.commit);
        self.line("into", &paint(PLACE, one_line(&request.base, 120)));
        self.line("changes", &request.summary.text);
        self.line("title", &one_line(&request.title, 320));
        self.text("body", &request.body);
        self.text("runs", &request.line());
        match request.input {
            ProgramInput::Nothing => {}
            ProgramInput::Body => self.line("", "with the body at its standard input"),
            ProgramInput::Json => self.line("", "with all of this as JSON at its standard input"),
        }
    }

    fn publish(&mut self, publish: &PublishEffect) {
        self.path("from", &publish.repository);
        self.line("branch", &paint(PLACE, one_line(&publish.branch, 120)));
        self.line("commit", &publish.commit);
        self.line("changes", &publish.summary.text);
        self.commits(&publish.commits, 0);
        self.text("runs", &publish.line());
        self.path("program", &publish.program);
        if !publish.directory.is_empty() {
            self.path("folder", &publish.directory);
        }
    }

    fn write(&mut self, file: &WriteOutsideEffect) {
        self.path("from", &file.workspace);
        self.line("file", &paint(PLACE, one_line(&file.path.to_string(), 200)));
        match &file.before {
            Some(before) => self.line(
                "before",
                &format!("{} bytes, {}", before.bytes, before.digest),
            ),
            None => self.line("before", "it is not there"),
        }
        self.line("after", &format!("{} bytes, {}", file.bytes, file.digest));
        for row in &file.diff {
            let number = row.new.or(row.old).unwrap_or_default();
            let text = harmless(&row.text);
            self.line("", &format!("{number:>5} {}{text}", row.sign.mark()));
        }
        if file.diff_cut {
            self.line("", "… the change is longer than what is shown");
        }
    }
}

fn body(held: &Held) -> String {
    let proposal = &held.proposal;
    let mut rows = Rows(format!(
        "{} {}: {}\n",
        paint(STRONG, &proposal.proposal_id),
        state(held.state),
        one_line(&proposal.summary, 160)
    ));
    let by = match proposal.by {
        ProposedBy::Operation => "a call",
        ProposedBy::Task => match proposal.effect {
            Effect::Push { .. } => "the task itself, with git push",
            _ => "the task itself",
        },
        ProposedBy::Merge => "you, with a merge",
    };
    match proposal.task_number {
        Some(number) => rows.line("task", &format!("{number} · asked by {by}")),
        None => rows.line("asked by", by),
    }
    rows.effect(&proposal.effect);
    for caution in proposal.effect.cautions() {
        rows.line("caution", &paint(CAUTION, one_line(caution, 200)));
    }
    if let Some(answer) = &held.answer {
        let reason = answer.reason.as_deref().unwrap_or_default();
        let said = one_line(reason, 200);
        rows.line("answer", &format!("by the {} {said}", answer.by.as_str()));
    }
    if let Some(sent) = &held.sent {
        rows.line("sent", how(sent.sent_as));
        for row in harmless(&sent.said).lines() {
            rows.line("", &paint(FAINT, row));
        }
    }
    if let Some(problem) = &held.problem {
        rows.line("problem", &one_line(&problem.message, 300));
    }
    rows.0
}

const fn how(sent_as: SentAs) -> &'static str {
    match sent_as {
        SentAs::New => "as a new branch",
        SentAs::Forward => "the branch went forward",
        SentAs::Same => "it was there already",
        SentAs::Opened => "it is open",
        SentAs::Published => "the command ended well",
        SentAs::Written => "the file holds it",
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
    let effect = &held.proposal.effect;
    let mut text = format!(
        "{} {}",
        state(held.state),
        one_line(&held.proposal.summary, 110)
    );
    if let Effect::Push { push } = effect {
        let more = usize::try_from(push.commits_left_out).unwrap_or(usize::MAX);
        let _ = write!(
            text,
            ", {}",
            count(more.saturating_add(push.commits.len()), "commit")
        );
    }
    let urls = match effect {
        Effect::Push { push } => push.urls.as_slice(),
        Effect::PullRequest { pull_request } => pull_request.urls.as_slice(),
        Effect::Publish { .. } | Effect::WriteOutside { .. } => &[],
    };
    for url in urls {
        let _ = write!(text, "\n            {}", paint(FAINT, one_line(url, 110)));
    }
    for caution in effect.cautions() {
        let _ = write!(
            text,
            "\n            {}",
            paint(CAUTION, one_line(caution, 160))
        );
    }
    text
}
