//! Terminals that stay: by name, with rights that are fixed, told in the journal.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use cofferdam_core::error::ErrorCode;
use cofferdam_core::event::Event;
use cofferdam_core::operation::{
    InputStatus, TerminalChoice, TerminalInput, TerminalKey, TerminalName, TerminalOpen,
    TerminalOutput, TerminalResize, TerminalSignal, TerminalSnapshot, TerminalState,
    TerminalTarget,
};
use cofferdam_core::policy::ProviderChoice;
use cofferdam_core::spec::Access;
use cofferdam_exec::Control;
use cofferdam_runtime::{FrontDoor, PolicyRequest, Runtime, TerminalRequest};

use crate::crash::die;
use crate::support::{Desk, events, has_walls, kinds, options, provider, rerun, told};

fn name(text: &str) -> TerminalName {
    TerminalName::parse(text).expect("a name")
}

fn choice(text: &str) -> TerminalChoice {
    TerminalChoice {
        name: Some(name(text)),
    }
}

fn request(policy: PolicyRequest, text: &str) -> TerminalRequest {
    TerminalRequest {
        policy,
        open: TerminalOpen::new(name(text)),
        front_door: FrontDoor::Protocol,
        control: Control::new(),
    }
}

fn open(runtime: &Runtime, text: &str) {
    let direct = provider(ProviderChoice::Direct);
    runtime
        .terminal_open(request(direct, text))
        .expect("opened");
}

fn line(runtime: &Runtime, text: &str) -> TerminalOutput {
    let began = Instant::now();
    let output = runtime
        .terminal_input(&TerminalInput::line(text, 30.0), &Control::new())
        .expect("typed");
    assert!(began.elapsed() < Duration::from_secs(15), "{output:?}");
    output
}

fn keys(runtime: &Runtime, words: &[&str]) -> TerminalOutput {
    let input = TerminalInput {
        text: None,
        keys: words
            .iter()
            .map(|word| TerminalKey::parse(word).expect("a key"))
            .collect(),
        ..TerminalInput::line("", 30.0)
    };
    runtime
        .terminal_input(&input, &Control::new())
        .expect("typed")
}

fn of_terminals(runtime: &Runtime) -> Vec<Event> {
    let mut all = events(runtime);
    all.retain(|event| event.area() == "terminal");
    all
}

#[test]
fn row_23_a_terminal_is_real_and_its_directory_stays() {
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    open(&runtime, "one");
    let tty = line(&runtime, "tty");
    assert_eq!(tty.status, InputStatus::Completed);
    assert!(tty.output.contains("/dev/pts/"), "{tty:?}");
    std::fs::create_dir(desk.repo.join("sub")).expect("made");
    line(&runtime, "cd sub; export KEPT=yes");
    let here = line(&runtime, "pwd; echo $KEPT");
    assert!(here.output.contains("repo/sub\nyes"), "{here:?}");
    open(&runtime, "two");
    assert_eq!(runtime.terminal_list().active, Some(name("one")));
    runtime.terminal_switch(&choice("two")).expect("there");
    assert!(!line(&runtime, "echo :$KEPT").output.contains(":yes"));
    let reset = runtime.terminal_reset(&choice("one")).expect("reset");
    assert_eq!(reset.total, 2);
    let closed = runtime
        .terminal_close(&TerminalChoice::default())
        .expect("closed");
    assert_eq!(closed.terminal.name, name("two"));
    assert_eq!(closed.active, Some(name("one")));
    let here = line(&runtime, "pwd");
    assert!(here.output.contains("/repo\n"), "{here:?}");
}

#[test]
fn row_24_limits_name_what_is_there() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    runtime.set_terminal_limit(2);
    let none = runtime
        .terminal_snapshot(&TerminalSnapshot::default())
        .unwrap_err();
    assert_eq!(none.code, ErrorCode::TerminalUnknown);
    open(&runtime, "one");
    let again = runtime
        .terminal_open(request(provider(ProviderChoice::Direct), "one"))
        .unwrap_err();
    assert_eq!(again.code, ErrorCode::TerminalExists);
    open(&runtime, "two");
    let third = runtime
        .terminal_open(request(provider(ProviderChoice::Direct), "three"))
        .unwrap_err();
    assert_eq!(third.code, ErrorCode::TerminalLimit);
    assert!(third.message.contains("one, two"), "{third:?}");
    let details = third.details.expect("what there is");
    assert_eq!(
        details["existing_terminals"],
        serde_json::json!(["one", "two"])
    );
    let unknown = runtime.terminal_close(&choice("four")).unwrap_err();
    assert!(unknown.message.contains("one, two"), "{unknown:?}");
    for wait in [0.0, -1.0, f64::NAN, 300.1] {
        let refused = runtime.terminal_input(&TerminalInput::line("true", wait), &Control::new());
        assert_eq!(refused.unwrap_err().code, ErrorCode::InvalidTimeout);
    }
    let mut outside = request(provider(ProviderChoice::Direct), "five");
    runtime.terminal_close(&choice("one")).expect("closed");
    outside.open.cwd = Some("../..".to_owned());
    let refused = runtime.terminal_open(outside).unwrap_err();
    assert_eq!(refused.code, ErrorCode::CwdOutside);
}

