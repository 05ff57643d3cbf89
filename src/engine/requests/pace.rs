//! Limits the rows of a step so that it ends in time, by the measured times of steps of each width.

use std::collections::BTreeMap;
use std::time::Duration;

/// The weight of a new measurement.
const TRUST: f64 = 0.25;
/// Measured steps after which a width that was not used is tried again: sequences have become
/// longer, or fewer.
const FORGOTTEN: u64 = 256;
/// Measurements of a width that do not count: its kernels and graphs are made then.
const UNUSED: u32 = 1;

/// The measured time of a width.
#[derive(Clone, Copy, Debug)]
struct WidthTime {
    seconds: f64,
    count: u32,
    /// The number of the last measurement.
    last: u64,
}

/// The times of steps in which some request decodes.
///
/// A width that was not measured is taken to cost what the next narrower one does, for up to about
/// a hundred rows fit under the time that the weights take. So a step that is too long is run once
/// for each width that is too wide, and again when it is forgotten; widths are tried one after the
/// other, from the least on.
#[derive(Debug)]
pub struct Pace {
    bound: Option<Duration>,
    /// The widths that programs have, by rising number.
    widths: Vec<usize>,
    seen: BTreeMap<usize, WidthTime>,
    measured: u64,
}

impl Pace {
    /// Steps of these widths, each of which should take no longer than that.
    pub fn new(bound: Option<Duration>, mut widths: Vec<usize>) -> Pace {
        widths.sort_unstable();
        Pace { bound, widths, seen: BTreeMap::new(), measured: 0 }
    }

    /// A step of that width took so long.
    pub fn note(&mut self, width: usize, time: Duration) {
        self.measured += 1;
        let now = self.measured;
        let seconds = time.as_secs_f64();
        let seen = self.seen.entry(width).or_insert(WidthTime { seconds, count: 0, last: now });
        seen.seconds = if seen.count <= UNUSED { seconds } else { seen.seconds + TRUST * (seconds - seen.seconds) };
        (seen.count, seen.last) = (seen.count.saturating_add(1), now);
        self.seen.retain(|_, seen| now - seen.last < FORGOTTEN);
    }

    /// Most rows of a step that is in time, as far as is known, of those that are wider than the
    /// rows that decode; where no width is, those of the fastest. A narrow step is not always a
    /// fast one, so the second width is tried in any case.
    pub fn rows(&self, decoding: usize) -> usize {
        let Some(bound) = self.bound else { return usize::MAX };
        let mut most = None;
        let mut fastest = None;
        let mut tries = true;
        for (at, &width) in self.widths.iter().filter(|width| **width > decoding).enumerate() {
            let Some(seen) = self.seen.get(&width).filter(|seen| seen.count > UNUSED) else {
                // Not measured, or not truly.
                if tries {
                    return width;
                }
                break;
            };
            let is_in_time = seen.seconds <= bound.as_secs_f64();
            if is_in_time {
                most = Some(width);
            } else if most.is_some() {
                break;
            }
            if fastest.is_none_or(|(least, _)| seen.seconds < least) {
                fastest = Some((seen.seconds, width));
            }
            tries = is_in_time || at == 0;
        }
        most.or(fastest.map(|(_, width)| width)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Steps as long as `time` says, until what is chosen stays the same.
    fn settled(pace: &mut Pace, time: impl Fn(usize) -> u64) -> Vec<usize> {
        let mut chosen = Vec::new();
        for _ in 0..20 {
            let width = pace.rows(1);
            pace.note(width, MS(time(width)));
            chosen.push(width);
        }
        chosen
    }

    #[test]
    fn the_widest_step_that_is_in_time_is_found() {
        let widths = vec![16, 32, 64, 128, 256];
        let time = |width| 4 + width as u64 / 32;
        let mut pace = Pace::new(Some(MS(8)), widths.clone());
        let chosen = settled(&mut pace, time);
        assert_eq!((chosen[0], chosen.last()), (16, Some(&128)));
        // The first step of a width does not count: one of two is too long.
        assert_eq!(chosen.iter().filter(|&&width| width > 128).count(), 2);
        // Nothing is in time: the fastest is taken, which is not always the narrowest.
        let mut pace = Pace::new(Some(MS(1)), widths.clone());
        assert_eq!(settled(&mut pace, time).last(), Some(&16));
        let mut pace = Pace::new(Some(MS(1)), widths.clone());
        assert_eq!(settled(&mut pace, |width| if width == 16 { 9 } else { 7 }).last(), Some(&32));
        // Where more rows decode than a width has, no step has that width.
        assert_eq!(Pace::new(Some(MS(8)), widths.clone()).rows(40), 64);
        assert_eq!(Pace::new(Some(MS(8)), widths.clone()).rows(256), usize::MAX);
        // Nor is the narrowest in time where wider ones are.
        let mut pace = Pace::new(Some(MS(8)), widths.clone());
        assert_eq!(settled(&mut pace, |width| if width == 16 { 9 } else { width as u64 / 8 }).last(), Some(&64));
        let mut free = Pace::new(None, widths);
        assert_eq!(settled(&mut free, |_| 4).last(), Some(&usize::MAX));
    }

    #[test]
    fn what_has_become_slower_is_left_and_tried_again_later() {
        let mut pace = Pace::new(Some(MS(8)), vec![16, 32, 64]);
        assert_eq!(settled(&mut pace, |_| 5).last(), Some(&64));
        assert_eq!(settled(&mut pace, |width| if width == 64 { 12 } else { 5 }).last(), Some(&32));
        let mut tried = 0;
        for _ in 0..2 * FORGOTTEN {
            let width = pace.rows(1);
            tried += u64::from(width == 64);
            pace.note(width, MS(if width == 64 { 12 } else { 5 }));
        }
        assert!((1..=4).contains(&tried), "{tried}");
    }
}
