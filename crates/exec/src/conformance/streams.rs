//! Standard streams and terminals.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cofferdam_core::event::{EventFilter, event_type};
use cofferdam_core::limits::DRAIN_MILLISECONDS;
use cofferdam_core::outcome::StreamEncoding;
use cofferdam_core::spec::StreamPlan;
use cofferdam_journal::Query;
use rustix::pipe::{PipeFlags, pipe_with};

use super::{Check, Need, Scene, check, hold};
use crate::{CommandIo, Control, OutputSink, Stream, TerminalSize};

pub(super) const CHECKS: &[Check] = &[
    check("output is collected", Need::Contract, output),
    check("the streams are told apart", Need::Processes, two_streams),
    check(
        "standard input is empty unless given",
        Need::Processes,
        empty_input,
    ),
    check(
        "given input arrives, then its end",
        Need::Processes,
        given_input,
    ),
    check(
        "fc_75 bytes that are no text are kept",
        Need::Processes,
        fc_75_bytes,
    ),
    check(
        "ten million bytes arrive, the tail is shown",
        Need::Processes,
        much_output,
    ),
    check(
        "c8 what is cut off is readable by offset",
        Need::Processes,
        whole_by_offset,
    ),
    check("a sink gets every byte", Need::Processes, sink_gets_all),
    check(
        "a sink that takes its time gets every byte, too",
        Need::Processes,
        slow_sink_gets_all,
    ),
    check(
        "a closed sink does not hang the command",
        Need::Processes,
        closed_sink,
    ),
    check(
        "no descriptor of the plane is inherited",
        Need::Processes,
        no_descriptors,
    ),
    check(
        "a terminal has its size and belongs to the command",
        Need::Processes,
        terminal,
    ),
];

#[derive(Default)]
struct Gather(Vec<u8>);

impl OutputSink for Gather {
    fn write(&mut self, _stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Longer at each write than what is left in a pipe is waited for after the end.
struct Slow(Gather);

impl OutputSink for Slow {
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
        std::thread::sleep(Duration::from_millis(DRAIN_MILLISECONDS + 50));
        self.0.write(stream, bytes)
    }
}

fn output(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.run(&["echo", "hello"]);
    let seen = (
        &*outcome.stdout,
        &*outcome.output,
        outcome.stdout_full.bytes,
        outcome.truncated,
    );
    hold(seen == ("hello\n", "hello\n", 6, false), &outcome)
}

fn two_streams(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.sh("echo out; echo err >&2");
    hold(
        (&*outcome.stdout, &*outcome.stderr) == ("out\n", "err\n"),
        &outcome,
    )
}

fn empty_input(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.sh("cat; echo end");
    hold(outcome.stdout == "end\n", &outcome)
}

fn given_input(scene: &Scene<'_>) -> Result<(), String> {
    let mut command = scene.command(&["wc", "-c"]);
    command.streams = StreamPlan::PipesWithInput;
    let input = vec![b'x'; 300_000];
    let io = CommandIo::Capture { input: Some(input) };
    let outcome = scene.run_with(command, io, Control::new());
    hold(outcome.stdout.trim() == "300000", &outcome)
}

fn fc_75_bytes(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.sh(r"printf 'a\377b'");
    let digest = outcome.stdout_full.digest.clone();
    let digest = digest.ok_or_else(|| format!("no reference to the whole: {outcome:?}"))?;
    let kept = scene
        .candidate
        .plane
        .journal()
        .content(&cofferdam_core::spec::Digest(digest), 0, 10)
        .map_err(|error| error.to_string())?;
    let seen = (&*outcome.stdout, outcome.stdout_encoding, kept.as_deref());
    hold(
        seen == (
            "a\u{fffd}b",
            StreamEncoding::Utf8Replaced,
            Some(&b"a\xffb"[..]),
        ),
        &seen,
    )
}

fn much_output(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.sh("head -c 10000000 /dev/zero | tr '\\0' x; echo end");
    let seen = (
        outcome.stdout_full.bytes,
        outcome.truncated,
        outcome.stdout.ends_with("xend\n"),
        outcome.stdout_full.dropped,
        outcome.stdout.len() <= cofferdam_core::limits::OUTPUT_CHARACTERS,
    );
    hold(seen == (10_000_004, true, true, 0, true), &seen)
}

fn whole_by_offset(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.sh("printf start; head -c 3000000 /dev/zero | tr '\\0' x; printf end");
    let reference = &outcome.stdout_full;
    let digest = reference
        .digest
        .clone()
        .ok_or_else(|| format!("no reference: {reference:?}"))?;
    let digest = cofferdam_core::spec::Digest(digest);
    let journal = scene.candidate.plane.journal();
    let part = |offset, bytes| {
        journal
            .content(&digest, offset, bytes)
            .map_err(|error| error.to_string())
    };
    let seen = (
        outcome.truncated,
        part(0, 6)?,
        part(3_000_005, 3)?,
        reference.bytes,
    );
    hold(
        seen == (
            true,
            Some(b"startx".to_vec()),
            Some(b"end".to_vec()),
            3_000_008,
        ),
        &seen,
    )
}

fn sink_gets_all(scene: &Scene<'_>) -> Result<(), String> {
    let mut sink = Gather::default();
    let io = CommandIo::Stream {
        input: None,
        sink: &mut sink,
    };
    let command = scene.command(&["sh", "-c", "head -c 3000000 /dev/zero"]);
    let outcome = scene.run_with(command, io, Control::new());
    hold(
        (sink.0.len(), outcome.success) == (3_000_000, true),
        &(sink.0.len(), outcome.status),
    )
}

fn slow_sink_gets_all(scene: &Scene<'_>) -> Result<(), String> {
    let mut sink = Slow(Gather::default());
    let io = CommandIo::Stream {
        input: None,
        sink: &mut sink,
    };
    let command = scene.command(&["sh", "-c", "head -c 2000000 /dev/zero"]);
    let outcome = scene.run_with(command, io, Control::new());
    hold(
        (sink.0.0.len(), outcome.stdout_full.bytes, outcome.success)
            == (2_000_000, 2_000_000, true),
        &(sink.0.0.len(), outcome.stdout_full.bytes, outcome.status),
    )
}

struct Closed;

impl OutputSink for Closed {
    fn write(&mut self, _stream: Stream, _bytes: &[u8]) -> std::io::Result<()> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }
}

