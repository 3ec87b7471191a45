//! The figures to hold, measured as ratios within one run.

#[cfg(feature = "plane")]
mod measure;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::target;

/// What `bench` is asked to do.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Exit with 1 where a figure does not hold or could not be measured
    #[arg(long)]
    check: bool,
    /// Where the figures are written, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A fifth of the rounds: for a look, not for a verdict
    #[arg(long)]
    quick: bool,
    /// Rounds to measure
    #[arg(long, value_name = "N", default_value_t = 200)]
    rounds: usize,
    /// Measure only subjects whose name contains this, and their yardsticks; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
}

/// Measures, in a release build of the plane: where this is none, one is built and started.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> anyhow::Result<bool> {
    #[cfg(feature = "plane")]
    if cfg!(not(debug_assertions)) {
        return measure::run(arguments);
    }
    let status = Command::new("cargo")
        .args([
            "build",
            "--release",
            "--package",
            "cofferdam",
            "--package",
            "xtask",
        ])
        .args(["--features", "xtask/plane"])
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the release build failed");
    let program = target().join("release/xtask");
    let status = Command::new(&program)
        .arg("bench")
        .args(arguments.again())
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    Ok(status.success())
}

impl Arguments {
    /// The same, as they were typed.
    fn again(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![format!("--rounds={}", self.rounds).into()];
        if self.check {
            words.push("--check".into());
        }
        if self.quick {
            words.push("--quick".into());
        }
        if let Some(file) = &self.json {
            words.extend(["--json".into(), file.into()]);
        }
        for text in &self.only {
            words.extend(["--only".into(), text.into()]);
        }
        words
    }
}
