//! The key down to which tokens are kept, by a radix search over the ordered bits of logits.

use tilewright_codegen::build::{Ptr, Shared, Val, Var};
use tilewright_codegen::ir::attr::{AtomOp, RedOrder, Scope};

use super::search::{NOWHERE, SumSearch};
use super::source::{Token, TokenSource, visit};

/// Bits of a digit.
const DIGIT: u32 = 11;
/// Counters of a histogram: one for each value of a digit.
pub(super) const BINS: u32 = 1 << DIGIT;
/// Digits of the 32 bits of a logit; the first has ten bits.
const DIGITS: u32 = 3;

/// Raises `cut` to the key of the last token that is kept: going from the likeliest token down, the
/// first at which the running sum of `measure` reaches `wanted(total)`. Tokens below `cut` do not
/// count. Where the total is 0, nothing changes.
///
/// Each digit of the logit is found in a histogram of the tokens that share the digits above it;
/// among equal logits the one by rising number is searched for.
pub(super) fn raise<'k, S: TokenSource<'k>>(
    search: SumSearch<'k>,
    bins: Ptr<'k, Shared, u64>,
    source: S,
    cut: Var<'k, u64>,
    measure: impl Fn(Token<'k>) -> Val<'k, u64>,
    wanted: impl Fn(Val<'k, u64>) -> Val<'k, u64>,
) {
    let consumers = search.consumers;
    let k = search.consumers.k;
    let kept = |token: Token<'k>| token.key.ge(cut.get());
    let upper = |token: Token<'k>| token.key.split().1;
    let prefix = k.var(0u32);
    let shift = k.var((DIGITS - 1) * DIGIT);
    let remaining = k.var(0u64);
    let here = k.var(0u64);
    k.for_(0u32, DIGITS, |digit| {
        consumers.each(BINS, |bin| bins.at(bin).store(0u64));
        consumers.sync();
        visit(source, [k.lit(0), source.count()], k.tid(), consumers.threads(), |token| {
            let shares = (upper(token) >> (shift.get() + DIGIT)).eq(prefix.get());
            k.when(kept(token) & shares, || {
                let bin = (upper(token) >> shift.get()) & (BINS - 1);
                bins.at(bin).red(AtomOp::Add, measure(token), RedOrder::Relaxed(Scope::Cta));
            });
        });
        consumers.sync();
        let falling = |at: Val<'k, u32>| bins.at((BINS - 1) - at);
        let goal = |total: Val<'k, u64>| digit.eq(0).select(wanted(total), remaining.get());
        let found = search.locate([k.lit(0), k.lit(BINS)], |at| falling(at).load(), goal);
        let bin = (BINS - 1) - found.at.min(BINS - 1);
        let exists = found.at.ne(NOWHERE);
        remaining.set(exists.select(found.wanted - found.before, 0u64));
        here.set(bins.at(bin).load());
        prefix.set(prefix.get() << DIGIT | bin);
        shift.set(shift.get() - DIGIT);
        consumers.sync();
    });
    let equal = |token: Token<'k>| kept(token) & upper(token).eq(prefix.get());
    let last = k.var(NOWHERE);
    k.when(here.get().gt(remaining.get()) & remaining.get().gt(0), || {
        let of_equal = |token: Token<'k>| equal(token).select(measure(token), 0u64);
        let at = search.first(source, of_equal, |_| remaining.get());
        k.when(at.ne(NOWHERE), || last.set(source.token(at)));
    });
    let found = k.join::<u64>(!last.get(), prefix.get());
    cut.set((remaining.get().gt(0)).select(found.max(cut.get()), cut.get()));
}
