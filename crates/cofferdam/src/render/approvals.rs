//! Questions that wait for an answer, and what became of them.

use std::fmt::Write as _;

use cofferdam_core::approval::{Approval, ApprovalAnswer, ApprovalAsk, RememberedWhat};
use cofferdam_core::operation::{ApprovalDecided, ApprovalPage, RememberedLine, RememberedPage};

use super::table::Table;
use super::{STRONG, one_line, paint};

/// Renders a list.
pub(crate) fn list(page: &ApprovalPage) -> String {
    if page.approvals.is_empty() {
        return "nothing waits for an answer\n".to_owned();
    }
    let mut table = Table::new(&["ID", "KIND", "STATE", "QUESTION"]);
    for one in &page.approvals {
        table.row([
            paint(STRONG, &one.ask.approval_id),
            one.ask.kind.as_str().to_owned(),
            one.state.as_str().to_owned(),
            one_line(&one.ask.summary, 60),
        ]);
    }
    let mut text = table.render();
    if page.left_out > 0 {
        let _ = writeln!(text, "and {} older ones", page.left_out);
    }
    text
}

/// Renders one with all that is needed to answer.
pub(crate) fn approval(approval: &Approval) -> String {
    let mut text = question(&approval.ask);
    let _ = writeln!(text, "state    {}", approval.state.as_str());
    for one in &approval.answers {
        let reason = one.reason.as_deref().unwrap_or_default();
        let said = one_line(reason, 200);
        let _ = writeln!(
            text,
            "answer   {} by the {} {said}",
            one.answer.as_str(),
            one.by.as_str()
        );
    }
    if approval.state == cofferdam_core::approval::ApprovalState::Pending {
        let id = &approval.ask.approval_id;
        if let Some(what) = &approval.ask.remember {
            let _ = writeln!(text, "{}", saved(what));
        }
        let _ = writeln!(text, "\ncofferdam approvals approve {id}, or deny");
    }
    text
}

/// Renders the question itself. What comes from inside is shown without what a terminal obeys.
pub(crate) fn question(ask: &ApprovalAsk) -> String {
    let mut text = String::new();
    let preview = &ask.preview;
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<8} {value}");
    };
    line("id", ask.approval_id.to_string());
    line("asks", one_line(&ask.summary, 400));
    line("why", one_line(&ask.why, 400));
    if let Some(task) = &ask.binding.task {
        line("task", task.to_string());
    }
    if let Some(goal) = &preview.goal {
        line("goal", one_line(goal, 400));
    }
    if let Some(command) = &preview.command {
        for (number, row) in command.lines().enumerate() {
            line(
                if number == 0 { "command" } else { "" },
                one_line(row, usize::MAX),
            );
        }
    }
    if let Some(cwd) = &preview.cwd {
        line("in", cwd.to_string());
    }
    for variable in &preview.env {
        line("with", one_line(variable, 200));
    }
    if let Some(network) = &preview.network {
        line("network", network.as_str().to_owned());
    }
    for path in &preview.reads {
        line("reads", path.to_string());
    }
    for path in &preview.writes {
        line("writes", path.to_string());
    }
    for path in &preview.reads {
        line("reads", path.to_string());
    }
    for host in &preview.hosts {
        line("host", one_line(host, 200));
    }
    if let Some(bytes) = preview.bytes {
        line("bytes", bytes.to_string());
    }
    for row in &preview.diff {
        let sign = row.sign.mark();
        let number = row.new.or(row.old).unwrap_or_default();
        line("", format!("{number:>5} {sign}{}", plain(&row.text)));
    }
    if preview.diff_cut {
        line("", "… the change is longer than what is shown".to_owned());
    }
    for row in preview.plan.as_deref().unwrap_or_default().lines() {
        line("plan", plain(row));
    }
    for row in preview
        .output
        .as_deref()
        .unwrap_or_default()
        .lines()
        .rev()
        .take(5)
    {
        line("said", one_line(row, 200));
    }
    text
}

/// Tells what would be saved of an answer that is to hold for longer.
pub(crate) fn saved(what: &RememberedWhat) -> String {
    let line = what.line(ApprovalAnswer::Approve);
    format!("to remember: {}", one_line(&line, 400))
}

/// Renders what is remembered.
pub(crate) fn remembered(page: &RememberedPage) -> String {
    if page.remembered.is_empty() {
        return "no answer is remembered\n".to_owned();
    }
    let mut table = Table::new(&["ID", "UNTIL", "IN", "LINE"]);
    for one in &page.remembered {
        let until = one.remembered.expires;
        let day = if until == jiff::Timestamp::MAX {
            "the end".to_owned()
        } else {
            until.strftime("%Y-%m-%d").to_string()
        };
        table.row([
            paint(STRONG, &one.remembered.rule_id),
            day,
            one_line(&one.remembered.repository.to_string(), 60),
            one_line(&one.line, 120),
        ]);
    }
    table.render()
}

/// Renders what was taken back.
pub(crate) fn forgotten(one: &RememberedLine) -> String {
    format!(
        "from now on it is asked again: {}\n",
        one_line(&one.line, 400)
    )
}

/// Renders what became of an answer.
pub(crate) fn decided(decided: &ApprovalDecided) -> String {
    let approval = &decided.approval;
    let id = &approval.ask.approval_id;
    let state = approval.state.as_str();
    if decided.counted {
        format!("{id} is {state}\n")
    } else {
        format!("{id} was {state} already; what was said first stands\n")
    }
}

fn plain(text: &str) -> String {
    let clean = |sign: char| {
        if sign.is_control() && sign != '\t' {
            ' '
        } else {
            sign
        }
    };
    text.chars().map(clean).collect()
}