#[test]
fn row_25_completion_is_known_and_not_waited_for() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    open(&runtime, "one");
    let done = line(&runtime, "true");
    assert_eq!(done.status, InputStatus::Completed);
    assert!(done.elapsed_ms < 5_000, "{done:?}");
    let cat = line(&runtime, "cat");
    assert_eq!(cat.status, InputStatus::AwaitingInput);
    assert_eq!(cat.state, TerminalState::AwaitingLine);
    assert_eq!(cat.foreground.as_deref(), Some("cat"));
    keys(&runtime, &["ctrl-d"]);
    let read = line(&runtime, "read -s secret");
    assert_eq!(read.state, TerminalState::AwaitingHiddenLine, "{read:?}");
    let typed = line(&runtime, "hunter2hunter2");
    assert_eq!(typed.status, InputStatus::Completed);
    for _ in 0..2 {
        let input = TerminalInput::line("sleep 30", 0.2);
        let timeout = runtime
            .terminal_input(&input, &Control::new())
            .expect("typed");
        assert!(!timeout.success, "{timeout:?}");
    }
    let input = TerminalInput {
        text: None,
        ..TerminalInput::line("", 0.2)
    };
    let again = runtime
        .terminal_input(&input, &Control::new())
        .expect("waited");
    assert!(again.hint.is_some(), "{again:?}");
    keys(&runtime, &["ctrl-c"]);
    // What was typed ahead runs now, and is ended, too.
    keys(&runtime, &["ctrl-c"]);
    let told = serde_json::to_string(&of_terminals(&runtime)).expect("JSON");
    assert!(!told.contains("hunter2"), "hidden input is in the journal");
}

#[test]
fn row_26_signals_sizes_and_keys() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    open(&runtime, "one");
    let sleep = TerminalInput::line("sleep 600", 0.2);
    runtime
        .terminal_input(&sleep, &Control::new())
        .expect("typed");
    assert_eq!(keys(&runtime, &["ctrl-c"]).status, InputStatus::Completed);
    runtime
        .terminal_resize(&TerminalResize {
            name: None,
            rows: 40,
            columns: 123,
        })
        .expect("resized");
    assert!(line(&runtime, "stty size").output.contains("40 123"));
    runtime
        .terminal_input(&sleep, &Control::new())
        .expect("typed");
    runtime
        .terminal_signal(&TerminalSignal {
            name: None,
            signal: "term".to_owned(),
            target: TerminalTarget::Foreground,
        })
        .expect("sent");
    assert!(line(&runtime, "echo code $?").output.contains("code 143"));
    line(&runtime, "echo first");
    let input = TerminalInput {
        text: None,
        keys: ["up", "enter"]
            .map(|word| TerminalKey::parse(word).expect("a key"))
            .to_vec(),
        ..TerminalInput::line("", 30.0)
    };
    let again = runtime
        .terminal_input(&input, &Control::new())
        .expect("typed");
    assert!(again.output.contains("\nfirst"), "{again:?}");
}

