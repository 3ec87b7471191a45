//! Counts the tests of a run. A test that cannot run on this host prints `skipped: why` and passes
//! in the eyes of its runner; here it is counted as what it is, with its reason.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;

/// What `tally` reads.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// nextest's junit.xml, or the output of `cargo test -- --show-output`
    report: PathBuf,
}

/// What a run came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: usize,
    /// Ignored ones have no reason.
    ignored: usize,
    /// Test and reason.
    skipped: Vec<(String, String)>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let report = &arguments.report;
    let bytes = fs::read(report).with_context(|| format!("cannot read {}", report.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    let tally = if text.trim_start().starts_with("<?xml") {
        of_junit(&text)
    } else {
        of_libtest(&text)
    };
    let mut out = std::io::stdout().lock();
    for (test, reason) in &tally.skipped {
        writeln!(out, "skipped {test}: {reason}")?;
    }
    writeln!(
        out,
        "{} passed, {} failed, {} skipped",
        tally.passed,
        tally.failed,
        tally.skipped.len() + tally.ignored
    )?;
    Ok(tally.failed == 0 && tally.passed > 0)
}

/// The reason that a test's output gives for not having run. A runner may have begun the line.
fn reason(output: &str) -> Option<String> {
    output.lines().find_map(|line| {
        let (before, reason) = line.split_once("skipped: ")?;
        let begins = before.trim().is_empty() || before.trim_end().ends_with("...");
        begins.then(|| reason.trim().to_owned())
    })
}

fn of_junit(text: &str) -> Tally {
    let mut tally = Tally::default();
    for case in text.split("<testcase ").skip(1) {
        let case = case.split("</testcase>").next().unwrap_or_default();
        let attribute = |name: &str| {
            let value = case
                .split_once(&format!("{name}=\""))?
                .1
                .split('"')
                .next()?;
            Some(unescape(value))
        };
        let crate_name = attribute("classname").unwrap_or_default();
        let name = format!("{crate_name} {}", attribute("name").unwrap_or_default());
        let head_ends = case.find('>').unwrap_or(case.len());
        let body = if case[..head_ends].ends_with('/') {
            ""
        } else {
            &case[head_ends..]
        };
        if body.contains("<failure") || body.contains("<error") {
            tally.failed += 1;
        } else if let Some(reason) =
            reason(&unescape(&body.replace('>', ">\n").replace('<', "\n<")))
        {
            tally.skipped.push((name, reason));
        } else {
            tally.passed += 1;
        }
    }
    tally
}

fn unescape(text: &str) -> String {
    [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#10;", "\n"),
        ("&amp;", "&"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn of_libtest(text: &str) -> Tally {
    let mut tally = Tally::default();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.split(' ').next())
        {
            name.clone_into(&mut current);
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            tally.passed += count(counts, "passed");
            tally.failed += count(counts, "failed");
            tally.ignored += count(counts, "ignored");
        } else if let Some(reason) = reason(line) {
            tally.skipped.push((current.clone(), reason));
        }
    }
    tally.passed = tally.passed.saturating_sub(tally.skipped.len());
    tally
}

/// The number before a word: 3 in `ok. 3 passed; 0 failed`.
fn count(text: &str, word: &str) -> usize {
    let before = text.split(word).next().unwrap_or_default();
    before
        .split_whitespace()
        .last()
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_is_counted() {
        let text = r#"<?xml version="1.0"?><testsuites><testsuite>
            <testcase name="a::good" classname="core" time="0.1"/>
            <testcase name="a::chatty" classname="core"><system-out>was skipped: x</system-out></testcase>
            <testcase name="b::bad" classname="core"><failure type="x">no</failure></testcase>
            <testcase name="c::off" classname="exec"><system-out>
running 1 test
test c::off ... skipped: no user namespaces (a &lt; b)
</system-out></testcase></testsuite></testsuites>"#;
        let skipped = vec![(
            "exec c::off".to_owned(),
            "no user namespaces (a < b)".to_owned(),
        )];
        assert_eq!(
            of_junit(text),
            Tally {
                passed: 2,
                failed: 1,
                ignored: 0,
                skipped
            }
        );
    }

    #[test]
    fn libtest_is_counted() {
        let text = "---- a::off stdout ----\nskipped: no network\n\n\
                    test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\n\
                    test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured\n";
        let skipped = vec![("a::off".to_owned(), "no network".to_owned())];
        assert_eq!(
            of_libtest(text),
            Tally {
                passed: 3,
                failed: 2,
                ignored: 1,
                skipped
            }
        );
    }
}
