//! Sessions by the field cases that they have to stand: one place, many commands, none of which
//! spoils the next.

use std::time::{Duration, Instant};

use cofferdam_core::error::ErrorCode;
use cofferdam_core::event::Subject;
use cofferdam_core::outcome::{IsolationLevel, Status};
use cofferdam_core::spec::{Network, ProviderKind};
use cofferdam_exec::{
    CommandIo, Control, Plane, Run, Session, SessionEnd, SessionKind, SessionRun,
};

use crate::smoke::{command, plane, spec};

/// A session over a workspace of its own.
struct Scene {
    session: Session,
    workspace: tempfile::TempDir,
    _data: tempfile::TempDir,
    _plane: Plane,
    shell: &'static str,
}

const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];

impl Scene {
    fn new(provider: ProviderKind, shell: Option<&'static str>) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let workspace = tempfile::tempdir().expect("a directory");
        let plane = plane(data.path());
        let level = IsolationLevel {
            provider: Some(provider),
            network: Network::None,
        };
        let enclosure = plane
            .enclose(spec(provider, workspace.path()), level, &Subject::default())
            .expect("walls");
        let kind = shell.map_or(SessionKind::Plain, |shell| SessionKind::Shell {
            shell: shell.into(),
        });
        Self {
            session: Session::new(enclosure, kind),
            workspace,
            _data: data,
            _plane: plane,
            shell: shell.unwrap_or("/bin/bash"),
        }
    }

    fn request(&self, script: &str) -> SessionRun<'static> {
        SessionRun {
            run: Run {
                command: command(self.workspace.path(), &["unused"]),
                subject: Subject::default(),
                io: CommandIo::Capture { input: None },
                control: Control::new(),
                timeout_clamped: false,
            },
            script: Some(script.to_owned()),
            shell: self.shell.into(),
            has_directory: false,
            patience: Some(Duration::from_secs(20)),
            aside: false,
        }
    }

    fn sh(&self, script: &str) -> SessionEnd {
        self.session.run(self.request(script))
    }

    fn limited(&self, script: &str, milliseconds: u64) -> SessionEnd {
        let mut request = self.request(script);
        request.run.command.timeout_ms = Some(milliseconds);
        self.session.run(request)
    }

    fn argv(&self, words: &[&str]) -> SessionEnd {
        let mut request = self.request("");
        request.script = None;
        request.run.command = command(self.workspace.path(), words);
        self.session.run(request)
    }

    /// The next command is right, at once, and in the session's directory.
    fn stays_usable(&self, directory: &str) {
        let began = Instant::now();
        let end = self.sh("pwd; echo ok");
        let outcome = &end.outcome;
        assert_eq!(outcome.status, Status::Completed, "{end:?}");
        assert_eq!(outcome.stdout, format!("{directory}\nok\n"), "{end:?}");
        assert!(began.elapsed() < Duration::from_secs(1));
    }

    fn top(&self) -> String {
        self.workspace.path().display().to_string()
    }
}

/// What is there on this machine.
fn providers() -> Vec<ProviderKind> {
    let mut all = vec![ProviderKind::Direct, ProviderKind::Landlock];
    if std::path::Path::new("/usr/bin/bwrap").exists() {
        all.push(ProviderKind::Bwrap);
    } else {
        println!("skipped for bwrap: bubblewrap is not installed");
    }
    all
}

/// Every provider that has real processes, with every shell.
fn everywhere(check: impl Fn(&Scene)) {
    for provider in providers() {
        for shell in SHELLS {
            println!("{provider} with {shell}");
            check(&Scene::new(provider, Some(shell)));
        }
    }
}

fn said(end: &SessionEnd) -> (Status, Option<i32>, &str) {
    let outcome = &end.outcome;
    (outcome.status, outcome.return_code, &outcome.stdout)
}