#[test]
fn row_27_a_read_only_terminal_stays_one_and_a_policy_that_crosses_it_closes_it() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    for (text, choice) in [
        ("walls", ProviderChoice::Bwrap),
        ("rules", ProviderChoice::Landlock),
    ] {
        let mut wanted = request(provider(choice), text);
        wanted.open.write_access = Some(Access::Read);
        if let Err(problem) = runtime.terminal_open(wanted) {
            println!("skipped: {problem}");
            continue;
        }
        runtime.terminal_switch(&self::choice(text)).expect("there");
        let before = runtime.terminal_list().terminals.pop().expect("one");
        for _ in 0..2 {
            let refused = line(&runtime, "echo x > made; cat a.txt");
            let said = refused.output.contains("Read-only file system")
                || refused.output.contains("Permission denied");
            assert!(said && refused.output.contains("one"), "{refused:?}");
            assert!(!desk.repo.join("made").exists());
            runtime.terminal_reset(&self::choice(text)).expect("reset");
        }
        let after = runtime.terminal_list().terminals.pop().expect("one");
        assert_eq!(
            (before.spec_hash, before.write_access, before.cwd),
            (after.spec_hash, after.write_access, after.cwd)
        );
        assert_ne!(before.terminal_id, after.terminal_id);
    }
    let open = runtime.terminal_list().terminals;
    assert!(!open.is_empty());
    assert_eq!(runtime.close_crossed_terminals(), []);
    let policy = desk.home.join(".config/cofferdam");
    std::fs::create_dir_all(&policy).expect("made");
    std::fs::write(
        policy.join("policy.toml"),
        "schema = 1\ndeny_read = [\"b.txt\"]\n",
    )
    .expect("written");
    let closed = runtime.close_crossed_terminals();
    assert_eq!(closed.len(), open.len());
    assert_eq!(runtime.terminal_list().terminals, []);
    let told = of_terminals(&runtime);
    let reasons: Vec<_> = told
        .iter()
        .filter(|event| event.kind == "terminal.closed")
        .map(|event| event.data["reason"].clone())
        .collect();
    assert!(reasons.contains(&"policy_changed".into()), "{reasons:?}");
    assert!(reasons.contains(&"reset".into()), "{reasons:?}");
}

#[test]
fn row_28_everything_is_told_in_order_and_secrets_are_masked() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    open(&runtime, "one");
    let said = line(&runtime, "echo s3cret-value and more");
    assert!(!said.output.contains("s3cret"), "{said:?}");
    let screen = runtime
        .terminal_snapshot(&TerminalSnapshot {
            raw: true,
            colors: true,
            ..TerminalSnapshot::default()
        })
        .expect("shown");
    assert!(screen.text.contains("************ and more"), "{screen:?}");
    runtime.terminal_close(&choice("one")).expect("closed");
    let told = of_terminals(&runtime);
    let words = kinds(&told);
    let place = |word: &str| {
        words
            .iter()
            .position(|kind| *kind == word)
            .unwrap_or_else(|| panic!("{word} in {words:?}"))
    };
    assert!(place("terminal.started") < place("terminal.input"));
    assert!(place("terminal.input") < place("terminal.closed"));
    assert_eq!(words.last(), Some(&"terminal.closed"));
    assert!(words.contains(&"terminal.output"));
    let text = serde_json::to_string(&events(&runtime)).expect("JSON");
    assert!(!text.contains("s3cret"), "a secret is in the journal");
    // Every byte is accounted for, in order.
    let mut offset = 0;
    for event in told.iter().filter(|event| event.kind == "terminal.output") {
        assert_eq!(event.data["offset"], offset, "{event:?}");
        offset += event.data["bytes"].as_u64().expect("a number");
    }
    let last = told.last().expect("an end");
    assert_eq!(last.data["written"], offset);
}

#[test]
fn a_recording_can_be_played_and_has_no_secrets() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    open(&runtime, "one");
    line(&runtime, "printf 's3cret-value \\303\\251\\n'");
    let closed = runtime.terminal_close(&choice("one")).expect("closed");
    let path = closed.terminal.recording.expect("a recording");
    let mode = std::fs::metadata(path.as_path())
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(path.as_path()).expect("text");
    assert!(!text.contains("s3cret"));
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines[0]["version"], 2);
    let shown: String = lines[1..]
        .iter()
        .filter(|event| event[1] == "o")
        .filter_map(|event| event[2].as_str())
        .collect();
    assert!(shown.contains("************ é"), "{shown}");
    assert!(lines.iter().any(|event| event[1] == "m"));
}

#[test]
fn many_terminals_leave_nothing_behind() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    runtime.set_terminal_limit(16);
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let mut seen = Vec::new();
    for round in 0..10 {
        let names: Vec<String> = (0..10).map(|number| format!("t{number}")).collect();
        for text in &names {
            open(&runtime, text);
        }
        line(&runtime, "sleep 100 & true");
        for text in &names {
            runtime.terminal_close(&choice(text)).expect("closed");
        }
        if round % 4 == 1 {
            seen.push((descriptors(), threads()));
        }
    }
    let (first, last) = (seen[0], seen[seen.len() - 1]);
    assert!(last.0 <= first.0 + 2 && last.1 <= first.1 + 2, "{seen:?}");
}

