//! Masks: of each token a bit that says whether it may be chosen.

use tilewright_codegen::build::{Builder, Global, Ptr, Val, block, record};
use tilewright_codegen::ir::attr::Scope;
use tilewright_codegen::ir::{Arch, Kernel};

use super::{Logits, launch};
use crate::warps::ConsumerWarps;

/// Words of a thread whose loads are in flight together: masks may lie in the host's memory.
const TOGETHER: u32 = 8;

/// Words before a row's mask, a line of memory. The first is the ticket, which says what the mask is
/// for.
pub const MASK_HEAD: u32 = 32;

/// Words of a mask of that many tokens.
///
/// ```
/// use tilewright_kernels::sample::mask_words;
/// assert_eq!([mask_words(1), mask_words(32), mask_words(33)], [1, 1, 2]);
/// ```
pub const fn mask_words(tokens: u32) -> u32 {
    tokens.div_ceil(32)
}

/// Words from a row's ticket to the next one's.
///
/// ```
/// use tilewright_kernels::sample::mask_pitch;
/// assert_eq!([mask_pitch(1), mask_pitch(1025)], [64, 96]);
/// ```
pub const fn mask_pitch(tokens: u32) -> u32 {
    MASK_HEAD + mask_words(tokens).next_multiple_of(32)
}

/// Hides the tokens that a mask excludes: their logits become −∞. The bit of token `t` is bit
/// `t % 32` of word `t / 32`; it is set where the token may be chosen. By all consumer threads; a
/// barrier must follow.
pub fn hide<'k>(consumers: ConsumerWarps<'k>, logits: Logits<'k>, mask: Ptr<'k, Global, u32>) {
    // The host writes masks while kernels run.
    hide_by(consumers, logits, |word| mask.at(word).load_relaxed(Scope::Sys));
}

fn hide_by<'k>(consumers: ConsumerWarps<'k>, logits: Logits<'k>, mask: impl Fn(Val<'k, u32>) -> Val<'k, u32>) {
    let k = consumers.k;
    let words = (logits.count + 31) / 32;
    let step = 32 * consumers.warps;
    k.for_step(k.warp() * 32, words, step * TOGETHER, |first: Val<'k, u32>| {
        let firsts: Vec<_> = (0..TOGETHER).map(|at| first + at * step).collect();
        let load = |first: &Val<'k, u32>| {
            let own = k.var(0u32);
            let at = *first + k.lane();
            k.when(at.lt(words), || own.set(mask(at)));
            own.get()
        };
        let own: Vec<_> = firsts.iter().map(load).collect();
        for (first, own) in firsts.into_iter().zip(own) {
            // The tokens of a word are adjacent: a warp looks at one word after the other.
            k.for_(0u32, 32u32, |word| {
                let token = (first + word) * 32 + k.lane();
                let is_hidden = ((own.shfl_idx(word) >> k.lane()) & 1).eq(0);
                k.when(token.lt(logits.count) & is_hidden, || logits.at.at(token).store(f32::NEG_INFINITY));
            });
        }
    });
}

/// The kernel `hide`: of the logits `logits[b, ..count]`, f32 in rows of `stride`, those become −∞
/// that the mask of row `rows[b]` (i32; below 0: none) excludes, for the block b, where
/// `masked[rows[b]]` (u32) is not 0. Tickets and masks are `masks`, u32 in rows of `pitch` words
/// ([`mask_pitch`]). The block waits until the ticket is `steps[0] + 1` or later; where it has looked
/// `polls` times, all tokens are hidden. Parameters: `count`, `stride`, `logits`, `pitch`, `polls`,
/// `rows`, `masked`, `steps`, `masks`. `warps` is 1 to 32.
pub fn hide_rows(arch: Arch, warps: u32) -> Kernel {
    record("hide", arch, block(warps * 32), |k: &Builder| {
        let logits = launch::row(k);
        let [pitch, polls] = ["pitch", "polls"].map(|name| k.param::<u32>(name));
        let row = k.global::<i32>("rows").at(k.block_id()).load();
        let [masked, steps, masks] = ["masked", "steps", "masks"].map(|name| k.global::<u32>(name));
        let late = k.shared::<u32>("late", 1);
        let is_masked = k.var(0u32);
        k.when(row.ge(0), || is_masked.set(masked.at(row.cast::<u32>()).load()));
        k.when(is_masked.get().ne(0), || {
            let ticket = masks.at(row.cast::<u32>().mul_wide(pitch));
            k.when(k.tid().eq(0), || {
                let wanted = steps.load() + 1;
                let left = k.var(polls);
                let come = k.var(false);
                k.loop_(|| {
                    come.set((ticket.load_acquire(Scope::Sys) - wanted).cast::<i32>().ge(0));
                    k.break_if(come.get());
                    left.set(left.get() - 1);
                    k.break_if(left.get().eq(0));
                });
                late.store(come.get().select(0u32, 1u32));
            });
            k.barrier();
            let kept = late.load().eq(0).select(k.lit(u32::MAX), 0u32);
            let mask = ticket.at(MASK_HEAD);
            hide_by(ConsumerWarps::new(k, warps), logits, |word| mask.at(word).load_relaxed(Scope::Sys) & kept);
        });
    })
}