#[test]
fn directory_mask_and_exported_variables_go_from_one_command_to_the_next() {
    everywhere(|scene| {
        let top = scene.top();
        scene.sh("mkdir sub; cd sub; export A='x y' B=\"it's \\\"q\\\" $\" ; umask 0027; C=not");
        let end = scene.sh("pwd; echo \"$A|$B|${C-}\"; umask; cd ..; cd - >/dev/null; pwd");
        let seen = format!("{top}/sub\nx y|it's \"q\" $|\n0027\n{top}/sub\n");
        assert_eq!(said(&end), (Status::Completed, Some(0), &*seen), "{end:?}");
        assert!(end.state_saved && !end.session_reset, "{end:?}");
        let end = scene.sh("unset A; cd /");
        assert_eq!(end.directory, "/".into());
        let end = scene.argv(&["sh", "-c", "pwd; echo ${A-gone} $SHLVL"]);
        assert!(end.outcome.stdout.starts_with("/\ngone"), "{end:?}");
    });
}

#[test]
fn a_variable_of_one_command_does_not_stay_and_one_it_exports_does() {
    let scene = Scene::new(ProviderKind::Direct, Some("/bin/bash"));
    let mut request = scene.request("echo $ONCE; export KEPT=$ONCE");
    request.run.command.environment = vec![cofferdam_core::spec::Variable {
        name: "ONCE".into(),
        value: "here".into(),
    }];
    assert_eq!(scene.session.run(request).outcome.stdout, "here\n");
    let end = scene.sh("echo ${ONCE-gone} $KEPT");
    assert_eq!(end.outcome.stdout, "gone here\n", "{end:?}");
}

#[test]
fn values_with_every_odd_byte_come_back() {
    let scene = Scene::new(ProviderKind::Direct, Some("/bin/bash"));
    scene.sh("export ODD=$'a\\nb\\tc\\'d\"e\\\\f\\x01\\xff é $x `y` \\x7f'");
    let end = scene.sh("printf %s \"$ODD\" | od -An -tx1 | tr -d ' \\n'");
    let odd = b"a\nb\tc'd\"e\\f\x01\xff \xc3\xa9 $x `y` \x7f";
    let hex: String = odd.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(end.outcome.stdout, hex, "{end:?}");
}

#[test]
fn a1_a_here_document_arrives_word_for_word() {
    everywhere(|scene| {
        let text = "one\n  two $x `y` \\\n\tthree";
        let end = scene.sh(&format!("cat > f <<'EOF'\n{text}\nEOF\ncat f"));
        assert_eq!(end.outcome.stdout, format!("{text}\n"), "{end:?}");
        scene.stays_usable(&scene.top());
    });
}

#[test]
fn a3_a_script_that_is_not_whole_is_said_at_once() {
    for provider in providers() {
        let scene = Scene::new(provider, Some("/bin/bash"));
        for open in [
            "touch ran; cat <<EOF\nabc",
            "touch ran; echo 'abc",
            "touch ran; if true; then",
            "touch ran; f() {",
        ] {
            let began = Instant::now();
            let end = scene.sh(open);
            let code = end.outcome.error.as_ref().map(|problem| problem.code);
            assert_eq!(code, Some(ErrorCode::SyntaxIncomplete), "{open}: {end:?}");
            assert!(began.elapsed() < Duration::from_millis(500), "{open}");
            scene.stays_usable(&scene.top());
        }
        assert!(!scene.workspace.path().join("ran").exists());
        // Wrong is not unfinished: the shell says it, with its own code.
        let end = scene.sh("echo )");
        assert_eq!(
            (end.outcome.status, end.outcome.return_code),
            (Status::Failed, Some(2)),
            "{end:?}"
        );
    }
    // In a plain session as well.
    let scene = Scene::new(ProviderKind::Direct, None);
    let end = scene.sh("cat <<EOF\nabc");
    let code = end.outcome.error.as_ref().map(|problem| problem.code);
    assert_eq!(code, Some(ErrorCode::SyntaxIncomplete), "{end:?}");
}

#[test]
fn a4_a_script_of_any_length_arrives() {
    let lines = "0123456789abcdef0123456789abcdef0123456789\n".repeat(25_000);
    assert!(lines.len() > 1024 * 1024);
    for shell in [Some("/bin/bash"), Some("/bin/sh"), None] {
        let scene = Scene::new(ProviderKind::Direct, shell);
        let end = scene.sh(&format!("cat > f <<'EOF'\n{lines}EOF\nwc -c < f"));
        assert_eq!(
            end.outcome.stdout.trim(),
            lines.len().to_string(),
            "{:?}",
            end.outcome.error
        );
        let file = scene.workspace.path().join("f");
        assert_eq!(std::fs::read_to_string(file).expect("there"), lines);
        scene.stays_usable(&scene.top());
    }
}

