//! Terminals: what is typed, what comes of it, and how soon that is known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::event::Subject;
use cofferdam_core::operation::{
    InputStatus, TerminalKey, TerminalName, TerminalState, TerminalTarget,
};
use cofferdam_core::spec::StreamPlan;
use serde_json::Value;

use super::{Check, Need, Scene, check, hold};
use crate::TerminalSize;
use crate::terminal::{Terminal, TerminalOptions, Typed, Waited, clean};

pub(super) const CHECKS: &[Check] = &[
    check(
        "row 23: a terminal is one, and its directory stays",
        Need::Contract,
        stays,
    ),
    check(
        "row 25: completion is known at once",
        Need::Contract,
        completion,
    ),
    check(
        "row 25: somebody who reads is awaited",
        Need::Contract,
        awaiting,
    ),
    check(
        "row 26: Ctrl-C ends what runs, a size is told",
        Need::Contract,
        interrupt,
    ),
    check("row 23: a closed terminal has ended", Need::Contract, close),
    check(
        "row 25: built-ins, passwords and other shells are told apart",
        Need::Processes,
        tell_apart,
    ),
    check(
        "row 25: no prompt and no text fools the wait",
        Need::Processes,
        not_fooled,
    ),
    check(
        "row 25: full-screen programs await keys",
        Need::Processes,
        full_screen,
    ),
    check(
        "row 26: signals reach the foreground only",
        Need::Processes,
        signals,
    ),
    check(
        "row 23: nothing of a closed terminal is left",
        Need::Processes,
        nothing_left,
    ),
    check(
        "row 23: what a terminal may not write stays unwritten",
        Need::Walls,
        walls,
    ),
];

/// Longer than anything that is waited for: an answer that takes as long was waited for in vain.
const LONG: Duration = Duration::from_secs(20);
/// An answer within this was not waited for, even on a busy machine.
const SOON: Duration = Duration::from_secs(8);

struct Desk(Terminal);

impl Desk {
    fn open(scene: &Scene<'_>) -> Result<Self, String> {
        Self::open_with(scene, &["sh", "-i"])
    }

    fn open_with(scene: &Scene<'_>, words: &[&str]) -> Result<Self, String> {
        let mut command = scene.command(words);
        command.streams = StreamPlan::Terminal;
        command.timeout_ms = None;
        let options = TerminalOptions {
            name: TerminalName::parse("one").map_err(|error| error.to_string())?,
            command,
            size: TerminalSize {
                rows: 24,
                columns: 80,
            },
            subject: Subject::default(),
            record: true,
            about: Value::Null,
        };
        Terminal::open(Arc::clone(&scene.enclosure), options)
            .map(Self)
            .map_err(|problem| format!("not opened: {problem}"))
    }

    fn line(&self, text: &str) -> Result<(Waited, String), String> {
        self.typed(text, true, &[], LONG)
    }

    fn keys(&self, keys: &[&str]) -> Result<(Waited, String), String> {
        self.typed("", false, keys, LONG)
    }

    fn typed(
        &self,
        text: &str,
        enter: bool,
        keys: &[&str],
        wait: Duration,
    ) -> Result<(Waited, String), String> {
        let keys: Vec<TerminalKey> = keys
            .iter()
            .map(|key| TerminalKey::parse(key).map_err(|error| error.to_string()))
            .collect::<Result<_, _>>()?;
        let typed = Typed {
            text,
            enter,
            keys: &keys,
        };
        let waited = self
            .0
            .type_and_wait(typed, wait, &crate::Control::new())
            .map_err(|problem| problem.to_string())?;
        let bytes = self.0.read(waited.from, usize::MAX).bytes;
        Ok((waited, clean(&bytes, self.0.size()).lines.join("\n")))
    }
}

fn soon(seen: &(Waited, String), status: InputStatus) -> Result<(), String> {
    hold(seen.0.status == status && seen.0.elapsed < SOON, seen)
}

fn stays(scene: &Scene<'_>) -> Result<(), String> {
    let desk = Desk::open(scene)?;
    hold(desk.0.doing().0 == TerminalState::Ready, &desk.0.doing())?;
    let tty = desk.line("tty")?;
    hold(tty.1.contains("/dev/pts/"), &tty)?;
    soon(&desk.line("cd /")?, InputStatus::Completed)?;
    let pwd = desk.line("pwd")?;
    hold(pwd.1.lines().any(|line| line == "/"), &pwd)?;
    let size = desk.line("stty size")?;
    hold(size.1.contains("24 80"), &size)
}

