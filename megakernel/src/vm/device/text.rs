//! A sequence that goes on by its own text: several tokens of it in a step, proposed and accepted
//! by the kernel.

use tilewright_kernels::sample::Request;

use super::Plan;
use crate::vm::NO_TOKEN;

// Words of the text in memory: numbers, then tokens.
/// Tokens that there are.
pub(super) const LEN: u32 = 0;
/// Tokens that may still come.
pub(super) const LEFT: u32 = 1;
/// Most tokens that are proposed.
pub(super) const MOST: u32 = 2;
/// The start of a scripted text, in tokens, which is chosen regardless of the rows' results; 0:
/// none.
pub(super) const SCRIPT: u32 = 3;
/// The first token.
pub(super) const TEXT: u32 = 4;

/// The marker for a row whose proposed token was rejected.
pub(super) const REJECTED: u32 = u32::MAX - 1;

/// Words of a text of the longest sequence of a plan, and of as many tokens that are known.
pub(super) fn words(plan: &Plan) -> usize {
    let page_tokens = plan.cells.map_or(0, |cells| cells.page_tokens);
    // Loads reach beyond the last token, and the last of all needs no page.
    let most = plan.lengths.table_width * page_tokens + 16;
    2 * (TEXT + most).next_multiple_of(4) as usize
}

/// A sequence to continue.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Its tokens. All but the last have been fed.
    pub tokens: &'a [u32],
    /// Its pages.
    pub pages: &'a [i32],
    /// The sampling request for the next token, if the program samples.
    pub request: Option<Request>,
    /// Tokens that end it.
    pub ends: &'a [u32],
    /// Most tokens that it gets; what it ends with needs no room in its pages.
    pub left: usize,
    /// Most tokens that are proposed in a step; no more than the rows after the first.
    pub proposed: usize,
    /// Tokens that are chosen one after the other, whatever the rows would choose: the steps of a
    /// text that is known. Where it has less than `left`, zeros follow.
    pub script: Option<&'a [u32]>,
}

/// The tokens that a step accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Its tokens; none where no token is the likeliest after the last one, with which the launch
    /// ends.
    pub tokens: Vec<u32>,
    /// Tokens that were proposed.
    pub proposed: usize,
}

impl Accepted {
    /// Of the words that a step shows.
    pub(super) fn of(words: &[u32]) -> Accepted {
        let is_token = |word: &u32| *word != NO_TOKEN && *word != REJECTED;
        let tokens: Vec<u32> = words.iter().copied().filter(is_token).collect();
        // The first row is always fed, whatever it chose.
        let proposed = words.iter().rposition(|word| *word != NO_TOKEN).unwrap_or(0);
        Accepted { tokens, proposed }
    }
}
