//! Measures the times of steps by width.

use std::collections::BTreeMap;
use std::time::Duration;

/// Steps of a width, and their times: step inputs, the machine, and delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WidthTimes {
    /// Rows of the program.
    pub width: usize,
    /// Steps of it.
    pub steps: u64,
    /// Launches, each of one step or several.
    pub launches: u64,
    /// Time of them all.
    pub time: Duration,
    /// The longest launch, by what a step of it took.
    pub longest: Duration,
}

/// The times of all widths.
#[derive(Debug, Default)]
pub(super) struct StepTimes(BTreeMap<usize, WidthTimes>);

impl StepTimes {
    /// Records the time that a launch of some steps of a width took.
    pub fn note(&mut self, width: usize, steps: usize, time: Duration) {
        let of = self.0.entry(width).or_insert(WidthTimes { width, ..WidthTimes::default() });
        of.steps += steps as u64;
        of.launches += 1;
        of.time += time;
        of.longest = of.longest.max(time / u32::try_from(steps).unwrap_or(u32::MAX).max(1));
    }

    /// Takes the times since the last call, narrow ones first.
    pub fn take(&mut self) -> Vec<WidthTimes> {
        std::mem::take(&mut self.0).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_of_a_width_are_summed_and_begin_anew_when_they_are_taken() {
        let ms = Duration::from_millis;
        let mut times = StepTimes::default();
        times.note(16, 1, ms(9));
        times.note(8, 4, ms(16));
        times.note(16, 2, ms(10));
        // A launch that a deadline ends may have no step.
        times.note(8, 0, ms(1));
        let narrow = WidthTimes { width: 8, steps: 4, launches: 2, time: ms(17), longest: ms(4) };
        let wide = WidthTimes { width: 16, steps: 3, launches: 2, time: ms(19), longest: ms(9) };
        assert_eq!(times.take(), [narrow, wide]);
        assert_eq!(times.take(), []);
    }
}
