//! `cargo xtask`: the checks that keep the house in order, and the figures to hold.
#![expect(
    clippy::disallowed_methods,
    reason = "development only: starts cargo, git and what is measured, and reads cargo's variables"
)]

mod bench;
mod check;
mod tally;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Checks and measurements for Cofferdam's developers.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Hold the tree against the house rules.
    Check(check::Arguments),
    /// Measure the figures to hold, as ratios within one run.
    Bench(bench::Arguments),
    /// Count the tests of a run, and say which could not run here and why.
    Tally(tally::Arguments),
    /// Write the pages that come from the code: docs/errors.md, docs/policy.schema.json,
    /// docs/openapi.json, docs/reference.md.
    Write,
}

fn main() -> ExitCode {
    let root = root();
    let outcome = match Arguments::parse().task {
        Task::Check(arguments) => check::run(&root, &arguments),
        Task::Bench(arguments) => bench::run(&root, &arguments),
        Task::Tally(arguments) => tally::run(&arguments),
        Task::Write => check::write(&root),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The workspace's root, found from where this crate was built.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The target directory that this program was built into.
fn target() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("target"))
        .to_path_buf()
}
