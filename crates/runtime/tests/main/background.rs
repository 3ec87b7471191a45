//! Commands that go on after the call that started them, over every provider.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use cofferdam_core::error::ErrorCode;
use cofferdam_core::id::CommandId;
use cofferdam_core::operation::{
    BackgroundStart, CancelCommand, CommandView, ListCommands, OutputForm, OutputPage,
    OutputStream, OutputView, PollCommands, ReadOutput, RunCommand, WaitCommand,
};
use cofferdam_core::outcome::Status;
use cofferdam_core::policy::{PolicyDocument, ProviderChoice};
use cofferdam_core::spec::ProviderKind;
use cofferdam_exec::{Control, Script, ScriptedCommand};
use cofferdam_runtime::{Follow, FrontDoor, PolicyRequest, Runtime, RuntimeOptions, StartCommand};

use crate::support::{Desk, events, has_walls, options, provider, rerun, run, told};

fn direct() -> PolicyRequest {
    provider(ProviderChoice::Direct)
}

fn request(policy: PolicyRequest, command: RunCommand, wait: f64) -> StartCommand {
    StartCommand {
        policy,
        command,
        front_door: FrontDoor::Protocol,
        wait_seconds: Some(wait),
    }
}

fn start(runtime: &Arc<Runtime>, script: &str, wait: f64) -> BackgroundStart {
    runtime
        .start_command(request(direct(), RunCommand::shell(script), wait))
        .expect("started")
}

pub(crate) fn wait_for(runtime: &Runtime, command: &CommandId, claim: bool) -> CommandView {
    let asked = WaitCommand {
        command_id: command.clone(),
        limit_seconds: Some(60.0),
        claim,
    };
    runtime
        .wait_command(&asked, &Control::new())
        .expect("known")
}

pub(crate) fn read(
    runtime: &Runtime,
    command: &CommandId,
    stream: OutputView,
    offset: u64,
) -> OutputPage {
    let asked = ReadOutput {
        command_id: command.clone(),
        stream,
        offset,
        max_bytes: None,
        form: OutputForm::Text,
        wait_seconds: Some(10.0),
    };
    runtime
        .read_output(&asked, &Control::new())
        .expect("readable")
}

fn cancel(runtime: &Runtime, command: &CommandId, force: bool) -> CommandView {
    let asked = CancelCommand {
        command_id: Some(command.clone()),
        force,
        ..CancelCommand::default()
    };
    let cancelled = runtime.cancel_command(&asked).expect("reached");
    assert!(cancelled.ended, "{cancelled:?}");
    runtime.command(command).expect("known")
}

fn shared(desk: &Desk) -> Arc<Runtime> {
    Arc::new(desk.runtime())
}

/// Waits until something holds, and fails when it does not for long.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn providers(desk: &Desk) -> Vec<(ProviderChoice, Arc<Runtime>)> {
    let mut all = vec![(ProviderChoice::Direct, shared(desk))];
    if has_walls() {
        all.push((ProviderChoice::Bwrap, shared(desk)));
    }
    let script = Script::new(|command| {
        let words: Vec<_> = command.argv.iter().map(|word| word.to_text()).collect();
        let text = words.last()?;
        Some(ScriptedCommand {
            stdout: if text.contains("begun") {
                b"begun\n".to_vec()
            } else {
                Vec::new()
            },
            takes: Duration::from_secs(if text.contains("sleep") { 300 } else { 0 }),
            ..ScriptedCommand::default()
        })
    });
    let memory = Runtime::open(RuntimeOptions {
        script: Some(script),
        ..desk.options()
    });
    all.push((ProviderChoice::Memory, Arc::new(memory.expect("a desk"))));
    all
}

