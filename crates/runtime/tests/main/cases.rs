//! Field cases of services that run commands for agents, and the oracle that holds for all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::error::ErrorCode;
use cofferdam_core::id::CommandId;
use cofferdam_core::operation::{
    CancelCommand, ListCommands, OpenSession, OutputForm, OutputStream, OutputView, ReadOutput,
    RunCommand, RunInSession, SessionMode,
};
use cofferdam_core::outcome::{LimitReason, Status};
use cofferdam_core::policy::{ByteSize, LimitDocument, ProviderChoice};
use cofferdam_exec::Control;
use cofferdam_journal::Query;
use cofferdam_runtime::{FrontDoor, PolicyRequest, Runtime, StartCommand};

use crate::background::{read, until, wait_for};
use crate::support::{Desk, has_walls, provider, run, skipped};

fn shared(desk: &Desk) -> Arc<Runtime> {
    Arc::new(desk.runtime())
}

fn start_in(runtime: &Arc<Runtime>, policy: PolicyRequest, script: &str) -> CommandId {
    let request = StartCommand {
        policy,
        command: RunCommand::shell(script),
        front_door: FrontDoor::Protocol,
        wait_seconds: Some(0.0),
    };
    runtime.start_command(request).expect("started").command_id
}

fn start(runtime: &Arc<Runtime>, script: &str) -> CommandId {
    start_in(runtime, provider(ProviderChoice::Direct), script)
}

fn cancel(runtime: &Runtime, id: &CommandId) {
    let asked = CancelCommand {
        command_id: Some(id.clone()),
        force: true,
        ..CancelCommand::default()
    };
    assert!(runtime.cancel_command(&asked).expect("reached").ended);
}

/// Counts the processes of this machine whose command line holds a word; zombies have none.
fn alive(word: &str) -> usize {
    std::fs::read_dir("/proc")
        .expect("readable")
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| line.windows(word.len()).any(|part| part == word.as_bytes()))
        .count()
}

/// A duration that nobody else sleeps.
fn mark(number: u32) -> String {
    format!("400.{}{number:03}", std::process::id())
}

#[test]
fn b6_a_background_command_has_no_limit_but_one_that_was_set_and_says_so() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let go = |timeout| {
        let request = StartCommand {
            policy: provider(ProviderChoice::Direct),
            command: RunCommand {
                timeout,
                ..RunCommand::shell("sleep 300")
            },
            front_door: FrontDoor::Protocol,
            wait_seconds: Some(0.0),
        };
        runtime.start_command(request).expect("started")
    };
    let free = go(None);
    assert_eq!(
        (free.timeout_ms, free.timeout_clamped),
        (None, false),
        "{free:?}"
    );
    let view = runtime.command(&free.command_id).expect("known");
    assert_eq!(view.command.timeout_ms, None, "{view:?}");
    let bound = go(Some(0.2));
    assert_eq!(bound.timeout_ms, Some(200));
    let ended = wait_for(&runtime, &bound.command_id, false);
    assert_eq!(ended.command.status, Status::Timeout);
    let reasons = ended.result.expect("its result").reasons;
    assert_eq!(reasons, [LimitReason::TimeLimit]);
    // In the foreground the same request has one, which is told as well.
    let foreground = run(
        &runtime,
        provider(ProviderChoice::Direct),
        RunCommand::shell("true"),
    );
    assert!(foreground.success);
    let view = runtime.command(&free.command_id).expect("known");
    assert_eq!(view.command.status, Status::Running);
    cancel(&runtime, &free.command_id);
}

