//! Keys and values of a trial as they lie in memory.

use half::bf16;
use tilewright_codegen::trial::{Draw, TensorShape};

use crate::attention::prefill::Kv;
use crate::kv::{Tma, is_swizzled, swizzled};

/// A page that no pool has: entries of a table that belong to no token.
const NOWHERE: u32 = 1 << 20;

/// The layout of all sequences' tokens in memory.
#[derive(Clone)]
pub(super) struct Cache {
    kv: Kv,
    depth: u32,
    heads: u32,
    tokens: Vec<u32>,
    /// `[sequences, width]`: pages in any order.
    pub(super) table: Vec<u32>,
    /// Entries of a sequence.
    pub(super) width: u32,
    planes: u32,
    rows: u32,
}

/// The prefix sums of the counts: 0, a, a + b, ..
pub(super) fn starts(counts: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut starts = vec![0];
    starts.extend(counts.into_iter().scan(0, |sum, count| {
        *sum += count;
        Some(*sum)
    }));
    starts
}

impl Cache {
    /// A cache for `tokens[i]` tokens of sequence i.
    pub(super) fn new(draw: &mut Draw, kv: Kv, [depth, heads]: [u32; 2], tokens: &[u32]) -> Cache {
        let most = tokens.iter().copied().max().unwrap_or(0);
        let count = tokens.len() as u32;
        let spare = draw.between(1..=9);
        let (width, table, planes, rows) = match kv {
            Kv::HeadMajor => (1, vec![NOWHERE; tokens.len()], count * heads, most + spare),
            Kv::Ragged => (1, vec![NOWHERE; tokens.len()], heads, tokens.iter().sum::<u32>() + spare),
            Kv::Paged { page_tokens, .. } => {
                let used: u32 = tokens.iter().map(|n| n.div_ceil(page_tokens)).sum();
                let mut pages: Vec<u32> = (0..used + spare).collect();
                for last in (1..pages.len()).rev() {
                    pages.swap(last, draw.between(0..=last as u32) as usize);
                }
                let width = most.div_ceil(page_tokens) + 1;
                let mut pages = pages.into_iter();
                let mut table = vec![NOWHERE; (width * count) as usize];
                for (entries, n) in table.chunks_mut(width as usize).zip(tokens) {
                    entries
                        .iter_mut()
                        .zip(pages.by_ref().take(n.div_ceil(page_tokens) as usize))
                        .for_each(|(to, page)| *to = page);
                }
                (width, table, heads, (used + spare) * page_tokens)
            }
        };
        Cache { kv, depth, heads, tokens: tokens.to_vec(), table, width, planes, rows }
    }

    /// The same places for rows of other columns.
    pub(super) fn of_depth(&self, depth: u32) -> Cache {
        Cache { depth, ..self.clone() }
    }

    /// Elements from row to row, from plane to plane.
    fn strides(&self) -> [u32; 2] {
        match self.kv {
            Kv::Ragged => [self.heads * self.depth, self.depth],
            Kv::HeadMajor | Kv::Paged { .. } => [self.depth, self.plane_stride()],
        }
    }

    /// Elements from plane to plane.
    pub(super) fn plane_stride(&self) -> u32 {
        if self.kv == Kv::Ragged { self.depth } else { self.rows * self.depth }
    }

    /// The offset of each token of a sequence and head.
    fn places(&self, sequence: usize, head: u32) -> impl Iterator<Item = usize> {
        let first: u32 = self.tokens[..sequence].iter().sum();
        let [row_stride, plane_stride] = self.strides();
        (0..self.tokens[sequence]).map(move |token| {
            let (plane, row) = match self.kv {
                Kv::HeadMajor => (sequence as u32 * self.heads + head, token),
                Kv::Ragged => (head, first + token),
                Kv::Paged { page_tokens, .. } => {
                    let entry = sequence * self.width as usize + (token / page_tokens) as usize;
                    (head, self.table[entry] * page_tokens + token % page_tokens)
                }
            };
            (plane * plane_stride + row * row_stride) as usize
        })
    }

    fn heads(&self) -> impl Iterator<Item = (usize, u32)> {
        (0..self.tokens.len()).flat_map(|sequence| (0..self.heads).map(move |head| (sequence, head)))
    }

    /// Numbers from −1 to 1 where tokens lie, NaN elsewhere.
    pub(super) fn fill(&self, draw: &mut Draw) -> Vec<bf16> {
        let mut pool = vec![bf16::NAN; (self.planes * self.rows * self.depth) as usize];
        for (sequence, head) in self.heads() {
            for at in self.places(sequence, head) {
                pool[at..at + self.depth as usize].copy_from_slice(&draw.floats(self.depth as usize, bf16::from_f64));
            }
        }
        pool
    }

    /// Makes the first tokens of each sequence, as many as given, NaN: those that no query reads.
    pub(super) fn hide(&self, pool: &mut [bf16], hidden: &[u32]) {
        for (sequence, head) in self.heads() {
            for at in self.places(sequence, head).take(hidden[sequence] as usize) {
                pool[at..at + self.depth as usize].fill(bf16::NAN);
            }
        }
    }

    /// Keys of −∞ where [`fill`](Cache::fill) gave numbers: no query of positive numbers sees any
    /// of them.
    pub(super) fn blank(&self, pool: &mut [bf16]) {
        pool.iter_mut().filter(|key| !key.is_nan()).for_each(|key| *key = bf16::NEG_INFINITY);
    }

    /// Whether the rows of its pages are swizzled.
    fn swizzled(&self) -> bool {
        matches!(self.kv, Kv::Paged { swizzled: true, .. }) && is_swizzled(self.depth)
    }

    /// The elements of `fill` in the order of memory.
    pub(super) fn stored(&self, pool: &[bf16]) -> Vec<bf16> {
        match self.kv {
            Kv::Paged { page_tokens, swizzled: true } => swizzled(pool, page_tokens as usize, self.depth as usize),
            Kv::Paged { .. } | Kv::HeadMajor | Kv::Ragged => pool.to_vec(),
        }
    }

    /// The tokens of a sequence and head, `[tokens, depth]`.
    pub(super) fn read(&self, pool: &[bf16], sequence: usize, head: u32) -> Vec<f64> {
        let row = |at: usize| pool[at..at + self.depth as usize].iter().map(|x| x.to_f64());
        self.places(sequence, head).flat_map(row).collect()
    }

    /// The tensor map of boxes of a panel by `box_rows` rows.
    pub(super) fn shape(&self, box_rows: u32) -> TensorShape {
        Tma::map(self.depth, [self.rows, self.planes], self.strides(), box_rows, self.swizzled())
    }
}
