//! Field cases of single commands that need many of them, or odd bytes.

use std::time::{Duration, Instant};

use cofferdam_core::event::Subject;
use cofferdam_core::outcome::{EndedBy, IsolationLevel, Status};
use cofferdam_core::spec::{Network, ProviderKind};
use cofferdam_exec::{CommandIo, Control, Enclosure, OutputSink, Plane, Run, TerminalSize};

use crate::smoke::{capture, command, plane, spec};
use crate::worktree::bwrap_works;

struct Place {
    enclosure: Enclosure,
    workspace: tempfile::TempDir,
    _plane: Plane,
    _data: tempfile::TempDir,
}

impl Place {
    fn new(provider: ProviderKind) -> Self {
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
        Self {
            enclosure,
            workspace,
            _plane: plane,
            _data: data,
        }
    }

    fn run(&self, words: &[&str]) -> cofferdam_core::outcome::CommandOutcome {
        capture(&self.enclosure, command(self.workspace.path(), words))
    }
}

fn providers() -> Vec<ProviderKind> {
    let mut all = vec![ProviderKind::Direct, ProviderKind::Landlock];
    if bwrap_works() {
        all.push(ProviderKind::Bwrap);
    }
    all
}

fn entries(what: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{what}")).map_or(0, Iterator::count)
}

/// Counts the zombies below this process, at any depth.
fn zombies() -> usize {
    fn below(parent: u32) -> usize {
        let threads = std::fs::read_dir(format!("/proc/{parent}/task"));
        let children = threads.into_iter().flatten().flatten().flat_map(|thread| {
            let text = std::fs::read_to_string(thread.path().join("children"));
            let text = text.unwrap_or_default();
            let all: Vec<u32> = text
                .split_whitespace()
                .filter_map(|one| one.parse().ok())
                .collect();
            all
        });
        let children: Vec<u32> = children.collect();
        children
            .into_iter()
            .map(|pid| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                let dead = stat
                    .rsplit(") ")
                    .next()
                    .is_some_and(|rest| rest.starts_with('Z'));
                usize::from(dead) + below(pid)
            })
            .sum()
    }
    below(std::process::id())
}

struct Nowhere;

impl OutputSink for Nowhere {
    fn write(&mut self, _: cofferdam_exec::Stream, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn fc_70_b9_two_thousand_runs_and_terminals_leave_nothing() {
    let place = Place::new(ProviderKind::Direct);
    let run = || {
        let outcome = place.run(&["true"]);
        assert_eq!(outcome.ended_by, Some(EndedBy::Itself), "{outcome:?}");
    };
    let terminal = || {
        let input = std::fs::File::open("/dev/null").expect("there").into();
        let outcome = place.enclosure.run(Run {
            command: command(place.workspace.path(), &["true"]),
            subject: Subject::default(),
            io: CommandIo::Terminal {
                input,
                size: TerminalSize {
                    rows: 24,
                    columns: 80,
                },
                sink: &mut Nowhere,
            },
            control: Control::new(),
            timeout_clamped: false,
        });
        assert_eq!(outcome.status, Status::Completed, "{outcome:?}");
    };
    let look = || (entries("fd"), entries("task"));
    for _ in 0..20 {
        run();
        terminal();
    }
    let before = look();
    for _ in 0..1000 {
        run();
        terminal();
    }
    assert_eq!(look(), before);
    assert_eq!(zombies(), 0);
}

#[test]
fn b9_a_thousand_orphans_are_reaped_while_their_command_runs() {
    for provider in providers() {
        let place = Place::new(provider);
        let script = "i=0; while [ $i -lt 1000 ]; do (true &); i=$((i+1)); done; sleep 0.1; \
                      grep -sc '^State:.Z' /proc/[0-9]*/status | grep -c ':1$'; true";
        std::thread::scope(|threads| {
            let running = threads.spawn(|| place.run(&["sh", "-c", script]));
            let outcome = running.join().expect("ends");
            assert!(outcome.success, "{provider}: {outcome:?}");
            if provider == ProviderKind::Bwrap {
                assert_eq!(outcome.stdout.trim(), "0", "{outcome:?}");
            }
        });
        assert_eq!(zombies(), 0, "{provider}");
    }
}

#[test]
fn c7_a_character_across_every_border_is_whole() {
    let place = Place::new(ProviderKind::Direct);
    for border in [4096_usize, 8192, 65_536] {
        for shift in 0..5 {
            let text = format!("{}한글🦀é", "a".repeat(border - 3 + shift));
            std::fs::write(place.workspace.path().join("f"), &text).expect("written");
            // As one piece, and byte by byte across the border.
            for words in [
                ["sh", "-c", "cat f"],
                ["sh", "-c", "dd if=f bs=4093 status=none"],
            ] {
                let outcome = place.run(&words);
                let tail = outcome.stdout.as_str();
                assert!(
                    text.ends_with(tail) && tail.ends_with("한글🦀é"),
                    "{border} {shift}"
                );
                assert_eq!(outcome.stdout_full.bytes, text.len() as u64);
                assert!(!outcome.stdout.contains('\u{fffd}'));
            }
        }
    }
}

#[test]
fn fc_90_a_hundred_places_begin_at_once() {
    let top = tempfile::tempdir().expect("a directory");
    let workspace = tempfile::tempdir().expect("a directory");
    let plane = plane(top.path());
    let began = Instant::now();
    std::thread::scope(|threads| {
        for _ in 0..100 {
            threads.spawn(|| {
                let level = IsolationLevel {
                    provider: Some(ProviderKind::Landlock),
                    network: Network::None,
                };
                let spec = spec(ProviderKind::Landlock, workspace.path());
                let enclosure = plane.enclose(spec, level, &Subject::default());
                let enclosure = enclosure.expect("walls");
                let outcome = capture(&enclosure, command(workspace.path(), &["true"]));
                assert!(outcome.success, "{outcome:?}");
            });
        }
    });
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn row_58_the_outcome_says_which_means_ended_the_tree() {
    for provider in providers() {
        let place = Place::new(provider);
        let itself = place.run(&["true"]);
        assert_eq!(itself.ended_by, Some(EndedBy::Itself));
        let swept = place.run(&["sh", "-c", "setsid sleep 60 & exit 0"]);
        assert_eq!(
            swept.ended_by,
            Some(EndedBy::Sweep),
            "{provider}: {swept:?}"
        );
        assert_eq!(swept.leftovers.len(), 1);
        let by = place.enclosure.close();
        let wanted = if provider == ProviderKind::Bwrap {
            EndedBy::Namespace
        } else {
            EndedBy::Sweep
        };
        assert_eq!(by, wanted, "{provider}");
    }
}