#[test]
fn b10_others_are_answered_while_a_bomb_and_a_hog_meet_their_bounds() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let bounded = || {
        let mut policy = provider(ProviderChoice::Direct);
        policy.owner.limits = Some(LimitDocument {
            memory: Some(ByteSize(96 << 20)),
            tasks: Some(24),
            ..LimitDocument::default()
        });
        policy
    };
    let first = run(&runtime, bounded(), RunCommand::shell("true"));
    let grouped = first.limits.iter().all(|one| {
        let by = one.by.map(|by| format!("{by:?}"));
        by.is_some_and(|by| by.starts_with("Cgroup"))
    });
    if !first.success || !grouped {
        return skipped(&format!("no control group of our own here: {first:?}"));
    }
    let bomb = "f() { sleep 0.2 & f; }; f";
    let bomb = start_in(&runtime, bounded(), bomb);
    let hog = "sleep 0.3; a=0123456789abcdef; while :; do a=$a$a; done";
    let hog = start_in(&runtime, bounded(), hog);
    let mut times = Vec::new();
    while times.len() < 200 || runtime.command(&hog).expect("known").result.is_none() {
        let began = Instant::now();
        runtime
            .list_commands(&ListCommands::default())
            .expect("a list");
        runtime
            .journal()
            .read(&Query::default().resolved())
            .expect("a page");
        times.push(began.elapsed());
        std::thread::sleep(Duration::from_millis(2));
        assert!(times.len() < 10_000, "the hog does not end");
    }
    times.sort();
    let late = times[times.len() * 99 / 100];
    assert!(late < Duration::from_millis(100), "{late:?}");
    let reasons = |id| {
        wait_for(&runtime, id, false)
            .result
            .expect("its result")
            .reasons
    };
    assert_eq!(reasons(&hog), [LimitReason::Oom]);
    until("the bomb meets its bound", || {
        runtime
            .command(&bomb)
            .is_ok_and(|view| view.result.is_some())
            || {
                cancel(&runtime, &bomb);
                true
            }
    });
    assert_eq!(reasons(&bomb), [LimitReason::PidsLimit]);
    let after = run(&runtime, bounded(), RunCommand::shell("echo alive"));
    assert_eq!(after.stdout, "alive\n");
}

/// A server that speaks over its standard streams, as those of MCP do, behind a wrapper as `npx` is
/// one, with a child of its own.
fn server(sleep: &str) -> String {
    format!("sh -c 'echo ready; sh -c \"sleep {sleep}; :\" & sleep {sleep}; :' & wait")
}

#[test]
fn b12_fc_59_a_server_on_standard_streams_has_the_walls_of_its_run_and_ends_with_it() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let mut choices = vec![ProviderChoice::Direct];
    if has_walls() {
        choices.push(ProviderChoice::Bwrap);
    }
    for (number, choice) in choices.into_iter().enumerate() {
        let sleep = mark(number as u32);
        let outside = desk.home.join("planted");
        let script = format!(
            "echo x >{} 2>/dev/null; {}",
            outside.display(),
            server(&sleep)
        );
        let id = start_in(&runtime, provider(choice), &script);
        let seen = read(&runtime, &id, OutputView::Stdout, 0);
        assert_eq!(seen.content, "ready\n", "{choice:?}");
        until("the whole server runs", || alive(&sleep) >= 3);
        assert_eq!(
            outside.exists(),
            choice == ProviderChoice::Direct,
            "{choice:?}"
        );
        let _ = std::fs::remove_file(&outside);
        cancel(&runtime, &id);
        assert_eq!(alive(&sleep), 0, "{choice:?}: it outlives its run");
    }
}

