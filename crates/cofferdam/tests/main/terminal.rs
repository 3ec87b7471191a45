//! A terminal around the program, as a person has one.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::scene::{LIMIT, Scene, has_walls, wait};

/// The outer side of a terminal.
pub(crate) struct Terminal {
    /// Whether it answers what full-screen programs ask it, as a real one does.
    pub(crate) answers: bool,
    master: std::fs::File,
    slave: OwnedFd,
    words: mpsc::Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    pub(crate) fn new(rows: u16, columns: u16) -> Self {
        // A command that held the outer side of its own terminal would never see it close.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let slave = rustix::fs::open(
            name.as_c_str(),
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .expect("the other side");
        let mut terminal = Self {
            answers: false,
            master: master.into(),
            slave,
            words: mpsc::channel().1,
            seen: String::new(),
        };
        terminal.size(rows, columns);
        let mut reader = terminal.master.try_clone().expect("another descriptor");
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = reader.read(&mut buffer) {
                if count == 0 || sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        terminal.words = receiver;
        terminal
    }

    pub(crate) fn size(&self, rows: u16, columns: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.master, size).expect("a size");
    }

    /// Starts the binary under `setsid --ctty`, as the session leader's own child.
    pub(crate) fn start(&self, scene: &Scene, arguments: &[&str]) -> Child {
        let mut all = vec!["--ctty", "--wait", env!("CARGO_BIN_EXE_cofferdam")];
        all.extend(arguments);
        let mut command = scene.program("setsid".as_ref(), &all);
        let side = || Stdio::from(self.slave.try_clone().expect("another descriptor"));
        command
            .env("TERM", "xterm")
            .stdin(side())
            .stdout(side())
            .stderr(side());
        command.spawn().expect("setsid starts")
    }

    /// Starts an interactive shell whose prompt is `prompt> `, with more of an environment. It leaves
    /// the terminal as it is while it waits.
    pub(crate) fn shell(&self, scene: &Scene, more: &dyn Fn(&mut Command)) -> Child {
        let shell = ["--ctty", "--wait", "bash", "--norc", "--noediting", "-i"];
        let mut command = scene.program("setsid".as_ref(), &shell);
        let side = || Stdio::from(self.slave.try_clone().expect("another descriptor"));
        command
            .env("TERM", "dumb")
            .env("PS1", "prompt> ")
            .stdin(side())
            .stdout(side())
            .stderr(side());
        more(&mut command);
        command.spawn().expect("setsid starts")
    }

    /// Waits until something was written, and gives what came before it.
    #[track_caller]
    pub(crate) fn expect(&mut self, word: &str) -> String {
        assert!(
            self.appears(word, LIMIT),
            "{word:?} was never written: {:?}",
            self.seen
        );
        let at = self.seen.find(word).expect("just seen");
        let before = self.seen[..at].to_owned();
        self.seen.drain(..at + word.len());
        before
    }

    /// Waits some time for something to be written; it stays to be expected.
    pub(crate) fn appears(&mut self, word: &str, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while !self.seen.contains(word) {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.words.recv_timeout(left) else {
                return false;
            };
            self.take(&bytes);
        }
        true
    }

    /// Waits until anything more is written.
    #[track_caller]
    pub(crate) fn expect_something(&mut self) {
        self.forget();
        let bytes = self.words.recv_timeout(LIMIT).expect("something");
        self.take(&bytes);
    }

    /// Forgets what was written so far.
    pub(crate) fn forget(&mut self) {
        while let Ok(bytes) = self.words.try_recv() {
            self.take(&bytes);
        }
        self.seen.clear();
    }

    fn take(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        if self.answers {
            for (question, answer) in [
                ("\x1b[6n", "\x1b[1;1R"),
                ("\x1b[c", "\x1b[?62;c"),
                ("\x1b]10;?", "\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
                ("\x1b]11;?", "\x1b]11;rgb:0000/0000/0000\x1b\\"),
            ] {
                if text.contains(question) {
                    self.press(answer.as_bytes());
                }
            }
        }
        self.seen.push_str(&text);
    }

    #[track_caller]
    pub(crate) fn wait_until_canonical(&self) {
        let end = Instant::now() + LIMIT;
        while !self.is_canonical() {
            assert!(Instant::now() < end, "the terminal was not given back");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.master.write_all(keys).expect("it takes keys");
    }

    /// Tells everything that can be set of the terminal.
    pub(crate) fn modes(&self) -> String {
        format!("{:?}", tcgetattr(self.slave.as_fd()).expect("its modes"))
    }

    pub(crate) fn is_canonical(&self) -> bool {
        tcgetattr(self.slave.as_fd()).is_ok_and(|modes| {
            modes
                .local_modes
                .contains(LocalModes::ICANON | LocalModes::ECHO)
        })
    }
}

/// Gives the only child of a process.
#[track_caller]
pub(crate) fn child_of(process: u32) -> i32 {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = std::fs::read_to_string(path).expect("a process");
    text.trim().parse().expect("one child")
}

/// Kills a process, which learns nothing of it.
pub(crate) fn kill(process: i32) {
    let process = rustix::process::Pid::from_raw(process).expect("a process");
    rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("killed");
}

#[test]
fn fc_73_the_size_is_right_at_the_start_and_after_a_change() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let mut terminal = Terminal::new(33, 101);
    let script =
        "stty size; trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done";
    let mut child = terminal.start(&scene, &["run", "--", "bash", "-c", script]);
    terminal.expect("33 101");
    terminal.expect("ready");
    terminal.size(44, 122);
    terminal.expect("44 122");
    assert_eq!(wait(&mut child).code(), Some(0));
    assert!(terminal.is_canonical(), "the terminal was not given back");
}

#[test]
fn fc_73_ctrl_c_ends_what_runs_and_the_terminal_comes_back() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let mut terminal = Terminal::new(24, 80);
    let mut child = terminal.start(
        &scene,
        &["run", "--", "sh", "-c", "echo ready; exec sleep 300"],
    );
    terminal.expect("ready");
    assert!(!terminal.is_canonical(), "the terminal is not raw");
    terminal.press(b"\x03");
    assert_eq!(wait(&mut child).code(), Some(130));
    assert!(terminal.is_canonical(), "the terminal was not given back");
}

