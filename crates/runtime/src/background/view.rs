//! Looking at commands, and waiting for them.

use std::time::{Duration, Instant};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{EventFilter, event_type};
use cofferdam_core::id::{CommandId, TaskId};
use cofferdam_core::limits;
use cofferdam_core::operation::{
    CommandList, CommandView, ListCommands, OutputView, StreamSummary, WaitCommand, wait_time,
};
use cofferdam_core::outcome::Status;
use cofferdam_exec::{Control, OutputReader};
use cofferdam_journal::Query;
use serde_json::Value;

use super::fold::{Folded, each};
use crate::runtime::Runtime;

/// Lines at each end of a summary.
const LINES: usize = 5;
/// Bytes up to which lines are counted.
const COUNTED_BYTES: u64 = 16 * 1024 * 1024;
/// Most bytes of a line in a summary.
const LINE_BYTES: usize = 500;
/// Bytes at an end in which its lines are looked for.
const END_BYTES: u64 = 16 * 1024;
/// How long a wait sleeps at most before it looks whether whoever waits has gone.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Runtime {
    /// Looks at a command of any process of this data directory.
    ///
    /// # Errors
    ///
    /// `command_unknown`, and when the journal cannot be read.
    pub fn command(&self, command: &CommandId) -> Result<CommandView, Problem> {
        self.view(self.known(command)?)
    }

    fn view(&self, folded: Folded) -> Result<CommandView, Problem> {
        let reader = self.reader(&folded);
        let mut command = folded.record;
        if let Some(written) = reader.last_written() {
            let written = jiff::Timestamp::try_from(written).ok();
            command.last_output_at = command.last_output_at.max(written);
        }
        Ok(CommandView {
            command,
            stdout: summary(&reader, OutputView::Stdout)?,
            stderr: summary(&reader, OutputView::Stderr)?,
            result: folded.outcome,
            wait_expired: false,
        })
    }

    /// Lists background commands, the newest first.
    ///
    /// # Errors
    ///
    /// `invalid_request` for a limit that is none, and when the journal cannot be read.
    pub fn list_commands(&self, request: &ListCommands) -> Result<CommandList, Problem> {
        let limit = limit(request.limit, 200)?;
        let mut commands = Vec::new();
        let mut query = Query::of(EventFilter {
            event_type: Some(event_type::EXEC_BACKGROUND.to_owned()),
            ..EventFilter::default()
        })
        .backward()
        .limit(limits::PAGE_EVENTS);
        loop {
            let page = self
                .journal()
                .read(&query)
                .map_err(|error| error.to_problem())?;
            let next = page.next();
            for event in page.events {
                let id = event.data.get("command_id").and_then(Value::as_str);
                let Some(id) = id.and_then(|id| CommandId::parse(id).ok()) else {
                    continue;
                };
                let Some(folded) = self.fold_of(&id, event.conversation)? else {
                    continue;
                };
                if request
                    .status
                    .is_some_and(|status| status != folded.record.status)
                {
                    continue;
                }
                if commands.len() == limit {
                    return Ok(CommandList {
                        commands,
                        more: true,
                    });
                }
                commands.push(folded.record);
            }
            match next {
                Some(pos) => query.after = Some(pos),
                None => {
                    return Ok(CommandList {
                        commands,
                        more: false,
                    });
                }
            }
        }
    }

    /// Lists the commands that a task has begun until now, in order.
    ///
    /// # Errors
    ///
    /// When the journal cannot be read.
    pub fn commands_of_task(&self, task: &TaskId) -> Result<Vec<CommandId>, Problem> {
        let filter = EventFilter {
            task: Some(task.clone()),
            event_type: Some(event_type::EXEC_INTENDED.to_owned()),
            ..EventFilter::default()
        };
        let mut commands = Vec::new();
        each(self.journal().as_ref(), filter, |event| {
            let id = event.data.get("command_id").and_then(Value::as_str);
            commands.extend(id.and_then(|id| CommandId::parse(id).ok()));
        })?;
        Ok(commands)
    }

    /// Waits for the end of a command, and no longer than the request's limit; `stop` ends the wait
    /// sooner. The command goes on either way.
    ///
    /// # Errors
    ///
    /// `command_unknown`, `invalid_request` for a limit that is none, and when the journal cannot be
    /// read or written.
    pub fn wait_command(
        &self,
        request: &WaitCommand,
        stop: &Control,
    ) -> Result<CommandView, Problem> {
        let (limit, _) = wait_time(
            "limit_seconds",
            request.limit_seconds,
            limits::COMMAND_WAIT_SECONDS as f64,
            limits::COMMAND_WAIT_CAP_SECONDS as f64,
        )?;
        let until = Instant::now() + limit;
        let claim = request.claim.then(|| self.expect(&request.command_id));
        if let Some(entry) = self.attendance.entry(&request.command_id) {
            while Instant::now() < until && !stop.is_cancelled() {
                let next = (Instant::now() + LOOK_AGAIN).min(until);
                if entry
                    .wait(Some(next), |state| state.outcome.is_some())
                    .outcome
                    .is_some()
                {
                    break;
                }
            }
        }
        let folded = loop {
            let head = self
                .journal()
                .head()
                .map_err(|error| error.to_problem())?
                .pos;
            let folded = self.known(&request.command_id)?;
            let left = until.saturating_duration_since(Instant::now());
            if folded.record.status != Status::Running || left.is_zero() || stop.is_cancelled() {
                break folded;
            }
            self.journal()
                .wait_beyond(head, left.min(LOOK_AGAIN))
                .map_err(|error| error.to_problem())?;
        };
        let mut folded = folded;
        let is_over = folded.record.status != Status::Running;
        if is_over && request.claim && folded.acknowledged.is_none() {
            self.acknowledge(&folded, "claimed")?;
            folded.record.claimed = true;
        }
        drop(claim);
        let mut view = self.view(folded)?;
        view.wait_expired = !is_over;
        Ok(view)
    }
}

