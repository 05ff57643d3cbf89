//! Masks: of each token a bit that says whether it may be chosen.

use tilewright_codegen::build::{Builder, Global, Ptr, Val, block, record};
use tilewright_codegen::ir::attr::Scope;
use tilewright_codegen::ir::{Arch, Kernel};

use super::{Logits, launch};
use crate::warps::ConsumerWarps;

/// Words of a thread whose loads are in flight together: masks may lie in the host's memory.
const TOGETHER: u32 = 8;

/// Words of a mask of that many tokens.
///
/// ```
/// use tilewright_kernels::sample::mask_words;
/// assert_eq!([mask_words(1), mask_words(32), mask_words(33)], [1, 1, 2]);
/// ```
pub const fn mask_words(tokens: u32) -> u32 {
    tokens.div_ceil(32)
}

/// Hides the tokens that a mask excludes: their logits become −∞. The bit of token `t` is bit
/// `t % 32` of word `t / 32`; it is set where the token may be chosen. By all consumer threads; a
/// barrier must follow.
pub fn hide<'k>(consumers: ConsumerWarps<'k>, logits: Logits<'k>, mask: Ptr<'k, Global, u32>) {
    let k = consumers.k;
    let words = (logits.count + 31) / 32;
    let step = 32 * consumers.warps;
    k.for_step(k.warp() * 32, words, step * TOGETHER, |first: Val<'k, u32>| {
        let firsts: Vec<_> = (0..TOGETHER).map(|at| first + at * step).collect();
        let load = |first: &Val<'k, u32>| {
            let own = k.var(0u32);
            let at = *first + k.lane();
            // The host writes masks while kernels run.
            k.when(at.lt(words), || own.set(mask.at(at).load_relaxed(Scope::Sys)));
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

/// The kernel `hide`: of the logits `logits[r, ..count]`, f32 in rows of `stride`, those become −∞
/// whose bit in `masks[r, ..]` is not set, u32 in rows of `words`, for the row r of block r. A bit is
/// that of [`hide`]. Parameters: `count`, `stride`, `logits`, `words`, `masks`. `warps` is 1 to 32.
pub fn hide_rows(arch: Arch, warps: u32) -> Kernel {
    record("hide", arch, block(warps * 32), |k: &Builder| {
        let logits = launch::row(k);
        let words = k.param::<u32>("words");
        let mask = k.global::<u32>("masks").at(k.block_id().mul_wide(words));
        hide(ConsumerWarps::new(k, warps), logits, mask);
    })
}
