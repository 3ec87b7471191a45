//! The house rules, each a pure function from the tree to findings.

mod arrows;
mod capabilities;
mod cases;
mod dependencies;
mod errors;
mod length;
mod licences;
mod links;
mod rooms;
mod schema;
mod source;
mod tree;

use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

/// What `check` is asked to do.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run clippy over the workspace too, warnings refused
    #[arg(long)]
    lints: bool,
    /// Leave formatting to the caller
    #[arg(long)]
    skip_format: bool,
    /// Leave out the checks that start the cofferdam binary
    #[arg(long)]
    skip_binary: bool,
}

/// One violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Where, as a path from the root, with a line where there is one.
    place: String,
    /// What is wrong there, and what to do.
    message: String,
}

impl Finding {
    fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.message)
    }
}

/// What one check came to.
#[derive(Debug)]
enum Verdict {
    /// Holds, with a figure or a list worth knowing.
    Good(String),
    /// Does not hold.
    Bad(Vec<Finding>),
}

impl Verdict {
    fn of(findings: Vec<Finding>, good: impl Into<String>) -> Self {
        if findings.is_empty() {
            Self::Good(good.into())
        } else {
            Self::Bad(findings)
        }
    }
}

/// Runs every check, prints what each came to, and says whether all hold.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> anyhow::Result<bool> {
    let tree = tree::Tree::read(root)?;
    let mut report = Report::default();

    if !arguments.skip_format {
        report.add("formatting", cargo(root, &["fmt", "--all", "--check"])?);
    }
    report.add(
        "arrows",
        Verdict::of(arrows::check(&tree), arrows::summary(&tree)),
    );
    report.add(
        "rooms",
        Verdict::of(
            rooms::check(&tree),
            "unsafe, processes and runtimes in place",
        ),
    );
    report.add(
        "file length",
        Verdict::of(length::check(&tree), length::summary(&tree)),
    );
    report.add(
        "unused dependencies",
        Verdict::of(dependencies::check(&tree), "every dependency is used"),
    );
    report.add("licences", licences::check(root)?);
    report.add("capabilities", capabilities::check(root, &tree)?);
    report.add("field cases", cases::check(root, &tree)?);
    report.add("error codes", errors::check(root)?);
    report.add("links", links::check(root)?);
    if !arguments.skip_binary {
        report.add("generated pages", schema::check(root)?);
    }
    if arguments.lints {
        let clippy = ["clippy", "--workspace", "--all-targets", "--all-features"];
        report.add(
            "lints",
            cargo(root, &[&clippy[..], &["--", "-D", "warnings"]].concat())?,
        );
    }
    Ok(report.good)
}

/// Writes what is published from the code: the error codes, the policy's JSON Schema, the OpenAPI
/// document and the reference of operations.
pub(crate) fn write(root: &Path) -> anyhow::Result<bool> {
    errors::write(root)?;
    schema::write(root)?;
    Ok(true)
}

/// Prints verdicts as they come, and remembers whether all were good.
#[derive(Debug)]
struct Report {
    good: bool,
}

impl Default for Report {
    fn default() -> Self {
        Self { good: true }
    }
}

impl Report {
    fn add(&mut self, name: &str, verdict: Verdict) {
        let mut out = std::io::stdout().lock();
        let _ = match verdict {
            Verdict::Good(figure) => writeln!(out, "ok    {name}: {figure}"),
            Verdict::Bad(findings) => {
                self.good = false;
                let lines: String = findings
                    .iter()
                    .map(|finding| format!("\n        {finding}"))
                    .collect();
                writeln!(out, "FAIL  {name}: {} found{lines}", findings.len())
            }
        };
    }
}

/// Runs cargo with its output shown; the verdict is its exit status.
fn cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<Verdict> {
    let line = format!("cargo {}", arguments.join(" "));
    let status = Command::new("cargo")
        .args(arguments)
        .current_dir(root)
        .status()
        .with_context(|| format!("cannot run {line}"))?;
    Ok(if status.success() {
        Verdict::Good(line)
    } else {
        Verdict::Bad(vec![Finding::new(line, status.to_string())])
    })
}