/// Runs in a process of its own, see [`rerun`], and dies with a terminal open.
#[test]
#[ignore = "the child of another test"]
fn dies_with_a_terminal() {
    let Some(desk) = told("COFFERDAM_TEST_DESK") else {
        return;
    };
    let desk = std::path::PathBuf::from(desk);
    let options = options(&desk.join("home"), &desk.join("data"), &desk.join("repo"));
    let runtime = Runtime::open(options).expect("opened");
    open(&runtime, "one");
    line(&runtime, "sleep 70 & echo $! > pids; echo $$ >> pids");
    let input = TerminalInput::line("sleep 71", 0.3);
    runtime
        .terminal_input(&input, &Control::new())
        .expect("typed");
    die();
}

#[test]
fn a_killed_plane_leaves_no_terminal_and_the_next_start_says_so() {
    let desk = Desk::new();
    rerun(&desk, "terminals::dies_with_a_terminal", "");
    let pids = desk.read("pids");
    let until = Instant::now() + Duration::from_secs(20);
    let lives = |pid: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|words| words.contains("sleep") || words.contains("-i"))
    };
    while pids.lines().any(lives) {
        assert!(Instant::now() < until, "left behind: {pids}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let runtime = desk.runtime();
    let told = of_terminals(&runtime);
    let last = told.last().expect("an end");
    assert_eq!(last.kind, "terminal.closed", "{last:?}");
    assert_eq!(last.data["reason"], "interrupted");
}

#[test]
fn row_144_old_recordings_go_and_never_one_of_an_open_terminal() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    let record = |text: &str| {
        open(&runtime, text);
        line(&runtime, "echo recorded");
        let closed = runtime.terminal_close(&choice(text)).expect("closed");
        closed.terminal.recording.expect("a recording")
    };
    let (old, large) = (record("old"), record("large"));
    open(&runtime, "open");
    line(&runtime, "echo still here");
    let screen = runtime
        .terminal_snapshot(&TerminalSnapshot {
            name: Some(name("open")),
            ..TerminalSnapshot::default()
        })
        .expect("open");
    let living = screen.terminal.recording.expect("a recording");
    let month = Duration::from_hours(30 * 24);
    for path in [&old, &living] {
        let file = std::fs::File::options()
            .write(true)
            .open(path.as_path())
            .expect("there");
        let before = std::time::SystemTime::now() - month * 2;
        file.set_modified(before).expect("ours");
    }
    let room = u64::MAX;
    assert_eq!(runtime.expire_recordings(month, room), Ok(1));
    assert!(!old.as_path().exists() && large.as_path().exists());
    assert!(living.as_path().exists());
    // Nothing that is kept for its time, where there is no room for it.
    assert_eq!(runtime.expire_recordings(month, 10), Ok(1));
    assert!(!large.as_path().exists() && living.as_path().exists());
    assert_eq!(runtime.expire_recordings(month, 10), Ok(0));
    // Each has its receipt.
    let receipts: Vec<_> = events(&runtime)
        .into_iter()
        .filter(|event| event.kind == "terminal.expired")
        .map(|event| event.data["removed"][0].clone())
        .collect();
    assert_eq!(receipts.len(), 2);
    let stem = |path: &cofferdam_core::bytes::BytePath| {
        let stem = path.as_path().file_stem().expect("a name");
        stem.to_string_lossy().into_owned()
    };
    assert_eq!(receipts[0]["terminal_id"], stem(&old));
    assert_eq!(receipts[0]["why"], "age");
    assert_eq!(receipts[1]["terminal_id"], stem(&large));
    assert_eq!(receipts[1]["why"], "room");
    assert!(
        receipts[1]["bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 10)
    );
}

#[test]
fn row_25_what_comes_back_and_nobody_reads_is_an_echo_loop() {
    let desk = Desk::new();
    let runtime = desk.runtime();
    open(&runtime, "one");
    let typed = |text: &str| {
        runtime
            .terminal_input(&TerminalInput::line(text, 0.5), &Control::new())
            .expect("typed")
    };
    // It reads nothing, and says nothing: all that is seen is what the terminal echoes.
    typed("sleep 300");
    let looped = typed("are you there?");
    assert_eq!(looped.status, InputStatus::EchoLoop, "{looped:?}");
    assert!(looped.hint.is_some(), "{looped:?}");
    // One that has read it and thinks is none.
    keys(&runtime, &["ctrl-c"]);
    line(&runtime, "");
    typed("read x; sleep 300");
    let thinks = typed("an answer");
    assert_eq!(thinks.status, InputStatus::Timeout, "{thinks:?}");
    // Whoever waits for a line has not looped, either.
    keys(&runtime, &["ctrl-c"]);
    let asks = typed("cat");
    assert_eq!(asks.status, InputStatus::AwaitingInput, "{asks:?}");
}