#[test]
fn row_15_16_the_same_life_over_every_provider() {
    let desk = Desk::new();
    for (choice, runtime) in providers(&desk) {
        let go = |script: &str, wait| {
            let command = RunCommand::shell(script);
            runtime
                .start_command(request(provider(choice), command, wait))
                .expect("started")
        };
        let short = go("echo begun", 5.0);
        assert_eq!(
            (short.background, short.status),
            (false, Status::Completed),
            "{short:?}"
        );
        assert_eq!(short.result.expect("its result").stdout, "begun\n");
        let listed = runtime
            .list_commands(&ListCommands::default())
            .expect("a list");
        let before = listed.commands.len();

        let long = go("echo begun; sleep 300", 0.2);
        assert_eq!(
            (long.background, long.status),
            (true, Status::Running),
            "{long:?}"
        );
        assert_eq!((long.timeout_ms, long.result), (None, None));
        let id = long.command_id;
        assert_eq!(
            read(&runtime, &id, OutputView::Stdout, 0).content,
            "begun\n"
        );
        let listed = runtime
            .list_commands(&ListCommands::default())
            .expect("a list");
        assert_eq!(listed.commands.len(), before + 1);
        assert_eq!(listed.commands[0].command_id, id);
        assert!(listed.commands[0].background);
        let asked = WaitCommand {
            command_id: id.clone(),
            limit_seconds: Some(0.05),
            claim: true,
        };
        let waited = runtime
            .wait_command(&asked, &Control::new())
            .expect("known");
        assert!(waited.wait_expired && !waited.command.claimed, "{waited:?}");
        let ended = cancel(&runtime, &id, true);
        assert_eq!(ended.command.status, Status::Cancelled, "{ended:?}");
        let page = read(&runtime, &id, OutputView::Stdout, 0);
        assert_eq!(
            (&*page.content, page.eof, page.next_offset),
            ("begun\n", true, 6)
        );
        let again = cancel(&runtime, &id, true);
        assert_eq!(again.command, ended.command);
    }
}

#[test]
fn row_15_a_wait_that_is_none_is_refused_before_anything_starts() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    for wrong in [-0.1, f64::NAN, f64::INFINITY] {
        let problem = runtime
            .start_command(request(direct(), RunCommand::shell("touch f"), wrong))
            .expect_err("no wait");
        assert_eq!(problem.code, ErrorCode::InvalidRequest);
    }
    let wrong = RunCommand {
        timeout: Some(-1.0),
        ..RunCommand::shell("touch f")
    };
    let refused = runtime
        .start_command(request(direct(), wrong, 5.0))
        .expect("told");
    assert_eq!((refused.background, refused.status), (false, Status::Error));
    let long = RunCommand {
        timeout: Some(100_000.0),
        ..RunCommand::shell("true")
    };
    let clamped = runtime
        .start_command(request(direct(), long, 60.0))
        .expect("started");
    assert_eq!(
        (clamped.timeout_ms, clamped.timeout_clamped),
        (Some(3_600_000), true)
    );
    assert_eq!((clamped.wait_ms, clamped.wait_clamped), (5_000, true));
    assert!(!desk.repo.join("f").exists());
}

#[test]
fn row_17_c7_pages_rebuild_the_log_byte_for_byte() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    // Characters of three bytes, and bytes that are none, across every border.
    let script = "printf 'a\\200'; i=0; while [ $i -lt 400 ]; do printf '€ü'; \
                  printf 'e\\377' >&2; i=$((i+1)); done; sleep 0.2; printf end";
    let id = start(&runtime, script, 0.0).command_id;
    let rebuild = |stream, form, max| {
        let mut bytes = Vec::new();
        let mut offset = 0;
        loop {
            let asked = ReadOutput {
                command_id: id.clone(),
                stream,
                offset,
                max_bytes: Some(max),
                form,
                wait_seconds: Some(5.0),
            };
            let page = runtime
                .read_output(&asked, &Control::new())
                .expect("readable");
            match form {
                OutputForm::Base64 => {
                    let content = base64::engine::general_purpose::STANDARD
                        .decode(&page.content)
                        .expect("base64");
                    assert_eq!(content.len() as u64, page.next_offset - offset);
                    bytes.extend(content);
                }
                OutputForm::Text => bytes.extend(page.content.as_bytes()),
            }
            offset = page.next_offset;
            if page.eof {
                return bytes;
            }
        }
    };
    let mut stdout = b"a\x80".to_vec();
    stdout.extend("€ü".repeat(400).as_bytes());
    stdout.extend(b"end");
    // While it runs, and after its end.
    for _ in 0..2 {
        assert_eq!(rebuild(OutputView::Stdout, OutputForm::Base64, 7), stdout);
        let text = String::from_utf8_lossy(&stdout).into_owned();
        assert_eq!(
            rebuild(OutputView::Stdout, OutputForm::Text, 7),
            text.as_bytes()
        );
        let both = rebuild(OutputView::Combined, OutputForm::Base64, 64);
        assert_eq!(both.len(), stdout.len() + 800);
        assert_eq!(
            rebuild(OutputView::Stderr, OutputForm::Base64, 1_000).len(),
            800
        );
        wait_for(&runtime, &id, true);
    }
    let page = read(&runtime, &id, OutputView::Combined, 0);
    let mut streams = [Vec::new(), Vec::new()];
    for (index, chunk) in page.chunks.iter().enumerate() {
        assert_eq!(chunk.seq, index as u64);
        let stream = &mut streams[usize::from(chunk.stream == OutputStream::Stderr)];
        assert_eq!(chunk.offset, stream.len() as u64);
        stream.resize(stream.len() + chunk.bytes as usize, 0);
    }
    assert_eq!([streams[0].len(), streams[1].len()], [stdout.len(), 800]);
    let asked = ReadOutput {
        command_id: id,
        stream: OutputView::Stdout,
        offset: 1_000_000,
        max_bytes: None,
        form: OutputForm::Text,
        wait_seconds: None,
    };
    let problem = runtime
        .read_output(&asked, &Control::new())
        .expect_err("beyond");
    assert_eq!(problem.code, ErrorCode::OffsetOutOfWindow);
}

