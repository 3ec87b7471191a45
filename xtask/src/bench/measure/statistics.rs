//! Median and percentile of a handful of times.

use std::time::Duration;

/// What a list of times comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Statistics {
    /// How many there were.
    pub(super) count: usize,
    /// Milliseconds.
    pub(super) median: f64,
    /// Milliseconds.
    pub(super) p95: f64,
}

impl Statistics {
    /// Of at least one time; nothing for none.
    pub(super) fn of(times: &[Duration]) -> Option<Self> {
        let mut sorted: Vec<f64> = times
            .iter()
            .map(|time| time.as_secs_f64() * 1000.0)
            .collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            count: sorted.len(),
            median: percentile(&sorted, 50)?,
            p95: percentile(&sorted, 95)?,
        })
    }
}

/// The smallest value that this percentage of all values does not exceed.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let times: Vec<Duration> = (1..=20).rev().map(Duration::from_millis).collect();
        let expected = Statistics {
            count: 20,
            median: 10.0,
            p95: 19.0,
        };
        assert_eq!(Statistics::of(&times), Some(expected));
        assert_eq!(Statistics::of(&[]), None);
        let one = Statistics::of(&[Duration::from_millis(3)]);
        assert_eq!(
            one,
            Some(Statistics {
                count: 1,
                median: 3.0,
                p95: 3.0
            })
        );
    }
}