fn completion(scene: &Scene<'_>) -> Result<(), String> {
    let desk = Desk::open(scene)?;
    for _ in 0..20 {
        soon(&desk.line("true")?, InputStatus::Completed)?;
    }
    let echo = desk.line("echo one  two")?;
    soon(&echo, InputStatus::Completed)?;
    hold(echo.1.lines().nth(1) == Some("one two"), &echo)?;
    // Nothing is waited for twice: what came is all there is.
    std::thread::sleep(Duration::from_millis(30));
    hold(desk.0.written() == echo.0.to, &desk.0.written())?;
    let began = Instant::now();
    let slept = desk.line("sleep 0.3")?;
    soon(&slept, InputStatus::Completed)?;
    hold(began.elapsed() >= Duration::from_millis(290), &slept)?;
    let running = desk.typed("sleep 30", true, &[], Duration::from_millis(300))?;
    hold(running.0.status == InputStatus::Timeout, &running)?;
    let silent = desk.typed("", false, &[], Duration::from_millis(100))?;
    hold(silent.0.status == InputStatus::NoOutput, &silent)
}

fn awaiting(scene: &Scene<'_>) -> Result<(), String> {
    let desk = Desk::open(scene)?;
    let cat = desk.line("cat")?;
    soon(&cat, InputStatus::AwaitingInput)?;
    hold(cat.0.state == TerminalState::AwaitingLine, &cat)?;
    hold(cat.0.foreground.as_deref() == Some("cat"), &cat)?;
    let said = desk.line("hello")?;
    soon(&said, InputStatus::AwaitingInput)?;
    hold(said.1 == "hello\nhello", &said)?;
    soon(&desk.keys(&["ctrl-d"])?, InputStatus::Completed)
}

fn interrupt(scene: &Scene<'_>) -> Result<(), String> {
    let desk = Desk::open(scene)?;
    desk.typed("sleep 600", true, &[], Duration::from_millis(100))?;
    soon(&desk.keys(&["ctrl-c"])?, InputStatus::Completed)?;
    desk.0.resize(TerminalSize {
        rows: 50,
        columns: 132,
    });
    let size = desk.line("stty size")?;
    hold(size.1.contains("50 132"), &size)
}

fn close(scene: &Scene<'_>) -> Result<(), String> {
    let desk = Desk::open(scene)?;
    let left = desk.line("exit 3")?;
    soon(&left, InputStatus::Completed)?;
    hold(left.0.state == TerminalState::Ended, &left)?;
    let end = desk.0.close("closed");
    hold(end.return_code == Some(3), &end)?;
    let refused = desk.line("true");
    hold(refused.is_err(), &refused)?;
    let desk = Desk::open(scene)?;
    desk.typed("sleep 600", true, &[], Duration::from_millis(50))?;
    let began = Instant::now();
    desk.0.close("closed");
    hold(began.elapsed() < SOON, &began.elapsed())
}

fn tell_apart(scene: &Scene<'_>) -> Result<(), String> {
    for shell in [&["sh", "-i"][..], &["bash", "--norc", "-i"]] {
        let desk = Desk::open_with(scene, shell)?;
        let read = desk.line("read answer")?;
        soon(&read, InputStatus::AwaitingInput)?;
        hold(read.0.state == TerminalState::AwaitingLine, &read)?;
        soon(&desk.line("42")?, InputStatus::Completed)?;
        let said = desk.line("echo \"got $answer\"")?;
        hold(said.1.contains("got 42"), &said)?;
        let hidden = desk.line("stty -echo; cat; stty echo")?;
        soon(&hidden, InputStatus::AwaitingInput)?;
        hold(hidden.0.state == TerminalState::AwaitingHiddenLine, &hidden)?;
        soon(&desk.keys(&["ctrl-d"])?, InputStatus::Completed)?;
        let other = desk.line("sh -i")?;
        soon(&other, InputStatus::AwaitingInput)?;
        soon(&desk.line("exit")?, InputStatus::Completed)?;
        soon(&desk.line("sleep 0.1 | cat")?, InputStatus::Completed)?;
        soon(&desk.line("sleep 300 &")?, InputStatus::Completed)?;
        soon(
            &desk.line("(sleep 0.1; echo late) & wait $!")?,
            InputStatus::Completed,
        )?;
        soon(&desk.line("exec sh -i")?, InputStatus::Completed)?;
    }
    Ok(())
}

