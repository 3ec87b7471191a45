//! The figures to hold, measured as ratios within one run.
//!
//! Every round measures each subject once, one after the other, so that what else the machine does
//! falls on all of them alike. A ratio is median over median of the subject's yardstick in the same
//! run; times on their own say more about the machine than about us.

mod agent;
mod echo;
mod files;
mod host;
mod log;
mod many;
mod output;
mod plain;
mod plane;
mod proxy;
mod report;
mod served;
mod statistics;
mod termination;
mod trees;
mod whole;

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::Arguments;
use crate::target;

/// What a subject is measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Yardstick {
    /// Starting and awaiting the same program with posix_spawn.
    Floor,
    /// bubblewrap by itself with the same flags.
    Plain(&'static str),
    /// Another subject, by which the bar is milliseconds more, not a ratio.
    Over(&'static str),
    /// Nothing: it is a yardstick itself.
    Itself,
}

/// Does a thing once, and gives the time it took.
type Run = Box<dyn FnMut() -> anyhow::Result<Duration>>;

/// One thing that is measured.
struct Subject {
    name: &'static str,
    yardstick: Yardstick,
    /// Ratio to the yardstick that must not be exceeded; milliseconds more than it for `Over`.
    bar: Option<f64>,
    /// Does it once and gives the time it took, or why it cannot be done here.
    run: Result<Run, String>,
}

/// A subject with what was measured.
struct Row {
    name: &'static str,
    yardstick: Yardstick,
    bar: Option<f64>,
    measured: Result<Vec<Duration>, String>,
}

/// Rounds that are run first and thrown away.
const WARM_UP: usize = 5;

/// The name of the floor in the table.
const FLOOR: &str = "posix_spawn";

/// What is started: it does nothing, so that what is measured is ours.
const PROGRAM: &str = "/bin/true";

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let directory = tempfile::tempdir().context("cannot make a scratch directory")?;
    let workspace = directory.path().join("workspace");
    std::fs::create_dir(&workspace)?;

    let mut subjects = vec![plain::floor()];
    subjects.extend(plane::subjects(directory.path(), &workspace));
    subjects.extend(whole::subjects(directory.path(), &workspace));
    subjects.extend(echo::subjects(directory.path(), &workspace));
    subjects.extend(agent::subjects(directory.path()));
    let through = proxy::Through::start();
    subjects.extend(through.subjects());
    subjects.extend(termination::subjects());
    let server = served::Server::start(directory.path(), &workspace, arguments.quick);
    subjects.push(server.subject());
    subjects.extend(output::subjects(directory.path(), &workspace));
    subjects.extend(trees::subjects(directory.path()));
    if !arguments.only.is_empty() {
        let is_asked = |name: &str| arguments.only.iter().any(|text| name.contains(text));
        let names: Vec<&str> = subjects
            .iter()
            .filter(|subject| is_asked(subject.name))
            .flat_map(|subject| match subject.yardstick {
                Yardstick::Plain(name) | Yardstick::Over(name) => [subject.name, name],
                Yardstick::Floor | Yardstick::Itself => [subject.name, FLOOR],
            })
            .collect();
        subjects.retain(|subject| names.contains(&subject.name));
    }

    let rounds = if arguments.quick {
        arguments.rounds.div_ceil(5)
    } else {
        arguments.rounds
    };
    let before = host::Host::look();
    let rows = measure(subjects, rounds);
    let absolutes = absolutes(arguments, &server, &through, directory.path(), &workspace);
    let report = report::Report::new(before, host::load(), rounds, &rows, absolutes);

    let mut out = std::io::stdout().lock();
    write!(out, "{report}")?;
    let path = arguments
        .json
        .clone()
        .unwrap_or_else(|| target().join("bench.json"));
    report.write(&path)?;
    writeln!(out, "figures in {}", path.display())?;
    Ok(!arguments.check || report.holds())
}

