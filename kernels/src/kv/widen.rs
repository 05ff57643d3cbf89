//! The kernel that writes pages of codes as pages of bf16: for kernels that read such.

use half::bf16;
use tilewright_codegen::build::{Bf16x2, Val, block, record};
use tilewright_codegen::ir::attr::{Fp8, SpecialReg};
use tilewright_codegen::ir::{Arch, Kernel};

use super::PoolType;
use super::token_row::TokenRow;
use crate::tile::Float;

/// The shapes and types that the kernel is specialised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WidenPages {
    /// Kv heads.
    pub heads: u32,
    /// Tokens of a page.
    pub page_tokens: u32,
    /// Dimensions of a head, a multiple of 8.
    pub dim: u32,
}

/// Threads of a block.
const THREADS: u32 = 256;
/// Dimensions that a thread takes at a time.
const RUN: u32 = 8;

impl WidenPages {
    /// Blocks for a sequence whose page table has `width` entries.
    pub fn blocks(self, width: u32) -> u32 {
        width * self.heads
    }

    /// The kernel `widen_pages`: the pages that hold tokens of each sequence, a head's page a
    /// block; sequences are the grid's second dimension. Both pools are
    /// `[heads, pages, page_tokens, dim]` in the order of [`swizzled`](super::swizzled).
    ///
    /// Parameters: `token_starts` (u32, sums of the sequences' tokens), `tables` (i32
    /// `[sequences, width]`), `codes` (u8), `out` (bf16), `width`, `pages`, `scale` (f32, what a
    /// code is multiplied by; the product is rounded to bf16).
    ///
    /// ```
    /// use tilewright_codegen::{ir::Arch, verify::verify};
    /// use tilewright_kernels::kv::WidenPages;
    /// let widen = WidenPages { heads: 8, page_tokens: 64, dim: 128 };
    /// assert_eq!(widen.blocks(16), 128);
    /// assert!(verify(widen.record(Arch::Sm90a)).is_ok());
    /// ```
    pub fn record(self, arch: Arch) -> Kernel {
        record("widen_pages", arch, block(THREADS), |k| {
            let starts = k.global::<u32>("token_starts");
            let tables = k.global::<i32>("tables");
            let codes = k.global::<u8>("codes");
            let out = k.global::<bf16>("out");
            let [width, pages]: [Val<'_, u32>; 2] = [k.param("width"), k.param("pages")];
            let scale: Val<'_, f32> = k.param("scale");
            let sequence = k.special(SpecialReg::CtaidY);
            let entry = k.block_id() / self.heads;
            let head = k.block_id() % self.heads;
            let tokens = starts.at(sequence + 1).load() - starts.at(sequence).load();
            k.when((entry * self.page_tokens).lt(tokens), || {
                let page = tables.at(sequence * width + entry).load().cast::<u32>();
                let page = (head * pages + page) * self.page_tokens;
                let runs = self.dim / RUN;
                k.for_step(k.tid(), self.page_tokens * runs, THREADS, |run| {
                    let token = run / runs;
                    let d = run % runs * RUN;
                    let row =
                        |of: PoolType| TokenRow::new((page + token) * self.dim, [self.dim, of.run(self.dim)], token);
                    let from = codes.at(row(PoolType::E4m3).at(d)).cast::<u32>();
                    let words: [Val<u32>; 2] = from.load_vec();
                    let wide = words.into_iter().flat_map(|word| <[_; 2]>::from(word.split())).map(|two| {
                        let (a, b) = two.halves_of_fp8(Fp8::E4M3).split();
                        let [a, b] = [a, b].map(|number| number.cast::<f32>() * scale);
                        a.pair::<Bf16x2>(b).bits::<u32>()
                    });
                    let wide: Vec<Val<u32>> = wide.collect();
                    let to = out.at(row(PoolType::Float(Float::Bf16)).at(d)).cast::<u32>();
                    to.store_vec([wide[0], wide[1], wide[2], wide[3]]);
                });
            });
        })
    }
}