#[test]
fn row_17_a_hundred_lines_are_five_and_five() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let id = start(&runtime, "seq 100; sleep 0.05; seq 10 >&2", 0.0).command_id;
    let view = wait_for(&runtime, &id, false);
    assert_eq!(view.stdout.head, ["1", "2", "3", "4", "5"]);
    assert_eq!(view.stdout.tail, ["96", "97", "98", "99", "100"]);
    assert_eq!(
        (view.stdout.lines, view.stdout.omitted_lines),
        (Some(100), Some(90))
    );
    assert_eq!((view.stderr.head.len(), view.stderr.tail.len()), (10, 0));
}

#[test]
fn row_18_an_end_is_told_once_and_never_when_it_was_claimed() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let poll = || {
        let notices = runtime
            .poll_commands(&PollCommands::default())
            .expect("notices");
        let ids: Vec<_> = notices
            .ended
            .into_iter()
            .map(|one| one.command_id)
            .collect();
        (ids, notices.running)
    };
    let told = start(&runtime, "sleep 0.1; exit 3", 0.0).command_id;
    let claimed = start(&runtime, "sleep 0.1", 0.0).command_id;
    let running = start(&runtime, "sleep 300", 0.0).command_id;
    assert!(!start(&runtime, "true", 5.0).background);
    assert!(wait_for(&runtime, &claimed, true).command.claimed);
    assert!(!wait_for(&runtime, &told, false).command.claimed);
    assert_eq!(poll(), (vec![told.clone()], 1));
    assert_eq!(poll(), (vec![], 1));
    // Another process of the same data directory tells nothing again either.
    let other = desk.runtime();
    let notices = other
        .poll_commands(&PollCommands::default())
        .expect("notices");
    assert_eq!((notices.ended, notices.running), (vec![], 1));
    cancel(&runtime, &running, true);
    assert_eq!(poll().0, [running]);
    assert!(runtime.command(&told).expect("known").command.notified);
}

#[test]
fn row_19_a_killed_child_is_failed_with_its_signal() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let id = start(&runtime, "echo $$; sleep 0.05; kill -9 $$", 0.0).command_id;
    let view = wait_for(&runtime, &id, false);
    let result = view.result.expect("its result");
    assert_eq!(
        (result.status, result.return_code, result.signal.as_deref()),
        (Status::Failed, None, Some("SIGKILL"))
    );
}

#[test]
fn row_20_authority_and_policy_are_those_of_the_start() {
    if !has_walls() {
        return;
    }
    let desk = Desk::new();
    let runtime = shared(&desk);
    let file = desk.home.join(".config/cofferdam/policy.toml");
    std::fs::create_dir_all(file.parent().expect("a directory")).expect("made");
    let say = |workspace: &str| {
        std::fs::write(&file, format!("schema = 1\nworkspace = \"{workspace}\"\n"))
            .expect("written");
    };
    say("write");
    let script = "until [ -e go ]; do sleep 0.02; done; echo late >late && echo done";
    let go = |script: &str, wait| {
        let command = RunCommand::shell(script);
        runtime
            .start_command(request(PolicyRequest::default(), command, wait))
            .expect("started")
    };
    let id = go(script, 0.0).command_id;
    let before = runtime.command(&id).expect("known").command.authority;
    assert_eq!(before.front_door, "protocol");
    assert_eq!(before.provider, Some(ProviderKind::Bwrap));
    say("read");
    let refused = go("echo x >x", 5.0);
    assert_eq!(refused.status, Status::Failed, "{refused:?}");
    std::fs::write(desk.repo.join("go"), "").expect("written");
    let view = wait_for(&runtime, &id, false);
    assert_eq!(view.command.status, Status::Completed, "{view:?}");
    assert_eq!(desk.read("late"), "late\n");
    let after = view.command.authority;
    assert_eq!(
        (&after.policy, &after.spec_hash, &after.rule),
        (&before.policy, &before.spec_hash, &before.rule)
    );
    assert!(after.policy.is_some() && after.spec_hash.is_some());
}

