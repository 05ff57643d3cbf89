//! The median of a row's samples and its standard error.

use super::ResultRow;

/// Median, shortest time and noise of a row, microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Median.
    pub median: f64,
    /// Shortest time.
    pub best: f64,
    /// Standard error of the median. For a row without samples: the distance from the median to the
    /// best time, which is larger.
    pub noise: f64,
    /// Number of samples; 0 if they were not kept.
    pub samples: usize,
}

/// Standard errors between two medians that count as a difference; of normal noise one pair in 370
/// is that far apart.
const ERRORS: f64 = 3.0;

/// Relative difference that never counts, whatever the noise; clocks vary by as much.
const LEAST: f64 = 0.01;

impl Summary {
    /// Summarises the times of a row; `None` if it has no time.
    ///
    /// ```
    /// use tilewright::results::{ResultRow, Summary};
    /// let row = ResultRow { samples_us: vec![5.0, 4.0, 6.0, 5.0, 5.0], ..ResultRow::default() };
    /// assert_eq!(Summary::of(&row).unwrap().median, 5.0);
    /// assert_eq!(Summary::of(&ResultRow::default()), None);
    /// ```
    pub fn of(row: &ResultRow) -> Option<Summary> {
        let mut samples: Vec<f64> = row.samples_us.iter().copied().filter(|sample| sample.is_finite()).collect();
        samples.sort_by(f64::total_cmp);
        let Some((&best, &middle)) = samples.first().zip(samples.get(samples.len() / 2)) else {
            let median = row.median_us.filter(|median| median.is_finite())?;
            let best = row.best_us.unwrap_or(median);
            return Some(Summary { median, best, noise: (median - best).max(0.0), samples: 0 });
        };
        let median = row.median_us.unwrap_or(middle);
        let mut away: Vec<f64> = samples.iter().map(|sample| (sample - median).abs()).collect();
        away.sort_by(f64::total_cmp);
        // 1.4826 times the median deviation is a normal distribution's sigma; a median's error is
        // 1.2533 times a mean's.
        let sigma = 1.4826 * away[away.len() / 2];
        let noise = match samples.len() {
            1 | 2 => median - best,
            count => 1.2533 * sigma / (count as f64).sqrt(),
        };
        Some(Summary { median, best, noise, samples: samples.len() })
    }
}

/// Whether two medians differ by more than their noise, and by more than 1 %.
///
/// The standard errors add in squares; a distance of more than three of the sum is a difference.
/// The dashboard's script has the same rule.
///
/// ```
/// use tilewright::results::{Summary, difference_is_significant};
/// let summary = |median, noise| Summary { median, best: median, noise, samples: 20 };
/// assert!(difference_is_significant(summary(100.0, 0.5), summary(104.0, 0.5)));
/// assert!(!difference_is_significant(summary(100.0, 2.0), summary(104.0, 0.5)));
/// assert!(!difference_is_significant(summary(100.0, 0.0), summary(100.9, 0.0)));
/// ```
pub fn difference_is_significant(a: Summary, b: Summary) -> bool {
    let difference = (a.median - b.median).abs();
    difference > ERRORS * a.noise.hypot(b.noise) && difference > LEAST * a.median.min(b.median)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(samples_us: Vec<f64>) -> ResultRow {
        ResultRow { samples_us, ..ResultRow::default() }
    }

    proptest! {
        #[test]
        fn a_summary_does_not_depend_on_order_and_scales_with_its_samples(
            mut samples in prop::collection::vec(1.0f64..1e6, 1..40), scale in 0.1f64..10.0,
        ) {
            let summary = Summary::of(&row(samples.clone())).unwrap();
            prop_assert!(summary.best <= summary.median && summary.noise >= 0.0);
            let scaled = Summary::of(&row(samples.iter().map(|s| s * scale).collect())).unwrap();
            prop_assert!((scaled.median - summary.median * scale).abs() <= 1e-9 * scaled.median);
            prop_assert!((scaled.noise - summary.noise * scale).abs() <= 1e-9 * scaled.median);
            samples.reverse();
            prop_assert_eq!(Summary::of(&row(samples)).unwrap(), summary);
        }

        #[test]
        fn a_row_equals_itself_and_differences_are_symmetric(
            a in 1.0f64..1e3, b in 1.0f64..1e3, noises in (0.0f64..10.0, 0.0f64..10.0),
        ) {
            let summary = |median, noise| Summary { median, best: median, noise, samples: 9 };
            let a = summary(a, noises.0);
            let b = summary(b, noises.1);
            prop_assert!(!difference_is_significant(a, a));
            prop_assert_eq!(difference_is_significant(a, b), difference_is_significant(b, a));
        }
    }

    #[test]
    fn rows_without_samples_take_the_distance_to_the_best_as_noise() {
        let old = ResultRow { median_us: Some(10.0), best_us: Some(9.5), ..ResultRow::default() };
        assert_eq!(Summary::of(&old), Some(Summary { median: 10.0, best: 9.5, noise: 0.5, samples: 0 }));
    }
}