#[test]
fn a6_a_command_that_times_out_leaves_the_session_as_it_was() {
    everywhere(|scene| {
        scene.sh("mkdir sub; cd sub; export A=1");
        let here = format!("{}/sub", scene.top());
        for stuck in [
            "cd /; export A=2; sleep 300",
            "cd /; python3 -c 'import time; time.sleep(300)'",
        ] {
            let end = scene.limited(stuck, 200);
            assert_eq!(end.outcome.status, Status::Timeout, "{end:?}");
            assert!(!end.session_reset && !end.state_saved, "{end:?}");
            scene.stays_usable(&here);
        }
        assert_eq!(scene.sh("echo $A").outcome.stdout, "1\n");
        // Nothing to read is no reason to wait.
        let end = scene.limited("cat; read x; pwd", 5_000);
        assert_eq!(end.outcome.stdout, format!("{here}\n"), "{end:?}");
    });
}

#[test]
fn a7_time_limits_one_after_the_other_hold_nobody_up() {
    let scene = Scene::new(ProviderKind::Direct, Some("/bin/bash"));
    for _ in 0..5 {
        let end = scene.limited("sleep 100", 50);
        assert_eq!(end.outcome.status, Status::Timeout, "{end:?}");
    }
    for number in 0..20 {
        let end = scene.sh(&format!("echo {number}"));
        assert_eq!(end.outcome.stdout, format!("{number}\n"));
    }
}

#[test]
fn a8_whatever_a_command_does_to_its_shell_is_over_with_it() {
    everywhere(|scene| {
        scene.sh("mkdir sub; cd sub; export A=1");
        let here = format!("{}/sub", scene.top());
        for (script, code) in [
            ("exit 3", Some(3)),
            ("set -e; false; echo no", Some(1)),
            ("exec false", Some(1)),
            ("set -u; echo $NOPE; echo no", None),
            ("trap 'echo bye' EXIT; exit 4", Some(4)),
            ("set -f; IFS=0; exit 10", Some(10)),
            (
                "PS1='x$ '; PS2=; PROMPT_COMMAND=exit; exec 3>&1 1>&2",
                Some(0),
            ),
            ("set -x; exit 5", Some(5)),
            ("exec 88>&-; exec 87>&-; true", None),
            ("unset PATH HOME; alias echo=false", Some(0)),
        ] {
            let end = scene.sh(script);
            if let Some(code) = code {
                assert_eq!(end.outcome.return_code, Some(code), "{script}: {end:?}");
            } else {
                assert!(end.outcome.return_code.is_some(), "{script}: {end:?}");
            }
            assert!(!end.outcome.stdout.contains("no\n"), "{script}: {end:?}");
            assert!(!end.session_reset, "{script}: {end:?}");
            assert!(
                !end.outcome.stderr.contains("cofferdam"),
                "{script}: {end:?}"
            );
            scene.stays_usable(&here);
        }
        let end = scene.sh("kill -9 $$");
        assert_eq!(end.outcome.signal.as_deref(), Some("SIGKILL"));
        scene.stays_usable(&here);
        assert_eq!(scene.sh("echo $A").outcome.stdout, "1\n");
    });
}

#[test]
fn a8_exit_in_the_middle_still_hands_the_directory_on() {
    everywhere(|scene| {
        let end = scene.sh("mkdir sub; cd sub; exit 3");
        assert!(end.state_saved, "{end:?}");
        scene.stays_usable(&format!("{}/sub", scene.top()));
        // Whoever replaces the shell takes its state along: said, and the last one stays.
        let end = scene.sh("cd /; exec true");
        assert!(!end.state_saved && end.state_reason.is_some(), "{end:?}");
        scene.stays_usable(&format!("{}/sub", scene.top()));
    });
}

