//! One table for people, one file for programs.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use super::host::Host;
use super::statistics::Statistics;
use super::{FLOOR, PROGRAM, Row, Yardstick};

/// All figures of one run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: u32,
    host: Host,
    load_after: [f64; 3],
    program: &'static str,
    rounds: usize,
    rows: Vec<Figure>,
    absolutes: Vec<Absolute>,
}

/// A figure that is no ratio: it says something on a quiet machine only.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Absolute {
    name: &'static str,
    unit: &'static str,
    value: Option<f64>,
    /// Why there is no figure.
    unmeasured: Option<String>,
    bar: f64,
    /// Whether the bar is the least, not the most.
    at_least: bool,
}

impl Absolute {
    /// Must not exceed its bar.
    pub(super) fn at_most(
        name: &'static str,
        unit: &'static str,
        bar: f64,
        value: Result<f64, String>,
    ) -> Self {
        let (value, unmeasured) = match value {
            Ok(value) => (Some(value), None),
            Err(reason) => (None, Some(reason)),
        };
        Self {
            name,
            unit,
            value,
            unmeasured,
            bar,
            at_least: false,
        }
    }

    /// Must not stay below its bar.
    pub(super) fn at_least(
        name: &'static str,
        unit: &'static str,
        bar: f64,
        value: Result<f64, String>,
    ) -> Self {
        Self {
            at_least: true,
            ..Self::at_most(name, unit, bar, value)
        }
    }

    fn holds(&self) -> bool {
        self.value.is_some_and(|value| {
            if self.at_least {
                value >= self.bar
            } else {
                value <= self.bar
            }
        })
    }
}

/// One line of the table. Times are milliseconds.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    /// Why there is no figure.
    unmeasured: Option<String>,
    count: usize,
    median_ms: Option<f64>,
    p95_ms: Option<f64>,
    against: Option<&'static str>,
    ratio: Option<f64>,
    /// Milliseconds more than the yardstick, where the bar is of that.
    more_ms: Option<f64>,
    bar: Option<f64>,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// A yardstick.
    None,
    Holds,
    Exceeds,
    Unmeasured,
}

impl Report {
    pub(super) fn new(
        host: Host,
        load_after: [f64; 3],
        rounds: usize,
        rows: &[Row],
        absolutes: Vec<Absolute>,
    ) -> Self {
        let rows = rows.iter().map(|row| figure(row, rows)).collect();
        Self {
            schema: 1,
            host,
            load_after,
            program: PROGRAM,
            rounds,
            rows,
            absolutes,
        }
    }