#[test]
fn b13_ten_changes_of_the_policy_leave_one_server() {
    if !has_walls() {
        return;
    }
    let desk = Desk::new();
    let runtime = desk.runtime();
    let open = OpenSession {
        name: Some("work".to_owned()),
        ..OpenSession::default()
    };
    let policy = PolicyRequest {
        workspace: Some(desk.repo.clone()),
        ..provider(ProviderChoice::Bwrap)
    };
    runtime
        .open_session(policy, &open, FrontDoor::Protocol)
        .expect("opened");
    let file = desk.home.join(".config/cofferdam/policy.toml");
    std::fs::create_dir_all(file.parent().expect("a directory")).expect("made");
    let sleep = mark(50);
    for round in 0..10 {
        let access = if round % 2 == 0 { "write" } else { "read" };
        std::fs::write(&file, format!("schema = 1\nworkspace = \"{access}\"\n")).expect("written");
        let request = RunInSession {
            session: "work".to_owned(),
            command: Some(format!("sh -c 'sleep {sleep} & wait' & sleep 0.05")),
            ..RunInSession::default()
        };
        let end = runtime
            .run_in_session(request, &Control::new())
            .expect("a result");
        assert_eq!(end.session_reset, round > 0, "{round}: {end:?}");
        // The wrapper and what it waits for; nothing of the walls before.
        until("exactly one tree", || alive(&sleep) == 2);
    }
    runtime.close_session("work").expect("open");
    until("none", || alive(&sleep) == 0);
}

#[test]
fn c1_no_code_is_told_before_the_end_and_the_one_that_is_told_comes_from_it() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let id = start(
        &runtime,
        "echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 7",
    );
    let first = read(&runtime, &id, OutputView::Stdout, 0);
    assert_eq!((&*first.content, first.eof), ("one\n", false));
    // Whoever leaves in the middle, or looks again and again, is told that it runs.
    for _ in 0..20 {
        let asked = ReadOutput {
            command_id: id.clone(),
            stream: OutputView::Stdout,
            offset: first.next_offset,
            max_bytes: None,
            form: OutputForm::Text,
            wait_seconds: Some(0.01),
        };
        let page = runtime
            .read_output(&asked, &Control::new())
            .expect("readable");
        assert!(!page.eof && page.content.is_empty(), "{page:?}");
        let view = runtime.command(&id).expect("known");
        assert_eq!(view.command.status, Status::Running);
        assert!(view.result.is_none());
    }
    desk.write("go", "");
    let mut offset = first.next_offset;
    let mut text = String::new();
    loop {
        let page = read(&runtime, &id, OutputView::Stdout, offset);
        offset = page.next_offset;
        text.push_str(&page.content);
        if page.eof {
            break;
        }
    }
    assert_eq!(text, "two\n");
    let result = wait_for(&runtime, &id, false).result.expect("its result");
    assert_eq!(
        (result.status, result.return_code),
        (Status::Failed, Some(7))
    );
}

#[test]
fn c3_whoever_comes_back_later_finds_the_rest_by_id_and_is_told_what_is_gone() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let id = start(
        &runtime,
        "seq 1000; until [ -e go ]; do sleep 0.02; done; seq 1001 60000",
    );
    let first = read(&runtime, &id, OutputView::Stdout, 0);
    assert!(first.content.starts_with("1\n2\n") && !first.eof);
    desk.write("go", "");
    wait_for(&runtime, &id, false);
    drop(runtime);
    // Another process of the same data directory, much later.
    let runtime = desk.runtime();
    let mut all = first.content;
    let mut offset = first.next_offset;
    loop {
        let page = read(&runtime, &id, OutputView::Stdout, offset);
        assert_eq!(page.offset, offset);
        offset = page.next_offset;
        all.push_str(&page.content);
        if page.eof {
            break;
        }
    }
    let whole: String = (1..=60_000).map(|number| format!("{number}\n")).collect();
    assert!(all == whole, "{} of {} bytes", all.len(), whole.len());
    runtime.expire_output(Duration::ZERO).expect("expired");
    let asked = ReadOutput {
        command_id: id.clone(),
        stream: OutputView::Stdout,
        offset: 0,
        max_bytes: None,
        form: OutputForm::Text,
        wait_seconds: None,
    };
    let problem = runtime
        .read_output(&asked, &Control::new())
        .expect_err("gone");
    assert_eq!(problem.code, ErrorCode::OutputExpired, "{problem:?}");
    let view = runtime.command(&id).expect("still known");
    assert_eq!(view.command.status, Status::Completed);
}