#[test]
fn row_21_after_its_time_the_output_is_gone_and_said_to_be() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let script = "sleep 0.1; head -c 600000 /dev/zero | tr '\\0' x; echo; echo err >&2";
    let id = start(&runtime, script, 0.0).command_id;
    until("files while it runs, or its end", || {
        std::fs::read_dir(desk.data.join("output")).is_ok_and(|mut files| files.next().is_some())
            || runtime.command(&id).expect("known").command.status != Status::Running
    });
    wait_for(&runtime, &id, true);
    until("no live file after the end", || {
        std::fs::read_dir(desk.data.join("output")).map_or(true, |mut files| files.next().is_none())
    });
    assert_eq!(
        read(&runtime, &id, OutputView::Stdout, 600_000).content,
        "\n"
    );
    assert_eq!(runtime.expire_output(Duration::from_hours(1)), Ok(0));
    assert_eq!(runtime.expire_output(Duration::ZERO), Ok(1));
    assert_eq!(runtime.expire_output(Duration::ZERO), Ok(0));
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
    assert_eq!(problem.code, ErrorCode::OutputExpired);
    let view = runtime.command(&id).expect("known");
    assert_eq!(view.command.status, Status::Completed);
    assert!(view.result.expect("its result").stdout.ends_with("x\n"));
}

/// Runs in a process of its own, see [`rerun`], and dies with a command in the background.
#[test]
#[ignore = "the child of another test"]
fn child() {
    let Some(desk) = told("COFFERDAM_TEST_DESK") else {
        return;
    };
    let desk = PathBuf::from(desk);
    let options = options(&desk.join("home"), &desk.join("data"), &desk.join("repo"));
    let runtime = Arc::new(Runtime::open(options).expect("a desk"));
    let started = start(
        &runtime,
        "echo out; sleep 0.1; echo err >&2; sleep 0.1; echo more; sleep 300",
        0.1,
    );
    let id = started.command_id;
    until("output", || {
        read(&runtime, &id, OutputView::Combined, 0).total == 13
    });
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
        .expect("a signal to itself");
}

#[test]
fn row_22_e4_after_the_plane_died_it_reads_interrupted_with_its_output() {
    let desk = Desk::new();
    let status = rerun(&desk, "background::child", "any");
    assert!(!status.success());
    let runtime = shared(&desk);
    let listed = runtime
        .list_commands(&ListCommands::default())
        .expect("a list");
    assert_eq!(listed.commands.len(), 1, "{listed:?}");
    let record = &listed.commands[0];
    assert_eq!(record.status, Status::Interrupted);
    assert!(record.ended_at.is_some());
    let id = record.command_id.clone();
    let page = read(&runtime, &id, OutputView::Combined, 0);
    assert_eq!(
        (&*page.content, page.eof),
        ("out\nerr\nmore\n", true),
        "{page:?}"
    );
    assert_eq!(page.status, Status::Interrupted);
    let notices = runtime
        .poll_commands(&PollCommands::default())
        .expect("notices");
    assert_eq!(notices.ended[0].status, Status::Interrupted);
    let left = std::fs::read_dir(desk.data.join("output")).expect("a directory");
    assert_eq!(left.count(), 0);
}

#[test]
fn row_14_the_same_key_follows_the_same_command() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let keyed = || RunCommand {
        idempotency_key: Some("once".to_owned()),
        ..RunCommand::shell("echo run >>log; until [ -e go ]; do sleep 0.02; done; cat log")
    };
    let go = |runtime: &Arc<Runtime>, wait| {
        runtime
            .start_command(request(direct(), keyed(), wait))
            .expect("started")
    };
    let first = go(&runtime, 0.0);
    let starts: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| go(&runtime, 0.0))).collect();
        threads
            .into_iter()
            .map(|one| one.join().expect("no panic"))
            .collect()
    });
    let other = shared(&desk);
    for one in starts.iter().chain([&go(&other, 0.0)]) {
        assert_eq!(
            (&one.command_id, one.background),
            (&first.command_id, true),
            "{one:?}"
        );
    }
    std::fs::write(desk.repo.join("go"), "").expect("written");
    let ended = go(&other, 5.0);
    assert_eq!(
        (&ended.command_id, ended.background),
        (&first.command_id, false)
    );
    assert_eq!(ended.result.expect("its result").stdout, "run\n");
    // Somebody who waits for the end gets the same.
    let waited = run(&other, direct(), keyed());
    assert_eq!(waited.command_id, first.command_id);
    assert_eq!(desk.read("log"), "run\n");
}