/// Reads a limit of a list.
pub(super) fn limit(asked: Option<u64>, default: u64) -> Result<usize, Problem> {
    let limit = asked.unwrap_or(default);
    if (1..=1000).contains(&limit) {
        return Ok(limit as usize);
    }
    Err(Problem::new(
        ErrorCode::InvalidRequest,
        format!("limit is a number from 1 to 1000, it is {limit}"),
    )
    .with_field("limit"))
}

/// Makes a summary of a stream: a hundred lines become five and five.
fn summary(reader: &OutputReader, view: OutputView) -> Result<StreamSummary, Problem> {
    let look = |offset, bytes: u64| -> Result<(Vec<u8>, u64, u64), Problem> {
        match reader.pieces(view, offset, bytes as usize) {
            Ok(read) => {
                let bytes = read.pieces.into_iter().flat_map(|one| one.bytes).collect();
                Ok((bytes, read.kept, read.total))
            }
            // Its end stands in the result.
            Err(problem) if problem.code == ErrorCode::OutputExpired => Ok((Vec::new(), 0, 0)),
            Err(problem) => Err(problem),
        }
    };
    let (first, kept, total) = look(0, END_BYTES)?;
    let mut summary = StreamSummary {
        bytes: total,
        dropped: total - kept,
        ..StreamSummary::default()
    };
    if kept <= COUNTED_BYTES {
        let mut breaks = 0;
        let mut last = None;
        let mut offset = 0;
        while offset < kept {
            let (bytes, ..) = look(offset, 256 * 1024)?;
            if bytes.is_empty() {
                break;
            }
            breaks += bytes.split(|byte| *byte == b'\n').count() as u64 - 1;
            last = bytes.last().copied();
            offset += bytes.len() as u64;
        }
        summary.lines = Some(breaks + u64::from(last.is_some_and(|byte| byte != b'\n')));
    }
    let is_long = summary.lines.is_none_or(|lines| lines > 2 * LINES as u64);
    let wanted = if is_long { LINES } else { 2 * LINES };
    summary.head = lines(&first).take(wanted).map(shown).collect();
    if is_long {
        let from = kept.saturating_sub(END_BYTES);
        let (end, ..) = look(from, END_BYTES)?;
        let all: Vec<&[u8]> = lines(&end).collect();
        summary.tail = all[all.len().saturating_sub(LINES)..]
            .iter()
            .map(|line| shown(line))
            .collect();
        summary.omitted_lines = summary
            .lines
            .map(|lines| lines.saturating_sub((summary.head.len() + summary.tail.len()) as u64));
    }
    Ok(summary)
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

/// Shows a line, cut where it is very long.
fn shown(line: &[u8]) -> String {
    if line.len() <= LINE_BYTES {
        return String::from_utf8_lossy(line).into_owned();
    }
    let text = String::from_utf8_lossy(&line[..LINE_BYTES]);
    format!("{}…", text.trim_end_matches('\u{fffd}'))
}