#[test]
fn c4_a_stream_is_told_by_its_name_whatever_the_bytes_say() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let script = "printf '\\001\\001\\001out'; sleep 0.1; printf '\\002\\002\\002err' >&2; \
                  sleep 0.1; printf 'event: stderr\\ndata: {\"stream\":\"stderr\"}\\n\\n'; sleep 0.1; \
                  printf '{\"type\":\"stdout\"}' >&2";
    let id = start(&runtime, script);
    wait_for(&runtime, &id, false);
    let out = read(&runtime, &id, OutputView::Stdout, 0).content;
    let err = read(&runtime, &id, OutputView::Stderr, 0).content;
    assert_eq!(
        out,
        "\u{1}\u{1}\u{1}outevent: stderr\ndata: {\"stream\":\"stderr\"}\n\n"
    );
    assert_eq!(err, "\u{2}\u{2}\u{2}err{\"type\":\"stdout\"}");
    let both = read(&runtime, &id, OutputView::Combined, 0);
    let streams: Vec<_> = both.chunks.iter().map(|one| one.stream).collect();
    let (out, err) = (OutputStream::Stdout, OutputStream::Stderr);
    assert_eq!(streams, [out, err, out, err], "{both:?}");
}

#[test]
fn c12_only_the_time_of_the_command_counts() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let id = start(&runtime, "sleep 0.1");
    // The caller stalls before it asks.
    std::thread::sleep(Duration::from_millis(1500));
    let result = wait_for(&runtime, &id, false).result.expect("its result");
    assert_eq!(result.status, Status::Completed);
    assert!((100..1400).contains(&result.elapsed_ms), "{result:?}");
}

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .trim()
                .split(' ')
                .next()?
                .parse()
                .ok()
        })
        .expect("a number")
}

#[test]
fn c11_fifty_megabytes_that_nobody_reads_cost_nothing_and_hold_nobody_up() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let id = start(
        &runtime,
        "echo begun; until [ -e go ]; do sleep 0.02; done; head -c 50000000 /dev/zero; echo end",
    );
    // One that reads once and then never again, and one that asks from time to time.
    let mut idle = read(&runtime, &id, OutputView::Stdout, 0);
    until("it has begun", || {
        idle = read(&runtime, &id, OutputView::Stdout, 0);
        idle.content == "begun\n"
    });
    let other = start(&runtime, "for i in 1 2 3 4 5; do echo $i; sleep 0.05; done");
    let before = resident();
    desk.write("go", "");
    let mut most = 0;
    let mut offset = 0;
    let mut text = String::new();
    loop {
        let page = read(&runtime, &other, OutputView::Stdout, offset);
        offset = page.next_offset;
        text.push_str(&page.content);
        most = most.max(resident());
        if page.eof {
            break;
        }
    }
    assert_eq!(text, "1\n2\n3\n4\n5\n");
    until("the flood is over", || {
        most = most.max(resident());
        runtime.command(&id).expect("known").result.is_some()
    });
    let grown = most.saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB more");
    let result = wait_for(&runtime, &id, false).result.expect("its result");
    assert_eq!(result.stdout_full.bytes, 50_000_010);
    // The first one goes on where it was.
    let next = read(&runtime, &id, OutputView::Stdout, idle.next_offset);
    assert_eq!(next.offset, idle.next_offset);
    assert!(!next.content.is_empty() && next.content.bytes().all(|byte| byte == 0));
}

