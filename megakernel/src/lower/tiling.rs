//! Tiles: how the output features of a level are partitioned over the SMs.
//!
//! A strip is 8 weight rows, the n8 of an m16n8k16 MMA. A level gets about one task per SM, of
//! consecutive strips, so that one table entry per level and SM describes the work.

use crate::program::Span;

/// Weight rows of one strip.
pub const STRIP: usize = 8;

/// `strips` partitioned into `tasks` tasks: consecutive, sizes differing by at most one, larger
/// first.
pub(crate) fn partition(strips: usize, tasks: usize) -> Vec<Span> {
    let tasks = tasks.clamp(1, strips.max(1));
    let share = strips / tasks;
    let extra = strips % tasks;
    let mut at = 0;
    (0..tasks)
        .map(|task| {
            let lo = at;
            at += share + usize::from(task < extra);
            Span::new(lo, at)
        })
        .collect()
}

/// The features `0..n` in tiles of whole strips, one per SM at most.
pub(super) fn features(n: usize, sms: usize) -> Vec<Span> {
    partition(n.div_ceil(STRIP), sms).into_iter().map(|s| Span::new(s.lo * STRIP, (s.hi * STRIP).min(n))).collect()
}

/// Tasks per group that make a level of `groups` groups with `strips` strips each shortest on `sms`
/// SMs.
///
/// No task spans two groups, so that each signals one counter. The makespan is the rounds of tasks
/// an SM runs times the strips of the largest; among equals the fewest tasks win.
pub(super) fn tasks_per_group(groups: usize, strips: usize, sms: usize) -> usize {
    let makespan = |tasks: usize| (groups * tasks).div_ceil(sms) * strips.div_ceil(tasks);
    let most = strips.min(sms).max(1);
    (1..=most).min_by_key(|&tasks| (makespan(tasks), tasks)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn dealing_covers_every_strip_once_and_evenly(strips in 1usize..5000, tasks in 1usize..300) {
            let spans = partition(strips, tasks);
            prop_assert_eq!(spans.len(), tasks.min(strips));
            prop_assert_eq!(spans[0].lo, 0);
            prop_assert_eq!(spans[spans.len() - 1].hi, strips);
            prop_assert!(spans.windows(2).all(|w| w[0].hi == w[1].lo && w[0].len() >= w[1].len()));
            prop_assert!(spans[0].len() - spans[spans.len() - 1].len() <= 1);
        }

        #[test]
        fn features_are_whole_strips_but_for_the_last(n in 1usize..20_000, sms in 1usize..200) {
            let spans = features(n, sms);
            prop_assert!(spans.len() <= sms);
            prop_assert_eq!(spans[spans.len() - 1].hi, n);
            prop_assert!(spans.windows(2).all(|w| w[0].hi == w[1].lo && w[0].hi % STRIP == 0));
        }
    }

    #[test]
    fn the_qkv_level_of_known_models_fills_an_h100() {
        // Llama-3.2-1B: 8 groups of 48 strips; Llama-3.1-8B: 96; Llama-3.1-70B: 160; Llama-2-7B: 32
        // groups of 48.
        let tasks = [(8, 48), (8, 96), (8, 160), (32, 48)].map(|(groups, strips)| tasks_per_group(groups, strips, 132));
        assert_eq!(tasks, [16, 16, 16, 4]);
    }
}
