//! Many at once: enclosures that stand side by side, commands that run beside each other, and
//! sessions that must not wait for one another.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::event::Subject;
use cofferdam_core::outcome::Status;
use cofferdam_core::policy::{Caches, ProviderChoice};
use cofferdam_core::spec::EnclosureSpec;
use cofferdam_exec::{Enclosure, Plane, Session, SessionKind, SessionRun};

use super::plane::{command, completed, open, planned, requested, spec};
use super::report::Absolute;
use super::{PROGRAM, told};

/// Enclosures that stand at once.
const STANDING: usize = 400;
/// Of these, how many are timed while they are put up.
const TIMED: usize = 200;
/// Commands at once in one enclosure.
const AT_ONCE: usize = 32;
/// Commands of a session beside busy loops.
const COMMANDS: usize = 10_000;

const MEBIBYTE: f64 = 1024.0 * 1024.0;

fn enclose(plane: &Plane, spec: &EnclosureSpec) -> anyhow::Result<Enclosure> {
    Ok(plane.enclose(spec.clone(), requested(), &Subject::default())?)
}

fn walls(data: &Path, workspace: &Path) -> anyhow::Result<(Plane, EnclosureSpec)> {
    let plane = open(data)?;
    let spec = spec(ProviderChoice::Bwrap, Caches::None, data, workspace)?;
    Ok((plane, spec))
}

/// Puts many enclosures up; `quick` a quarter of them.
pub(super) fn enclosures(scratch: &Path, workspace: &Path, quick: bool) -> Vec<Absolute> {
    let count = if quick { STANDING / 4 } else { STANDING };
    let measured = told(standing(&scratch.join("many"), workspace, count));
    let part = |value: &dyn Fn(&Stood) -> f64| measured.as_ref().map(value).map_err(Clone::clone);
    vec![
        Absolute::at_least(
            "enclosures at once",
            "",
            count as f64,
            part(&|one| one.count as f64),
        ),
        Absolute::at_most("200 enclosures put up", "s", 1.3, part(&|one| one.put_up)),
        Absolute::at_most("each of them", "MiB", 1.0, part(&|one| one.each)),
    ]
}

struct Stood {
    count: usize,
    /// Seconds for as many as are timed.
    put_up: f64,
    /// Proportional share of memory of one, in MiB.
    each: f64,
}

fn standing(data: &Path, workspace: &Path, count: usize) -> anyhow::Result<Stood> {
    let (plane, spec) = walls(data, workspace)?;
    completed(&command(
        &enclose(&plane, &spec)?,
        &spec.workspace,
        &[PROGRAM],
    ))?;
    let before = below(std::process::id());
    let workers = std::thread::available_parallelism()?.get();
    let all = Mutex::new(Vec::with_capacity(count));
    let put_up = |number: usize| -> anyhow::Result<Duration> {
        let left = AtomicUsize::new(number);
        let begin = Instant::now();
        std::thread::scope(|threads| {
            let running: Vec<_> = (0..workers)
                .map(|_| {
                    threads.spawn(|| -> anyhow::Result<()> {
                        let take = |left: usize| left.checked_sub(1);
                        let order = Ordering::Relaxed;
                        while left.fetch_update(order, order, take).is_ok() {
                            let one = enclose(&plane, &spec)?;
                            all.lock()
                                .map_err(|_| anyhow::anyhow!("poisoned"))?
                                .push(one);
                        }
                        Ok(())
                    })
                })
                .collect();
            for one in running {
                one.join().map_err(|_| anyhow::anyhow!("a thread died"))??;
            }
            anyhow::Ok(())
        })?;
        Ok(begin.elapsed())
    };
    let timed = count.min(TIMED);
    let took = put_up(timed)?;
    put_up(count - timed)?;
    let mut all = all.into_inner().map_err(|_| anyhow::anyhow!("poisoned"))?;
    // Each of them works.
    for one in all.iter().step_by(count / 20) {
        completed(&command(one, &spec.workspace, &[PROGRAM]))?;
    }
    let bytes: u64 = below(std::process::id())
        .into_iter()
        .filter(|pid| !before.contains(pid))
        .filter_map(proportional)
        .sum();
    ensure!(bytes > 0, "the memory of keepers cannot be read");
    let stood = Stood {
        count: all.len(),
        put_up: took.as_secs_f64() * TIMED as f64 / timed as f64,
        each: bytes as f64 / all.len() as f64 / MEBIBYTE,
    };
    all.drain(..).for_each(drop);
    Ok(stood)
}

/// Lists the processes below one.
fn below(parent: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{parent}/task"));
    let children = threads.into_iter().flatten().flatten().flat_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        text.split_whitespace()
            .filter_map(|one| one.parse().ok())
            .collect::<Vec<u32>>()
    });
    children
        .collect::<Vec<_>>()
        .into_iter()
        .flat_map(|one| [vec![one], below(one)].concat())
        .collect()
}

/// Reads the proportional share of memory of a process, in bytes.
fn proportional(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(number * 1024)
}

/// Compares so many commands at once in one enclosure with the same number of plain processes, in
/// turns.
pub(super) fn throughput(scratch: &Path, workspace: &Path, quick: bool) -> Vec<Absolute> {
    let turns = if quick { 3 } else { 7 };
    let measured = told(beside(&scratch.join("beside"), workspace, turns));
    vec![Absolute::at_least(
        "32 at once, bwrap",
        "of the floor's rate",
        0.7,
        measured,
    )]
}