#[test]
fn row_16_a_start_that_has_not_happened_is_cancelled_by_its_key() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let by_key = |runtime: &Runtime, key: &str| {
        let asked = CancelCommand {
            idempotency_key: Some(key.to_owned()),
            ..CancelCommand::default()
        };
        runtime.cancel_command(&asked).expect("reached")
    };
    assert_eq!(by_key(&runtime, "early").command, None);
    let keyed = |key: &str, script: &str| RunCommand {
        idempotency_key: Some(key.to_owned()),
        ..RunCommand::shell(script)
    };
    // Also a start in another process, and one that somebody waits for.
    for runtime in [&runtime, &shared(&desk)] {
        let started = runtime
            .start_command(request(direct(), keyed("early", "touch f"), 5.0))
            .expect("told");
        assert_eq!(
            (started.background, started.status),
            (false, Status::Cancelled)
        );
        let outcome = run(runtime, direct(), keyed("early", "touch f"));
        assert_eq!(outcome.status, Status::Cancelled);
    }
    assert!(!desk.repo.join("f").exists());
    let late = runtime
        .start_command(request(direct(), keyed("late", "sleep 300"), 0.0))
        .expect("started");
    let cancelled = by_key(&runtime, "late");
    assert!(cancelled.ended);
    let record = cancelled.command.expect("it had begun");
    assert_eq!(
        (record.command_id, record.status),
        (late.command_id, Status::Cancelled)
    );
}

#[test]
fn b7_a_frozen_command_keeps_nobody_waiting_and_is_ended() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let command = RunCommand {
        timeout: Some(0.5),
        ..RunCommand::shell("echo $$; kill -STOP $$; sleep 300")
    };
    let id = runtime
        .start_command(request(direct(), command, 0.0))
        .expect("started")
        .command_id;
    let asked = WaitCommand {
        command_id: id.clone(),
        limit_seconds: Some(0.1),
        claim: false,
    };
    let began = Instant::now();
    let waited = runtime
        .wait_command(&asked, &Control::new())
        .expect("known");
    assert!(waited.wait_expired && began.elapsed() < Duration::from_secs(2));
    assert_eq!(
        wait_for(&runtime, &id, false).command.status,
        Status::Timeout
    );

    let frozen = start(&runtime, "kill -STOP $$; sleep 300", 0.0).command_id;
    let ended = cancel(&runtime, &frozen, false);
    assert_eq!(ended.command.status, Status::Cancelled, "{ended:?}");
}

#[test]
fn b15_ending_one_leaves_the_others_alone_whoever_asks() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let one = start(&runtime, "echo one; sleep 300 & sleep 300", 0.05).command_id;
    let two = start(&runtime, "echo two; sleep 300", 0.05).command_id;
    // From another plane of the same data directory: through the journal.
    let other = desk.runtime();
    assert_eq!(read(&other, &two, OutputView::Combined, 0).content, "two\n");
    let mut follow = Follow::new(one.clone(), OutputView::Combined);
    let followed = follow.next(&other).expect("readable");
    assert_eq!(followed.pieces, [(OutputStream::Stdout, b"one\n".to_vec())]);
    assert!(!followed.eof);
    let ended = cancel(&other, &one, false);
    assert_eq!(ended.command.status, Status::Cancelled, "{ended:?}");
    assert!(follow.next(&other).expect("readable").eof);
    assert_eq!(
        other.command(&two).expect("known").command.status,
        Status::Running
    );
    let unknown = CommandId::new(1, [0; 10]);
    let problem = other.command(&unknown).expect_err("nobody knows it");
    assert_eq!(problem.code, ErrorCode::CommandUnknown);
    cancel(&runtime, &two, true);
}

