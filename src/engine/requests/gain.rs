//! Decides whether a sequence decodes with several of its tokens per step or one: whichever gives
//! more tokens per second.
//!
//! A step of eight rows takes longer than one of one row, by a factor that is known roughly. Where
//! several rows are fed, what they give says whether they pay. Where one is, what would have been
//! proposed is compared with what came: that costs the host some lookups, and the device nothing.

use std::collections::VecDeque;

/// Tokens of a step of several rows from which on they pay: their step costs up to so much more.
const PAYS: f64 = 1.6;
/// The threshold for a sequence that already runs by several rows: frequent changes do not pay.
const STILL_PAYS: f64 = 1.35;
/// Steps that are looked at, the last ones.
const WINDOW: usize = 12;

/// The decision between wide and narrow steps for a sequence.
#[derive(Debug, Default)]
pub struct Gain {
    /// Whether steps have several rows.
    wide: bool,
    /// Tokens of each of the last steps, those that were and those that would have been.
    gave: VecDeque<usize>,
    /// The rest of what would have been proposed in this step.
    expected: VecDeque<u32>,
    /// Tokens of the step that would be under way; 0: another begins.
    under_way: usize,
}

impl Gain {
    /// Whether steps of several rows pay.
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    /// Records how many tokens a step of several rows gave.
    pub fn gave(&mut self, tokens: usize) {
        self.note(tokens);
        if self.mean().is_some_and(|mean| mean < STILL_PAYS) {
            self.turn(false);
        }
    }

    /// A step of one row gave a token; `propose` says what would have been proposed in front of it.
    pub fn came(&mut self, token: u32, propose: impl FnOnce() -> Vec<u32>) {
        if self.under_way == 0 {
            self.expected = propose().into();
        }
        self.under_way += 1;
        // The first row's choice always counts, and one after all proposed tokens.
        if self.expected.pop_front() != Some(token) {
            let tokens = std::mem::take(&mut self.under_way);
            self.note(tokens);
            if self.mean().is_some_and(|mean| mean > PAYS) {
                self.turn(true);
            }
        }
    }

    fn note(&mut self, tokens: usize) {
        if self.gave.len() == WINDOW {
            self.gave.pop_front();
        }
        self.gave.push_back(tokens);
    }

    /// Tokens of a step in the mean, where enough of them are known: a few long ones are enough.
    fn mean(&self) -> Option<f64> {
        let tokens: usize = self.gave.iter().sum();
        let known = self.gave.len() == WINDOW || tokens >= 2 * WINDOW;
        known.then(|| tokens as f64 / self.gave.len() as f64)
    }

    fn turn(&mut self, wide: bool) {
        *self = Gain { wide, ..Gain::default() };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The gain after a text whose proposals always have that many right tokens.
    fn after(accepted: usize, tokens: usize) -> Gain {
        let mut gain = Gain::default();
        for at in 0..tokens {
            // A proposal is right but for its last token.
            let right = at as u32..(at + accepted) as u32;
            gain.came(at as u32, || right.chain([u32::MAX]).collect());
        }
        gain
    }

    #[test]
    fn text_that_repeats_itself_is_soon_fed_by_several_rows() {
        assert!(after(7, 40).is_wide());
        assert!(after(2, 60).is_wide());
        assert!(!after(0, 500).is_wide());
    }

    #[test]
    fn rows_that_stop_paying_are_left_and_one_step_of_them_is_no_reason() {
        let mut gain = after(7, 40);
        gain.gave(1);
        assert!(gain.is_wide());
        (0..2 * WINDOW).for_each(|_| gain.gave(1));
        assert!(!gain.is_wide());
    }

    proptest! {
        #[test]
        fn the_means_decide(steps in prop::collection::vec(1usize..9, WINDOW..60)) {
            let mut gain = Gain { wide: true, ..Gain::default() };
            for (at, &tokens) in steps.iter().enumerate() {
                gain.gave(tokens);
                let last = &steps[(at + 1).saturating_sub(WINDOW)..=at];
                let sum: usize = last.iter().sum();
                let known = last.len() == WINDOW || sum >= 2 * WINDOW;
                prop_assert_eq!(gain.is_wide(), !known || sum as f64 >= STILL_PAYS * last.len() as f64);
                if !gain.is_wide() {
                    break;
                }
            }
        }
    }
}