#[test]
fn g_after_every_kind_of_end_nothing_is_left_and_the_next_command_works() {
    let desk = Desk::new();
    let mut choices = vec![ProviderChoice::Direct, ProviderChoice::Landlock];
    if has_walls() {
        choices.push(ProviderChoice::Bwrap);
    }
    for (number, choice) in choices.into_iter().enumerate() {
        let runtime = shared(&desk);
        let policy = || PolicyRequest {
            workspace: Some(desk.repo.clone()),
            ..provider(choice)
        };
        let sleep = mark(100 + number as u32);
        let look = || {
            let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
            (held().len(), threads)
        };
        let timed = |script: &str, timeout: f64| RunCommand {
            timeout: Some(timeout),
            ..RunCommand::shell(script)
        };
        let tree = format!("sleep {sleep} & setsid sleep {sleep} & (sleep {sleep} &); ");
        let all = [
            (RunCommand::shell("true"), Status::Completed),
            (RunCommand::shell("exit 3"), Status::Failed),
            (RunCommand::shell("kill -9 $$"), Status::Failed),
            (RunCommand::shell(tree.clone()), Status::Completed),
            (timed(&format!("{tree} wait"), 0.3), Status::Timeout),
            (
                timed(
                    &format!("trap '' TERM; {tree} while :; do sleep 0.1; done"),
                    0.3,
                ),
                Status::Timeout,
            ),
            (
                RunCommand::shell("head -c 3000000 /dev/zero; printf '\\377'"),
                Status::Completed,
            ),
            (
                RunCommand::shell("echo $API_TOKEN s3cret-value"),
                Status::Completed,
            ),
            (RunCommand::argv(["/no/such/program"]), Status::Error),
            (
                RunCommand::argv(["sh", "-c", "cat; read x </dev/tty"]),
                Status::Failed,
            ),
        ];
        let first = run(&runtime, policy(), RunCommand::shell("true"));
        if !first.success {
            skipped(&format!("{choice:?}: {first:?}"));
            continue;
        }
        let id = start_in(&runtime, policy(), "true");
        wait_for(&runtime, &id, false);
        until("the first threads have ended", || {
            std::thread::sleep(Duration::from_millis(50));
            let seen = look();
            std::thread::sleep(Duration::from_millis(200));
            look() == seen
        });
        let (before, memory) = (look(), resident());
        for (command, wanted) in &all {
            let outcome = run(&runtime, policy(), command.clone());
            assert_eq!(
                outcome.status, *wanted,
                "{choice:?} {command:?}: {outcome:?}"
            );
            assert_eq!(alive(&sleep), 0, "{choice:?} {command:?}: a survivor");
            let next = run(&runtime, policy(), RunCommand::shell("echo next"));
            assert_eq!(next.stdout, "next\n", "{choice:?} after {command:?}");
        }
        let id = start_in(&runtime, policy(), &format!("{tree} wait"));
        until("it runs", || alive(&sleep) >= 3);
        cancel(&runtime, &id);
        assert_eq!(
            alive(&sleep),
            0,
            "{choice:?}: a survivor of a cancelled one"
        );
        let end = Instant::now() + Duration::from_secs(20);
        while look() != before {
            let held = held();
            assert!(Instant::now() < end, "{choice:?}: {before:?}, {held:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let grown = resident().saturating_sub(memory);
        assert!(grown < 16 * 1024, "{choice:?}: {grown} KiB more");
        // Nothing of it lies in the workspace, or among what lives only as long as a command.
        let listed = std::fs::read_dir(&desk.repo).expect("readable").count();
        assert_eq!(listed, 0, "{choice:?}");
        for place in ["output", "scratch"] {
            let left = std::fs::read_dir(desk.data.join(place)).map_or(0, Iterator::count);
            assert_eq!(left, 0, "{choice:?}: {place}");
        }
    }
    // One beginning and one end each, and the secret in none of the sinks.
    let runtime = desk.runtime();
    let mut begun = std::collections::BTreeMap::new();
    let mut from = None;
    loop {
        let mut query = Query::default().limit(1000);
        if let Some(after) = from {
            query = query.after(after);
        }
        let page = runtime.journal().read(&query.resolved()).expect("readable");
        for event in &page.events {
            let text = serde_json::to_string(&event.data).expect("text");
            assert!(!text.contains("s3cret-value"), "{text}");
            let id = event.data.get("command_id").and_then(|id| id.as_str());
            let step = match event.kind.as_str() {
                "exec.intended" => (1, 0),
                "exec.ended" => (0, 1),
                _ => continue,
            };
            let counted: &mut (u32, u32) = begun.entry(id.expect("an id").to_owned()).or_default();
            *counted = (counted.0 + step.0, counted.1 + step.1);
        }
        from = page.events.last().map(|event| event.pos);
        if !page.more {
            break;
        }
    }
    assert!(begun.len() > 20);
    // One that never could be started has an end only.
    let odd: Vec<_> = begun.iter().filter(|(_, seen)| **seen != (1, 1)).collect();
    assert!(odd.is_empty(), "{odd:?}");
    for entry in walk(&desk.data) {
        let bytes = std::fs::read(&entry).unwrap_or_default();
        let holds = bytes.windows(12).any(|part| part == b"s3cret-value");
        assert!(!holds, "{}", entry.display());
    }
}

/// Names what is open in this process, without the files of the journal: it keeps as many readers as
/// looked at it at once, up to a bound of its own.
fn held() -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd")
        .expect("readable")
        .flatten();
    entries
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|path| !path.to_string_lossy().contains("/journal.db"))
        .collect()
}