#[test]
fn a10_nothing_in_the_output_ends_a_command() {
    everywhere(|scene| {
        let end = scene.sh(
            "type __cofferdam_tell 2>/dev/null; for i in 1 2 3; do echo 'EXITSTATUS 0'; \
             echo '__cofferdam_tell'; echo 'bash-5.2$ '; sleep 0.05; done; false",
        );
        assert_eq!(
            (end.outcome.status, end.outcome.return_code),
            (Status::Failed, Some(1)),
            "{end:?}"
        );
        assert_eq!(end.outcome.stdout.matches("EXITSTATUS 0").count(), 3);
        scene.stays_usable(&scene.top());
    });
}

#[test]
fn a10_garbage_on_the_side_channel_is_no_state() {
    let scene = Scene::new(ProviderKind::Direct, Some("/bin/bash"));
    scene.sh("mkdir sub; cd sub");
    for script in [
        "cd /; echo garbage >&88; exec true",
        "cd /; trap 'echo x >&88' EXIT",
        "cd /; export BIG=$(head -c 200000 /dev/zero | tr '\\0' x)",
    ] {
        let end = scene.sh(script);
        assert!(!end.state_saved, "{script}: {end:?}");
        scene.stays_usable(&format!("{}/sub", scene.top()));
    }
}