#[test]
fn the_command_has_a_terminal_of_its_own() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let mut terminal = Terminal::new(24, 80);
    let script =
        "test -t 0 && test -t 1 && test -t 2 && echo all three; read -r line; echo got $line";
    let mut child = terminal.start(&scene, &["run", "--", "sh", "-c", script]);
    terminal.expect("all three");
    terminal.press(b"word\r");
    terminal.expect("got word");
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn without_a_terminal_it_gets_pipes() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let mut terminal = Terminal::new(24, 80);
    let script = "test -t 1 || echo a pipe";
    let mut child = terminal.start(&scene, &["run", "--no-tty", "--", "sh", "-c", script]);
    terminal.expect("a pipe");
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn ctrl_z_and_fg_work_as_for_any_job() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let mut terminal = Terminal::new(24, 80);
    let mut shell = terminal.shell(&scene, &|_| ());
    terminal.expect("prompt> ");
    let line = format!(
        "{} run -- sh -c 'echo re''ady; read -r line; echo got $line'\n",
        env!("CARGO_BIN_EXE_cofferdam")
    );
    terminal.press(line.as_bytes());
    terminal.expect("ready");
    terminal.press(b"\x1a");
    terminal.expect("Stopped");
    terminal.expect("prompt> ");
    terminal.press(b"fg\n");
    terminal.expect("run -- sh");
    terminal.press(b"word\r");
    terminal.expect("got word");
    terminal.expect("prompt> ");
    terminal.press(b"exit\n");
    assert_eq!(wait(&mut shell).code(), Some(0));
}

#[test]
fn the_terminal_comes_back_whatever_ends_the_command() {
    if !has_walls() {
        return;
    }
    for (script, code) in [("kill -KILL $$", 137), ("stty raw -echo; exit 3", 3)] {
        let scene = Scene::new();
        let mut terminal = Terminal::new(24, 80);
        let script = format!("echo ready; {script}");
        let mut child = terminal.start(&scene, &["run", "--", "sh", "-c", &script]);
        terminal.expect("ready");
        assert_eq!(wait(&mut child).code(), Some(code));
        assert!(terminal.is_canonical(), "the terminal was not given back");
    }
}

#[test]
fn a_refusal_leaves_the_terminal_as_it_was() {
    let scene = Scene::new();
    let mut terminal = Terminal::new(24, 80);
    let refused = ["run", "--provider", "direct", "--net", "none", "--", "true"];
    let mut child = terminal.start(&scene, &refused);
    terminal.expect("error[unenforceable]");
    assert_eq!(wait(&mut child).code(), Some(125));
    assert!(terminal.is_canonical(), "the terminal was not given back");
}

/// What a full-screen program begins with, and what undoes it.
const FULL_SCREEN: &str = "printf '\\033[?1049h\\033[?25lready'; exec sleep 300";
const UNDONE: &str = "\x1b[?1049l\x1b[?25h\x1b[0m";

#[test]
fn after_sigkill_the_terminal_is_as_it_was() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let mut terminal = Terminal::new(24, 80);
    let program = env!("CARGO_BIN_EXE_cofferdam");
    // A shell that mends nothing by itself.
    let script = format!("{program} run -- sh -c \"$1\"; echo after=$?; read -r line; echo $line");
    let words = ["--ctty", "--wait", "sh", "-c", &script, "sh", FULL_SCREEN];
    let mut command = scene.program("setsid".as_ref(), &words);
    let side = || Stdio::from(terminal.slave.try_clone().expect("another descriptor"));
    command.stdin(side()).stdout(side()).stderr(side());
    let mut shell = command.spawn().expect("setsid starts");
    terminal.expect("ready");
    assert!(!terminal.is_canonical(), "the terminal is not raw");
    kill(child_of(shell.id()));
    assert!(terminal.appears("after=137", LIMIT));
    terminal.expect(UNDONE);
    terminal.wait_until_canonical();
    terminal.press(b"word\n");
    terminal.expect("word");
    assert_eq!(wait(&mut shell).code(), Some(0));
}

#[test]
fn a_command_that_is_ended_leaves_no_full_screen() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let mut terminal = Terminal::new(24, 80);
    let arguments = ["run", "--timeout", "1", "--", "sh", "-c", FULL_SCREEN];
    let mut child = terminal.start(&scene, &arguments);
    terminal.expect(UNDONE);
    assert_eq!(wait(&mut child).code(), Some(124));
    assert!(terminal.is_canonical(), "the terminal was not given back");
    // What one that ends by itself leaves is its own affair.
    let script = "printf '\\033[?25l'";
    let mut child = terminal.start(&scene, &["run", "--", "sh", "-c", script]);
    assert_eq!(wait(&mut child).code(), Some(0));
    assert!(!terminal.appears("\x1b[?25h", Duration::from_millis(100)));
}