#[test]
fn whoever_ends_the_process_can_end_its_commands_first() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let ids: Vec<_> = (0..3)
        .map(|_| start(&runtime, "sleep 300", 0.0).command_id)
        .collect();
    assert_eq!(runtime.end_commands(Duration::from_secs(10)), 0);
    for id in ids {
        let status = runtime.command(&id).expect("known").command.status;
        assert_eq!(status, Status::Cancelled);
    }
}

#[test]
fn g_each_command_begins_and_ends_once_and_no_secret_is_kept() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let id = start(
        &runtime,
        "echo s3cret-; sleep 0.1; printf s3cret-; sleep 0.2; echo value",
        0.05,
    )
    .command_id;
    wait_for(&runtime, &id, true);
    let all = events(&runtime);
    let count = |kind: &str| {
        all.iter()
            .filter(|event| event.kind == kind && event.data["command_id"] == id.as_str())
            .count()
    };
    assert_eq!(
        (
            count("exec.intended"),
            count("exec.ended"),
            count("exec.background")
        ),
        (1, 1, 1)
    );
    let page = read(&runtime, &id, OutputView::Stdout, 0);
    assert_eq!(page.content.len(), 8 + 7 + 6);
    assert!(!page.content.contains("s3cret-value"), "{page:?}");
    assert!(!format!("{all:?}").contains("s3cret-value"));
}

#[test]
fn c9_outputs_of_many_commands_never_mix() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let ids: Vec<_> = (0..40)
        .map(|number| {
            let script = if number % 2 == 0 {
                format!("sleep 0.05; printf 'short {number:03}'")
            } else {
                format!("sleep 0.05; yes 'long {number:03}' | head -c 300000")
            };
            start(&runtime, &script, 0.0).command_id
        })
        .collect();
    for (number, id) in ids.iter().enumerate() {
        let view = wait_for(&runtime, id, true);
        let result = view.result.expect("its result");
        if number % 2 == 0 {
            assert_eq!(result.stdout, format!("short {number:03}"));
        } else {
            assert_eq!(result.stdout_full.bytes, 300_000);
            let line = format!("long {number:03}\n");
            let page = read(&runtime, id, OutputView::Stdout, 200_000 / 9 * 9);
            let mut lines = page.content.split_inclusive('\n');
            assert!(lines.all(|one| line.starts_with(one)), "{number}");
        }
    }
}

#[test]
fn fc_70_b9_descriptors_threads_and_zombies_stay_flat() {
    let desk = Desk::new();
    let runtime = shared(&desk);
    let count = |what: &str| {
        std::fs::read_dir(format!("/proc/self/{what}"))
            .expect("readable")
            .count()
    };
    let zombies = || {
        let own = std::process::id().to_string();
        std::fs::read_dir("/proc")
            .expect("readable")
            .flatten()
            .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
            .filter(|stat| {
                stat.rsplit_once(')').is_some_and(|(_, rest)| {
                    let mut fields = rest.split_whitespace();
                    fields.next() == Some("Z") && fields.next() == Some(own.as_str())
                })
            })
            .count()
    };
    let round = |times: usize| {
        for _ in 0..times {
            let script = "(setsid sleep 0.01 &) ; true";
            let started = start(&runtime, script, 5.0);
            assert_eq!(started.status, Status::Completed, "{started:?}");
            let id = start(&runtime, "sleep 0.02", 0.0).command_id;
            wait_for(&runtime, &id, true);
        }
    };
    round(3);
    until("threads end", || count("task") <= 4);
    let before = (count("fd"), count("task"));
    round(20);
    until("as before", || (count("fd"), count("task")) == before);
    assert_eq!(zombies(), 0);
}

#[test]
fn no_more_than_so_many_run_at_once() {
    let desk = Desk::new();
    let script = Script::new(|_| {
        Some(ScriptedCommand {
            takes: Duration::from_mins(5),
            ..ScriptedCommand::default()
        })
    });
    let runtime = Arc::new(
        Runtime::open(RuntimeOptions {
            script: Some(script),
            ..desk.options()
        })
        .expect("a desk"),
    );
    let policy = || PolicyRequest {
        owner: PolicyDocument {
            provider: Some(ProviderChoice::Memory),
            ..PolicyDocument::default()
        },
        ..PolicyRequest::default()
    };
    let go = || runtime.start_command(request(policy(), RunCommand::argv(["x"]), 0.0));
    for _ in 0..cofferdam_core::limits::BACKGROUND_COMMANDS {
        go().expect("room");
    }
    let problem = go().expect_err("no room");
    assert_eq!(problem.code, ErrorCode::TooManyCommands);
}