fn beside(data: &Path, workspace: &Path, turns: usize) -> anyhow::Result<f64> {
    const EACH: usize = 20;
    let (plane, spec) = walls(data, workspace)?;
    let enclosure = enclose(&plane, &spec)?;
    let at_once = |once: &(dyn Fn() -> anyhow::Result<()> + Sync)| -> anyhow::Result<f64> {
        let begin = Instant::now();
        std::thread::scope(|threads| {
            let running: Vec<_> = (0..AT_ONCE)
                .map(|_| threads.spawn(|| (0..EACH).try_for_each(|_| once())))
                .collect();
            for one in running {
                one.join().map_err(|_| anyhow::anyhow!("a thread died"))??;
            }
            anyhow::Ok(())
        })?;
        Ok((AT_ONCE * EACH) as f64 / begin.elapsed().as_secs_f64())
    };
    let floor = || -> anyhow::Result<()> {
        let status = Command::new(PROGRAM).status()?;
        ensure!(status.success(), "the floor failed");
        Ok(())
    };
    let ours = || completed(&command(&enclosure, &spec.workspace, &[PROGRAM]));
    at_once(&ours)?;
    let mut ratios: Vec<f64> = (0..turns)
        .map(|_| anyhow::Ok(at_once(&ours)? / at_once(&floor)?))
        .collect::<Result<_, _>>()?;
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[ratios.len() / 2])
}

/// Sessions: one that does not wait for another, and one beside busy loops.
pub(super) fn sessions(scratch: &Path, workspace: &Path, quick: bool) -> Vec<Absolute> {
    let data = scratch.join("sessions");
    let count = if quick { COMMANDS / 5 } else { COMMANDS };
    let waited = told(waiting(&data, workspace));
    let busy = told(busy(&data, workspace, count));
    let part = |value: &dyn Fn(&Busy) -> f64| busy.as_ref().map(value).map_err(Clone::clone);
    vec![
        Absolute::at_most("session B waits while A sleeps", "ms", 5.0, waited),
        Absolute::at_most(
            "session commands beside busy loops, failed",
            "",
            0.0,
            part(&|one| one.failed as f64),
        ),
        Absolute::at_most(
            "resident, added by these",
            "MiB",
            16.0,
            part(&|one| one.added),
        ),
    ]
}

fn session(plane: &Plane, spec: &EnclosureSpec) -> anyhow::Result<Session> {
    let kind = SessionKind::Shell {
        shell: BytePath::from("/bin/bash"),
    };
    Ok(Session::new(enclose(plane, spec)?, kind))
}

fn sh(session: &Session, workspace: &BytePath, script: &str) -> cofferdam_exec::SessionEnd {
    session.run(SessionRun {
        run: planned(workspace, &[PROGRAM]),
        script: Some(script.to_owned()),
        shell: BytePath::from("/bin/bash"),
        has_directory: false,
        aside: false,
        patience: None,
    })
}

/// Milliseconds by which the slowest of a hundred commands is slower while another session sleeps.
fn waiting(data: &Path, workspace: &Path) -> anyhow::Result<f64> {
    let (plane, spec) = walls(data, workspace)?;
    let (first, second) = (session(&plane, &spec)?, session(&plane, &spec)?);
    let hundred = || -> anyhow::Result<f64> {
        let mut times = Vec::with_capacity(100);
        for _ in 0..100 {
            let begin = Instant::now();
            completed(&sh(&second, &spec.workspace, ":").outcome)?;
            times.push(begin.elapsed().as_secs_f64() * 1000.0);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[98])
    };
    hundred()?;
    let alone = hundred()?;
    let beside = std::thread::scope(|threads| {
        let sleeping = threads.spawn(|| sh(&first, &spec.workspace, "sleep 1.5"));
        std::thread::sleep(Duration::from_millis(100));
        let times = hundred()?;
        ensure!(
            !sleeping.is_finished(),
            "the other one did not sleep as long"
        );
        let end = sleeping
            .join()
            .map_err(|_| anyhow::anyhow!("a thread died"))?;
        completed(&end.outcome)?;
        Ok(times)
    })?;
    Ok((beside - alone).max(0.0))
}

struct Busy {
    failed: usize,
    /// MiB more after all than after a tenth.
    added: f64,
}

fn busy(data: &Path, workspace: &Path, count: usize) -> anyhow::Result<Busy> {
    let (plane, spec) = walls(data, workspace)?;
    let session = session(&plane, &spec)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let mut failed = 0;
        let mut early = None;
        for number in 0..count {
            let end = sh(&session, &spec.workspace, &format!("echo {number}"));
            let good = end.outcome.status == Status::Completed
                && end.outcome.stdout == format!("{number}\n");
            failed += usize::from(!good);
            if number == count / 10 {
                early = resident();
            }
        }
        stop.store(true, Ordering::Relaxed);
        let (early, late) = early.zip(resident()).context("no resident set")?;
        Ok(Busy {
            failed,
            added: (late - early).max(0.0),
        })
    })
}

/// Reads the resident set of this process, in MiB.
fn resident() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes / 1024.0)
}
