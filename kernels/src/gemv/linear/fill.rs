//! Activations on their way to the operand in shared memory.

use tilewright_codegen::build::Val;

use super::operand::SharedActivations;
use crate::gemv::activations::{Ordered, Prologue};
use crate::norm::add_squares;
use crate::tile::{Array, Float};
use crate::warps::{ConsumerWarps, Item};
use crate::weights::Strip;

impl<'k> Prologue<'k> {
    /// Brings rows `first..` into the operand, which lie `pitch` elements apart. Of a normalised
    /// input gives a thread's sum of squares of each.
    pub(super) fn fill(
        self,
        consumers: ConsumerWarps<'k>,
        strip: Strip,
        pitch: u32,
        first: Val<'k, u32>,
        to: SharedActivations<'k>,
    ) -> Vec<Val<'k, f32>> {
        let width = strip.k();
        let mut squares = Vec::new();
        for row in 0..to.rows() {
            let start = (first + row) * pitch;
            match self {
                Prologue::Plain(x) | Prologue::RmsNorm { x, .. } | Prologue::Ordered(Ordered { x, .. }) => {
                    let copied = RowCopy { x, start, width, to, row };
                    squares.extend(match x.float() {
                        Float::F32 => self.copy::<2>(consumers, copied),
                        Float::F16 | Float::Bf16 => self.copy::<4>(consumers, copied),
                    })
                }
                Prologue::Scaled { x, .. } => {
                    debug_assert!(!x.form.has_pairs(), "pairs of rows come to registers");
                    for part in 0..to.parts() {
                        let row_at = first + row;
                        let part_at = consumers.k.lit(part);
                        consumers.each(width / 8, |at| {
                            let [words] = x.eights(part_at, row_at, &[at * 8])[..] else { return };
                            to.store8(part, row, at * 8, words);
                        });
                    }
                }
            }
        }
        to.clear_tail(consumers);
        squares
    }

    /// Copies a row into the operand, `N` elements a thread: eight bytes, which as packets are
    /// sixteen, so that a warp's load takes each sector of 32 bytes once. Of a normalised input
    /// gives the sum of the thread's squares.
    fn copy<const N: usize>(
        self,
        consumers: ConsumerWarps<'k>,
        RowCopy { x, start, width, to, row }: RowCopy<'k>,
    ) -> Option<Val<'k, f32>> {
        let norm = self.norm().map(|(weight, _)| (weight, consumers.k.var(0.0f32)));
        let run = N as u32;
        rounds(consumers, width, run, |items| {
            let columns: Vec<_> = items.iter().map(|item| item.at * run).collect();
            let weights = norm.map(|(weight, _)| weight.asked::<N>(&columns));
            let places = self.ordered().map(|ordered| ordered.runs::<N>(&columns));
            let loaded = x.gather::<N>(&columns.iter().map(|&column| start + column).collect::<Vec<_>>());
            let weights = weights.map(|weights| weights());
            for (i, x) in loaded.into_iter().enumerate() {
                items[i].alone(|| {
                    norm.into_iter().for_each(|(_, sum)| sum.set(add_squares(sum.get(), x)));
                    let scaled = |weights: &Vec<[Val<'k, f32>; N]>| std::array::from_fn(|at| x[at] * weights[i][at]);
                    let scaled = weights.as_ref().map_or(x, scaled);
                    match &places {
                        None => to.store_run(row, columns[i], scaled),
                        Some(places) => to.store_each(row, places[i], scaled),
                    }
                });
            }
        });
        norm.map(|(_, sum)| sum.get())
    }
}

/// A row of activations on its way into the operand.
#[derive(Clone, Copy)]
struct RowCopy<'k> {
    /// Array that has the row.
    x: Array<'k>,
    /// Element of the array where the row begins.
    start: Val<'k, u32>,
    /// Elements of the row.
    width: u32,
    /// Operand that receives the row.
    to: SharedActivations<'k>,
    /// Number of the row in the operand.
    row: u32,
}

/// Elements of a thread whose loads are in flight together.
const TOGETHER: u32 = 32;

/// Deals the runs of `run` elements of a row of `width` to the consumer warps, some rounds at a time. An item
/// that does not exist stands for the last that does: it may be loaded, and is not stored.
fn rounds<'k>(consumers: ConsumerWarps<'k>, width: u32, run: u32, work: impl Fn(&[Item<'k>])) {
    let items: Vec<Item> = consumers.items(width / run).into_iter().map(|item| item.clamped(width / run)).collect();
    items.chunks((TOGETHER / run) as usize).for_each(work);
}