    /// Whether every figure was measured and is within its bar.
    pub(super) fn holds(&self) -> bool {
        self.absolutes.iter().all(Absolute::holds)
            && !self.rows.is_empty()
            && self
                .rows
                .iter()
                .all(|row| matches!(row.verdict, Verdict::None | Verdict::Holds))
    }

    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn figure(row: &Row, rows: &[Row]) -> Figure {
    let statistics = |row: &Row| Statistics::of(row.measured.as_deref().ok()?);
    let own = statistics(row);
    let against = match row.yardstick {
        Yardstick::Floor => Some(FLOOR),
        Yardstick::Plain(name) | Yardstick::Over(name) => Some(name),
        Yardstick::Itself => None,
    };
    let base = against.and_then(|name| statistics(rows.iter().find(|row| row.name == name)?));
    let ratio = own.zip(base).map(|(own, base)| own.median / base.median);
    let more = own.zip(base).map(|(own, base)| own.median - base.median);
    let more = more.filter(|_| matches!(row.yardstick, Yardstick::Over(_)));
    let verdict = match (own, more.or(ratio), row.bar) {
        (None, ..) | (_, None, Some(_)) => Verdict::Unmeasured,
        (_, Some(figure), Some(bar)) if figure > bar => Verdict::Exceeds,
        (_, Some(_), Some(_)) => Verdict::Holds,
        (_, _, None) => Verdict::None,
    };
    Figure {
        name: row.name,
        unmeasured: row.measured.as_ref().err().cloned(),
        count: own.map_or(0, |own| own.count),
        median_ms: own.map(|own| own.median),
        p95_ms: own.map(|own| own.p95),
        against,
        ratio,
        more_ms: more,
        bar: row.bar,
        verdict,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host {
            kernel,
            processors,
            bwrap,
            load,
        } = &self.host;
        let cores = if *processors == 1 {
            "processor"
        } else {
            "processors"
        };
        writeln!(out, "Linux {kernel}, {processors} {cores}, {bwrap}")?;
        let [before, after] = [load[0], self.load_after[0]];
        writeln!(
            out,
            "{} rounds of {PROGRAM}, load {before:.2} to {after:.2}",
            self.rounds
        )?;
        let width = self
            .rows
            .iter()
            .map(|row| row.name.len())
            .max()
            .unwrap_or_default();
        writeln!(out, "\n{:width$}  median ms  p95 ms  ratio    bar", "")?;
        for row in &self.rows {
            write!(out, "{:width$}", row.name)?;
            match (&row.unmeasured, row.median_ms, row.p95_ms) {
                (None, Some(median), Some(p95)) => write!(out, "  {median:9.3}  {p95:6.3}")?,
                (reason, ..) => {
                    writeln!(
                        out,
                        "  not measured: {}",
                        reason.as_deref().unwrap_or("no round")
                    )?;
                    continue;
                }
            }
            match (row.ratio, row.bar) {
                (Some(ratio), Some(bar)) => {
                    let unit = match row.more_ms {
                        Some(more) => format!(" ms more ({more:.3})"),
                        None => String::new(),
                    };
                    let says = if row.verdict == Verdict::Holds {
                        ""
                    } else {
                        "  EXCEEDS"
                    };
                    writeln!(out, "  {ratio:5.2}  {bar:5.2}{unit}{says}")?;
                }
                (Some(ratio), None) => writeln!(out, "  {ratio:5.2}")?,
                (None, _) => writeln!(out)?,
            }
        }
        if !self.absolutes.is_empty() {
            writeln!(out, "\nby themselves:")?;
        }
        for one in &self.absolutes {
            write!(out, "{:width$}", one.name)?;
            let Some(value) = one.value else {
                let reason = one.unmeasured.as_deref().unwrap_or("no round");
                writeln!(out, "  not measured: {reason}")?;
                continue;
            };
            let word = if one.at_least { "at least" } else { "at most" };
            let says = if one.holds() { "" } else { "  MISSED" };
            let unit = one.unit;
            writeln!(out, "  {value:9.2} {unit}, {word} {}{says}", one.bar)?;
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(name: &'static str, yardstick: Yardstick, bar: Option<f64>, ms: &[u64]) -> Row {
        let times = ms.iter().map(|&ms| Duration::from_millis(ms)).collect();
        Row {
            name,
            yardstick,
            bar,
            measured: Ok(times),
        }
    }

    fn report(rows: &[Row]) -> Report {
        let host = Host {
            kernel: String::new(),
            processors: 2,
            bwrap: String::new(),
            load: [0.0; 3],
        };
        Report::new(host, [0.0; 3], 1, rows, Vec::new())
    }

    #[test]
    fn a_ratio_is_median_over_median_of_its_yardstick() {
        let floor = row(FLOOR, Yardstick::Itself, None, &[2, 2, 9]);
        let ours = row("ours", Yardstick::Floor, Some(1.4), &[3, 3, 3]);
        let report = report(&[floor, ours]);
        assert_eq!(report.rows[1].ratio, Some(1.5));
        assert_eq!(report.rows[1].verdict, Verdict::Exceeds);
        assert!(!report.holds());
        assert!(report.to_string().contains("EXCEEDS"));
    }

    #[test]
    fn a_figure_that_could_not_be_measured_does_not_hold() {
        let floor = row(FLOOR, Yardstick::Itself, None, &[2]);
        let mut ours = row("ours", Yardstick::Floor, Some(1.4), &[]);
        ours.measured = Err("bwrap is not installed".to_owned());
        let report = report(&[floor, ours]);
        assert!(!report.holds());
        assert!(
            report
                .to_string()
                .contains("not measured: bwrap is not installed")
        );
    }

    #[test]
    fn milliseconds_more_are_compared_where_the_bar_is_of_them() {
        let bare = || row("bare", Yardstick::Itself, None, &[1]);
        let ours = |ms| row("ours", Yardstick::Over("bare"), Some(1.0), &[ms]);
        assert!(report(&[bare(), ours(2)]).holds());
        let report = report(&[bare(), ours(3)]);
        assert!(!report.holds());
        assert!(report.to_string().contains("ms more (2.000)  EXCEEDS"));
    }

    #[test]
    fn figures_within_their_bars_hold() {
        let rows = [
            row(FLOOR, Yardstick::Itself, None, &[10]),
            row("ours", Yardstick::Floor, Some(1.4), &[14]),
        ];
        assert!(report(&rows).holds());
    }

    #[test]
    fn a_figure_by_itself_is_held_to_its_bar() {
        let least = |value| Absolute::at_least("rate", "/s", 10.0, Ok(value));
        assert!(least(10.0).holds() && !least(9.9).holds());
        let most = |value| Absolute::at_most("time", "ms", 10.0, value);
        assert!(most(Ok(10.0)).holds() && !most(Ok(10.1)).holds());
        assert!(!most(Err("none".to_owned())).holds());
    }
}