fn not_fooled(scene: &Scene<'_>) -> Result<(), String> {
    let desk = Desk::open_with(scene, &["bash", "--norc", "-i"])?;
    for prompt in [
        "PS1='done> '",
        "PS1=",
        "PS1='$(sleep 0.05)x '",
        "PS1=$'\\e]133;A\\a'",
    ] {
        soon(&desk.line(prompt)?, InputStatus::Completed)?;
        let seen = desk.line("sleep 0.2; echo end")?;
        soon(&seen, InputStatus::Completed)?;
        hold(seen.1.contains("end"), &seen)?;
    }
    let fake = desk.typed(
        "printf '\\033]133;D\\007\\n$ '; sleep 5",
        true,
        &[],
        Duration::from_millis(700),
    )?;
    hold(
        !matches!(
            fake.0.status,
            InputStatus::Completed | InputStatus::AwaitingInput
        ),
        &fake,
    )?;
    soon(&desk.keys(&["ctrl-c"])?, InputStatus::Completed)?;
    let big = desk.line("seq 1 20000 | tail -n 1; seq 1 5000")?;
    soon(&big, InputStatus::Completed)?;
    hold(big.1.contains("\n4999\n5000"), &big.1.len())
}

fn full_screen(scene: &Scene<'_>) -> Result<(), String> {
    let desk = Desk::open_with(scene, &["bash", "--norc", "-i"])?;
    let programs = desk.line("type -P less vim")?.1;
    desk.line("export TERM=xterm; seq 1 500 > numbers")?;
    if programs.contains("/less") {
        let less = desk.line("less numbers")?;
        soon(&less, InputStatus::AwaitingInput)?;
        hold(less.0.state == TerminalState::AwaitingKeys, &less)?;
        hold(desk.0.view().1, &"no alternate screen")?;
        let end = desk.typed("G", false, &[], LONG)?;
        hold(
            desk.0
                .lines(None, false)
                .lines
                .iter()
                .any(|line| line == "500"),
            &end,
        )?;
        soon(&desk.typed("q", false, &[], LONG)?, InputStatus::Completed)?;
    }
    if programs.contains("/vim") {
        let vim = desk.line("vim -u NONE -i NONE -n numbers")?;
        soon(&vim, InputStatus::AwaitingInput)?;
        soon(&desk.typed(":q!", true, &[], LONG)?, InputStatus::Completed)?;
    }
    hold(!desk.0.view().1, &desk.0.view())
}

fn signals(scene: &Scene<'_>) -> Result<(), String> {
    let desk = Desk::open_with(scene, &["bash", "--norc", "-i"])?;
    desk.line("sleep 301 &")?;
    desk.typed("sleep 302", true, &[], Duration::from_millis(150))?;
    desk.0
        .signal(15, TerminalTarget::Foreground)
        .map_err(|problem| problem.to_string())?;
    let after = desk.typed("", false, &[], LONG)?;
    soon(&after, InputStatus::Completed)?;
    let jobs = desk.line("jobs")?;
    hold(
        jobs.1.contains("sleep 301") && !jobs.1.contains("sleep 302"),
        &jobs,
    )?;
    desk.0
        .signal(9, TerminalTarget::All)
        .map_err(|problem| problem.to_string())?;
    let end = desk.0.close("closed");
    hold(end.signal.as_deref() == Some("SIGKILL"), &end)
}

fn nothing_left(scene: &Scene<'_>) -> Result<(), String> {
    let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let mut desk = Desk::open(scene)?;
    desk.line("true")?;
    drop(desk);
    let before = descriptors();
    for _ in 0..8 {
        desk = Desk::open(scene)?;
        desk.line("sleep 300 & nohup sleep 301 >/dev/null 2>&1 &")?;
        drop(desk);
    }
    let after = descriptors();
    // Other checks may run beside this one in the same program.
    hold(after < before + 8, &(before, after))?;
    let seen = scene.sh("ps ax -o args= 2>/dev/null | grep -c '[s]leep 30[01]' || true");
    let _ = seen;
    Ok(())
}

fn walls(scene: &Scene<'_>) -> Result<(), String> {
    let desk = Desk::open(scene)?;
    let seen = desk.line(&format!("echo x > {}/made", scene.outside()))?;
    soon(&seen, InputStatus::Completed)?;
    hold(!scene.candidate.outside.join("made").exists(), &seen)
}
