//! Speculation without a draft model: what followed the last tokens when they came before is
//! proposed to follow again.

use std::collections::HashMap;

/// Most tokens that are proposed at a time: with the last token, the rows of a step of 8.
pub const MOST_PROPOSED: usize = 7;
/// Tokens of the longer and of the shorter run that is looked up.
const RUNS: [usize; 2] = [4, 2];
/// Proposed tokens after which acceptance is looked at.
const WINDOW: usize = 14;
/// The reciprocal of the share of proposed tokens that must be accepted for proposals to pay.
const PAYS: usize = 4;
/// Tokens without proposals after a window that did not pay.
const REST: usize = 32;
/// Tokens after which it is asked again where it had nothing to propose.
const PATIENCE: usize = 8;

/// Proposes tokens for one sequence.
#[derive(Debug, Default)]
pub struct Proposer {
    /// Tokens of the sequence that it has read.
    read: usize,
    /// The last end of each run of tokens; one table per run length.
    last: [HashMap<Box<[u32]>, usize>; RUNS.len()],
    /// The previous end of the run at the end of the text, longest run first.
    before: [Option<usize>; RUNS.len()],
    proposed: usize,
    accepted: usize,
    /// Accepted tokens of the last proposal.
    last_accepted: usize,
    /// Tokens until it proposes again.
    rest: usize,
}

impl Proposer {
    /// Reads the tokens of the sequence that are new since it read them last.
    pub fn read(&mut self, tokens: &[u32]) {
        for end in self.read + 1..=tokens.len() {
            self.rest = self.rest.saturating_sub(1);
            for ((run, last), before) in RUNS.into_iter().zip(&mut self.last).zip(&mut self.before) {
                *before = end.checked_sub(run).and_then(|start| last.insert(tokens[start..end].into(), end));
            }
        }
        self.read = tokens.len();
    }

    /// Up to a number of tokens that may follow those that it has read; none where the last ones
    /// are new, or where it does not pay.
    pub fn propose(&self, tokens: &[u32], most: usize) -> Vec<u32> {
        if self.rest > 0 {
            return Vec::new();
        }
        // Proposals start cheap: two tokens, then twice the number accepted the last time.
        self.guess(tokens, most.min(2 * (self.last_accepted + 1)).min(MOST_PROPOSED))
    }

    /// The predicted next tokens, whether it pays to propose them or not.
    pub fn guess(&self, tokens: &[u32], most: usize) -> Vec<u32> {
        let Some(from) = self.before.iter().flatten().next() else { return Vec::new() };
        // A proposal that reaches the end goes on with the proposed tokens: a text that repeats
        // itself wraps around.
        let round = &tokens[*from..];
        round.iter().copied().cycle().take(most).collect()
    }

    /// The number of tokens until it is asked again, if it proposes nothing now.
    pub fn patience(&self) -> usize {
        if self.rest > 0 { self.rest } else { PATIENCE }
    }

    /// Records how many tokens were proposed and how many of them accepted. If few were, the
    /// proposer rests.
    pub fn verified(&mut self, proposed: usize, accepted: usize) {
        self.last_accepted = accepted;
        self.proposed += proposed;
        self.accepted += accepted;
        if self.proposed >= WINDOW {
            if self.accepted * PAYS < self.proposed {
                self.rest = REST;
            }
            (self.proposed, self.accepted) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sequence with its proposer.
    struct Told {
        tokens: Vec<u32>,
        proposer: Proposer,
    }

    impl Told {
        fn push(&mut self, token: u32) {
            self.tokens.push(token);
            self.proposer.read(&self.tokens);
        }

        fn propose(&self, most: usize) -> Vec<u32> {
            self.proposer.propose(&self.tokens, most)
        }

        fn verified(&mut self, proposed: usize, accepted: usize) {
            self.proposer.verified(proposed, accepted);
        }

        fn patience(&self) -> usize {
            self.proposer.patience()
        }
    }

    fn proposer(tokens: &[u32]) -> Told {
        let mut told = Told { tokens: tokens.to_vec(), proposer: Proposer::default() };
        told.proposer.read(tokens);
        told
    }

    #[test]
    fn what_followed_is_proposed_and_the_longer_run_decides() {
        assert_eq!(proposer(&[1, 2, 3, 4, 5, 9, 3, 4, 6, 1, 2, 3, 4]).propose(2), [5, 9]);
        assert_eq!(proposer(&[7, 8, 5, 6, 7, 8]).propose(1), [5]);
        assert!(proposer(&[1, 2, 3]).propose(7).is_empty());
        assert!(proposer(&[]).propose(7).is_empty());
    }

    #[test]
    fn a_text_that_goes_round_is_proposed_beyond_its_end() {
        let mut single = proposer(&[5, 5, 5]);
        single.verified(3, 3);
        assert_eq!(single.propose(9), [5; MOST_PROPOSED]);
        let mut pair = proposer(&[1, 2, 1, 2]);
        pair.verified(2, 2);
        assert_eq!(pair.propose(5), [1, 2, 1, 2, 1]);
    }

    #[test]
    fn the_better_it_went_the_more_is_proposed() {
        let mut proposer = proposer(&[1, 2, 1, 2]);
        let mut lengths = Vec::new();
        for accepted in [2, 6, 7, 1, 0, 0] {
            lengths.push(proposer.propose(9).len());
            proposer.verified(lengths[lengths.len() - 1], accepted);
        }
        assert_eq!(lengths, [2, 6, 7, 7, 4, 2]);
    }

    #[test]
    fn it_rests_where_few_are_accepted_and_tries_again() {
        let mut proposer = proposer(&[1, 2, 1, 2]);
        (0..4).for_each(|_| proposer.verified(7, 6));
        assert!(!proposer.propose(7).is_empty());
        (0..4).for_each(|_| proposer.verified(7, 1));
        assert_eq!(proposer.patience(), REST);
        for at in 0..REST as u32 {
            assert!(proposer.propose(7).is_empty());
            proposer.push(1 + at % 2);
        }
        assert_eq!((proposer.propose(7).is_empty(), proposer.patience()), (false, PATIENCE));
    }
}