fn walk(top: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(top).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path()),
            Ok(kind) if kind.is_file() => vec![entry.path()],
            _ => Vec::new(),
        })
        .collect()
}

#[test]
fn fc_83_denied_patterns_cost_a_warm_command_nothing_whatever_the_size_of_the_tree() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    for directory in 0..50 {
        let place = desk.repo.join(format!("d{directory}"));
        std::fs::create_dir(&place).expect("made");
        for file in 0..1_000 {
            let kind = match file {
                0..30 => file % 15,
                30..100 => 99,
                _ => 100,
            };
            std::fs::File::create(place.join(format!("f{file}.k{kind}"))).expect("made");
        }
    }
    let runtime = desk.runtime();
    let open = |name: &str, patterns: &[usize]| {
        let mut policy = PolicyRequest {
            workspace: Some(desk.repo.clone()),
            ..provider(ProviderChoice::Bwrap)
        };
        let patterns = patterns
            .iter()
            .map(|number| format!("*.k{number}").as_str().into());
        policy.owner.deny_read = Some(patterns.collect());
        let asked = OpenSession {
            name: Some(name.to_owned()),
            mode: SessionMode::Plain,
            ..OpenSession::default()
        };
        runtime.open_session(policy, &asked, FrontDoor::Protocol)
    };
    let run = |session: &str, words: &[&str]| {
        let asked = RunInSession {
            session: session.to_owned(),
            argv: Some(words.iter().map(|word| (*word).to_owned()).collect()),
            ..RunInSession::default()
        };
        let began = Instant::now();
        let end = runtime
            .run_in_session(asked, &Control::new())
            .expect("a result");
        (end.result, began.elapsed())
    };
    let all: Vec<usize> = (0..15).collect();
    open("free", &[]).expect("opened");
    open("denied", &all).expect("opened");
    for name in ["d0/f0.k0", "d49/f29.k14"] {
        assert!(run("free", &["cat", name]).0.success, "{name}");
        assert!(!run("denied", &["cat", name]).0.success, "{name}");
    }
    assert!(run("denied", &["cat", "d0/f60.k99"]).0.success);
    // More than can be held one by one is refused for what it is.
    let refused = open("more", &[99]).expect_err("refused");
    assert_eq!(refused.code, ErrorCode::Unenforceable, "{refused:?}");
    assert_eq!(refused.field.as_deref(), Some("deny_read"));
    let median = |session: &str| {
        let mut all: Vec<Duration> = (0..41).map(|_| run(session, &["true"]).1).collect();
        all.sort();
        all[20]
    };
    let (free, denied) = (median("free"), median("denied"));
    assert!(
        denied < free + Duration::from_millis(20),
        "{denied:?} {free:?}"
    );
}