fn closed_sink(scene: &Scene<'_>) -> Result<(), String> {
    let mut sink = Closed;
    let io = CommandIo::Stream {
        input: None,
        sink: &mut sink,
    };
    let outcome = scene.run_with(scene.command(&["yes"]), io, Control::new());
    hold(
        outcome.signal.as_deref() == Some("SIGPIPE"),
        &outcome.status,
    )?;
    // Written first, then shown: whoever cannot be shown anything loses no event (c109).
    let query = Query::of(EventFilter::default())
        .backward()
        .limit(4)
        .resolved();
    let journal = scene.candidate.plane.journal();
    let page = journal.read(&query).map_err(|error| error.to_string())?;
    let told = page.events.iter().any(|event| {
        event.kind == event_type::EXEC_ENDED
            && event
                .data
                .get("command_id")
                .and_then(serde_json::Value::as_str)
                == Some(outcome.command_id.as_str())
    });
    hold(told, &"the journal does not hold the end")
}

fn no_descriptors(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.sh("ls /proc/self/fd | tr '\\n' ' '");
    // The fourth is the directory that ls itself reads.
    hold(outcome.stdout == "0 1 2 3 ", &outcome)
}

fn terminal(scene: &Scene<'_>) -> Result<(), String> {
    let (input, mut keys): (OwnedFd, std::fs::File) = {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| error.to_string())?;
        (reader, writer.into())
    };
    keys.write_all(b"typed\n")
        .map_err(|error| error.to_string())?;
    let mut sink = Gather::default();
    let size = TerminalSize {
        rows: 33,
        columns: 77,
    };
    let io = CommandIo::Terminal {
        input,
        size,
        sink: &mut sink,
    };
    let mut command = scene.command(&[
        "sh",
        "-c",
        "stty size; read x; echo \"got $x\"; test -t 1 && echo tty",
    ]);
    command.streams = StreamPlan::Terminal;
    let outcome = scene.run_with(command, io, Control::new());
    let text = String::from_utf8_lossy(&sink.0).into_owned();
    let good = ["33 77", "got typed", "tty"]
        .iter()
        .all(|wanted| text.contains(wanted));
    hold(good && outcome.success, &(text, outcome))
}