#[test]
fn a12_busy_loops_beside_make_no_command_fail() {
    let scene = Scene::new(ProviderKind::Direct, Some("/bin/bash"));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        for number in 0..300 {
            let end = scene.sh(&format!("echo {number}"));
            assert_eq!(end.outcome.stdout, format!("{number}\n"), "{end:?}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a13_start_up_files_do_not_matter() {
    let scene = Scene::new(ProviderKind::Direct, Some("/bin/bash"));
    let home = scene.workspace.path();
    let nasty = "echo from-rc; PS1='rc> '; cd /; exec sh\n";
    for name in [".bashrc", ".bash_profile", ".profile", ".bash_login", "env"] {
        std::fs::write(home.join(name), nasty).expect("written");
    }
    let set = format!(
        "export HOME={0} BASH_ENV={0}/env ENV={0}/env PS1='x '",
        home.display()
    );
    scene.sh(&set);
    scene.stays_usable(&scene.top());
    assert_eq!(
        scene.sh("echo $HOME").outcome.stdout,
        format!("{}\n", scene.top())
    );
}

#[test]
fn a15_a_long_expansion_in_a_here_document_does_not_hang() {
    everywhere(|scene| {
        let value = "v".repeat(520);
        let end = scene.limited(&format!("export V={value}\ncat <<EOF\n$V\nEOF"), 10_000);
        assert_eq!(end.outcome.stdout, format!("{value}\n"), "{end:?}");
        let end = scene.sh("cat <<EOF\n$V\nEOF");
        assert_eq!(end.outcome.stdout, format!("{value}\n"), "{end:?}");
    });
}

#[test]
fn a_directory_that_is_gone_is_said_once() {
    let scene = Scene::new(ProviderKind::Direct, Some("/bin/bash"));
    scene.sh("mkdir -p sub; cd sub; rmdir ../sub");
    let end = scene.sh("pwd");
    let code = end.outcome.error.as_ref().map(|problem| problem.code);
    assert_eq!(code, Some(ErrorCode::CwdMissing), "{end:?}");
    assert_eq!(end.directory, scene.workspace.path().into());
    scene.stays_usable(&scene.top());
}

#[test]
fn b1_a_time_limit_ends_the_whole_tree() {
    for provider in providers() {
        let scene = Scene::new(provider, Some("/bin/bash"));
        let end = scene.limited(
            "sleep 307 & setsid sleep 307 & (sleep 307 &) ; wait; sleep 307",
            200,
        );
        assert_eq!(end.outcome.status, Status::Timeout, "{end:?}");
        assert_eq!(end.outcome.kept, [], "{end:?}");
        assert_eq!(scene.session.jobs(), []);
        let left =
            scene.sh("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 30[7]'");
        assert_eq!(left.outcome.stdout.trim(), "0", "{provider}: {left:?}");
    }
}

#[test]
fn b3_a_job_does_not_hold_the_answer_and_lives_on() {
    for provider in providers() {
        let scene = Scene::new(provider, Some("/bin/bash"));
        let began = Instant::now();
        let end = scene.sh("(setsid sleep 60 &); echo done");
        assert!(began.elapsed() < Duration::from_millis(500));
        assert_eq!(
            said(&end),
            (Status::Completed, Some(0), "done\n"),
            "{end:?}"
        );
        let [kept] = end.outcome.kept.as_slice() else {
            panic!("one job: {end:?}");
        };
        assert_eq!(end.outcome.pipes_held_by, [kept.pid]);
        assert_eq!(end.outcome.leftovers, []);
        for _ in 0..3 {
            scene.stays_usable(&scene.top());
        }
        let jobs = scene.session.jobs();
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        assert!(scene.session.end_job(&jobs[0]));
        assert_eq!(scene.session.jobs(), []);
        assert!(!scene.session.end_job(&jobs[0]));
        scene.stays_usable(&scene.top());
    }
}

#[test]
fn what_a_job_writes_later_is_in_the_log_and_never_in_another_output() {
    let scene = Scene::new(ProviderKind::Direct, Some("/bin/bash"));
    let end = scene.sh("(for i in 1 2 3; do sleep 0.1; echo late $i; done) & echo now");
    assert_eq!(end.outcome.stdout, "now\n", "{end:?}");
    while !scene.session.jobs().is_empty() {
        let end = scene.sh("sleep 0.05");
        assert_eq!(end.outcome.output, "", "{end:?}");
    }
    let until = Instant::now() + Duration::from_secs(10);
    let log = loop {
        let log = scene.session.log(0);
        if log.next_offset == 21 || Instant::now() > until {
            break log;
        }
        std::thread::yield_now();
    };
    assert_eq!(
        String::from_utf8_lossy(&log.bytes),
        "late 1\nlate 2\nlate 3\n"
    );
    assert_eq!(scene.session.log(14).bytes, b"late 3\n");
}

#[test]
fn b15_the_end_of_a_session_takes_its_own_and_nothing_else() {
    for provider in providers() {
        let (first, second) = (Scene::new(provider, None), Scene::new(provider, None));
        let end = first.sh("sleep 60 & echo");
        assert_eq!(end.outcome.kept.len(), 1, "{end:?}");
        second.sh("sleep 60 & echo");
        second.session.end();
        assert_eq!(first.session.jobs().len(), 1);
        first.stays_usable(&first.top());
        let end = second.sh("echo still");
        let code = end.outcome.error.as_ref().map(|problem| problem.code);
        assert_eq!(code, Some(ErrorCode::EnclosureLost), "{end:?}");
    }
}

#[test]
fn b17_a_place_that_has_died_is_said_and_put_up_again() {
    for provider in providers() {
        let scene = Scene::new(provider, Some("/bin/bash"));
        let top = scene.top();
        scene.sh("mkdir sub; cd sub; export A=1; sleep 60 &");
        assert_eq!(scene.session.jobs().len(), 1);
        let end = std::thread::scope(|threads| {
            let running = threads.spawn(|| scene.limited("echo here; sleep 30", 20_000));
            let until = Instant::now() + Duration::from_secs(10);
            while scene.session.is_standing() && Instant::now() < until {
                // Every keeper below this test that is this session's: it has the running command.
                kill_keepers_of(&top);
            }
            running.join().expect("it ends")
        });
        let code = end.outcome.error.as_ref().map(|problem| problem.code);
        assert_eq!(code, Some(ErrorCode::EnclosureLost), "{provider}: {end:?}");
        let end = scene.sh("pwd; echo $A");
        assert!(end.session_reset, "{end:?}");
        assert_eq!(end.outcome.stdout, format!("{top}/sub\n1\n"), "{end:?}");
        assert_eq!(scene.session.jobs(), []);
        let end = scene.sh("echo on");
        assert!(!end.session_reset && end.outcome.success, "{end:?}");
    }
}

/// Kills whoever supervises a process that stands in a directory.
fn kill_keepers_of(directory: &str) {
    for entry in std::fs::read_dir("/proc").expect("proc").flatten() {
        let stands = std::fs::read_link(entry.path().join("cwd"))
            .is_ok_and(|cwd| cwd.to_string_lossy().starts_with(directory));
        if !stands {
            continue;
        }
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let parent = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.split(' ').nth(1)?.parse::<i32>().ok());
        let Some(parent) = parent else { continue };
        let name = std::fs::read_to_string(format!("/proc/{parent}/comm")).unwrap_or_default();
        if name.starts_with("cofferdam-super")
            && let Some(pid) = rustix::process::Pid::from_raw(parent)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[test]
fn c9_nothing_of_one_output_is_in_the_next() {
    let scene = Scene::new(ProviderKind::Direct, Some("/bin/bash"));
    for round in 0..50 {
        let end = scene.sh(&format!("printf small{round}"));
        assert_eq!(end.outcome.stdout, format!("small{round}"));
        let end = scene.sh("head -c 1048576 /dev/zero");
        assert_eq!(end.outcome.stdout_full.bytes, 1_048_576);
    }
}

#[test]
fn one_session_does_not_wait_for_another_nor_a_plain_command_for_its_neighbour() {
    let (busy, free) = (
        Scene::new(ProviderKind::Direct, Some("/bin/bash")),
        Scene::new(ProviderKind::Direct, Some("/bin/bash")),
    );
    let plain = Scene::new(ProviderKind::Direct, None);
    std::thread::scope(|threads| {
        let sleeping = threads.spawn(|| busy.sh("sleep 1"));
        let beside = threads.spawn(|| plain.sh("sleep 1"));
        free.stays_usable(&free.top());
        plain.stays_usable(&plain.top());
        assert!(!sleeping.is_finished() && !beside.is_finished());
        assert!(sleeping.join().expect("ends").outcome.success);
    });
}

#[test]
fn commands_of_a_shell_session_wait_for_their_turn_and_say_when_it_does_not_come() {
    let scene = Scene::new(ProviderKind::Direct, Some("/bin/bash"));
    std::thread::scope(|threads| {
        let first = threads.spawn(|| scene.sh("touch begun; sleep 0.5; export A=first"));
        while !scene.workspace.path().join("begun").exists() {
            std::thread::yield_now();
        }
        let mut hasty = scene.request("echo no");
        hasty.patience = Some(Duration::from_millis(30));
        let end = scene.session.run(hasty);
        let code = end.outcome.error.as_ref().map(|problem| problem.code);
        assert_eq!(code, Some(ErrorCode::SessionBusy), "{end:?}");
        assert_eq!(scene.sh("echo $A").outcome.stdout, "first\n");
        assert!(first.join().expect("ends").outcome.success);
    });
}

#[test]
fn a_reset_begins_anew() {
    for provider in providers() {
        let scene = Scene::new(provider, Some("/bin/bash"));
        scene.sh("mkdir sub; cd sub; export A=1; sleep 60 &");
        scene.session.reset().expect("walls");
        assert_eq!(scene.session.jobs(), []);
        let end = scene.sh("pwd; echo ${A-gone}");
        assert_eq!(end.outcome.stdout, format!("{}\ngone\n", scene.top()));
        assert!(!end.session_reset, "{end:?}");
    }
}

#[test]
fn a_command_beside_the_others_waits_for_none_and_hands_nothing_on() {
    for provider in providers() {
        let scene = Scene::new(provider, Some("/bin/bash"));
        scene.sh("mkdir sub; cd sub; export A=1");
        let directory = format!("{}/sub", scene.top());
        let long = std::thread::scope(|scope| {
            let long = scope.spawn(|| {
                let mut request = scene.request("touch began; sleep 5; cd /; export A=2; echo $A");
                request.run.command.timeout_ms = Some(4_000);
                scene.session.run(request)
            });
            while !std::path::Path::new(&directory).join("began").exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let began = Instant::now();
            let mut request = scene.request("pwd; echo $A; cd /; export A=3");
            request.aside = true;
            let aside = scene.session.run(request);
            assert_eq!(
                aside.outcome.stdout,
                format!("{directory}\n1\n"),
                "{aside:?}"
            );
            assert!(began.elapsed() < Duration::from_secs(3), "it waited");
            long.join().expect("a thread")
        });
        assert_eq!(long.outcome.status, Status::Timeout);
        let next = scene.sh("pwd; echo $A");
        assert_eq!(next.outcome.stdout, format!("{directory}\n1\n"), "{next:?}");
    }
}