/// Measures what is no ratio; a part of it where `--only` names one.
fn absolutes(
    arguments: &Arguments,
    server: &served::Server,
    through: &proxy::Through,
    scratch: &Path,
    workspace: &Path,
) -> Vec<report::Absolute> {
    let quick = arguments.quick;
    let parts: [(&str, &dyn Fn() -> Vec<report::Absolute>); 7] = [
        ("HTTP", &|| server.absolutes()),
        ("proxy", &|| through.absolutes()),
        ("enclosures", &|| {
            many::enclosures(scratch, workspace, quick)
        }),
        ("at once", &|| many::throughput(scratch, workspace, quick)),
        ("sessions", &|| many::sessions(scratch, workspace, quick)),
        ("worktrees", &|| trees::at_once(scratch)),
        ("journal", &|| log::journal(scratch, quick)),
    ];
    let only = &arguments.only;
    let is_asked = |name: &str| only.is_empty() || only.iter().any(|text| text == name);
    parts
        .iter()
        .filter(|(name, _)| is_asked(name))
        .flat_map(|(_, measure)| measure())
        .collect()
}

/// Runs the first rounds for real, one of the warm-up included; later ones give their median again.
/// For what takes long enough that few rounds say enough.
fn few(mut run: Run, rounds: usize) -> Run {
    let mut calls = 0;
    let mut times: Vec<Duration> = Vec::new();
    Box::new(move || {
        calls += 1;
        if calls == 1 || (calls > WARM_UP && times.len() < rounds) {
            let time = run()?;
            if calls > WARM_UP {
                times.push(time);
            }
            return Ok(time);
        }
        times.sort();
        Ok(times.get(times.len() / 2).copied().unwrap_or_default())
    })
}

/// Why something cannot be measured, in words.
fn told<T>(made: anyhow::Result<T>) -> Result<T, String> {
    made.map_err(|error| format!("{error:#}"))
}

/// Measures each subject once a round. One that fails is not tried again.
fn measure(subjects: Vec<Subject>, rounds: usize) -> Vec<Row> {
    let mut running: Vec<_> = subjects
        .into_iter()
        .map(|subject| {
            let Subject {
                name,
                yardstick,
                bar,
                run,
            } = subject;
            let (run, measured) = match run {
                Ok(run) => (Some(run), Ok(Vec::with_capacity(rounds))),
                Err(reason) => (None, Err(reason)),
            };
            (
                run,
                Row {
                    name,
                    yardstick,
                    bar,
                    measured,
                },
            )
        })
        .collect();
    for round in 0..WARM_UP + rounds {
        progress(round, WARM_UP + rounds);
        for (run, row) in &mut running {
            let Some(once) = run else { continue };
            match (once(), &mut row.measured) {
                (Ok(time), Ok(times)) if round >= WARM_UP => times.push(time),
                (Ok(_), _) => {}
                (Err(error), measured) => {
                    *measured = Err(format!("{error:#}"));
                    *run = None;
                }
            }
        }
    }
    running.into_iter().map(|(_, row)| row).collect()
}

fn progress(round: usize, rounds: usize) {
    let mut err = std::io::stderr();
    if std::io::IsTerminal::is_terminal(&err) {
        let end = if round + 1 == rounds { "\r\x1b[K" } else { "" };
        let _ = write!(err, "\rround {} of {rounds}{end}", round + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(
        name: &'static str,
        run: impl FnMut() -> anyhow::Result<Duration> + 'static,
    ) -> Subject {
        Subject {
            name,
            yardstick: Yardstick::Floor,
            bar: None,
            run: Ok(Box::new(run)),
        }
    }

    #[test]
    fn a_subject_that_fails_is_reported_and_the_others_go_on() {
        let mut calls = 0;
        let failing = subject("failing", move || {
            calls += 1;
            if calls < WARM_UP + 3 {
                Ok(Duration::from_millis(1))
            } else {
                anyhow::bail!("broken")
            }
        });
        let rows = measure(
            vec![failing, subject("good", || Ok(Duration::from_millis(2)))],
            10,
        );
        assert_eq!(
            rows[0].measured.as_ref().err().map(String::as_str),
            Some("broken")
        );
        assert_eq!(rows[1].measured.as_ref().map(Vec::len), Ok(10));
    }
}
