//! Activations in shared memory as the A operand of `m16n8k16`.

use half::bf16;
use tilewright_codegen::build::{Ptr, Shared, Val};

use crate::gemv::activations::{F16Overflow, Infinite, Packing, Quads};
use crate::gemv::product::Fragment;
use crate::tile::store_lanes;
use crate::warps::ConsumerWarps;
use crate::weights::{DEPTH, Strip, Terms, convert};

/// Activations `[parts, rows, padded k]` in shared memory.
#[derive(Clone, Copy)]
pub struct SharedActivations<'k> {
    at: Ptr<'k, Shared, bf16>,
    strip: Strip,
    packing: Packing,
    overflow: Option<(F16Overflow<'k>, Infinite<'k>)>,
}

/// The addresses from which a lane reads each of its quads of a tile.
#[derive(Clone)]
pub(super) struct Lane<'k> {
    quads: Vec<Ptr<'k, Shared, u32>>,
    packing: Packing,
}

impl<'k> SharedActivations<'k> {
    /// Bytes of shared memory that rows of a strip's length take.
    pub fn bytes(strip: Strip, packing: Packing) -> u32 {
        let packing = packing.meeting(strip);
        packing.parts() * packing.rows() * pitch(strip) * 2
    }

    /// The operand that begins there, aligned to 16 bytes.
    pub fn new(
        at: Ptr<'k, Shared, bf16>,
        strip: Strip,
        packing: Packing,
        overflow: Option<F16Overflow<'k>>,
    ) -> SharedActivations<'k> {
        let overflow = overflow.filter(|_| packing.terms() != Terms::Bf16);
        SharedActivations {
            at,
            strip,
            packing,
            overflow: overflow.map(|overflow| (overflow, Infinite::new(at.builder()))),
        }
    }

    /// Rows of the batch.
    pub fn rows(self) -> u32 {
        self.packing.rows()
    }

    /// Parts of an element.
    pub(super) fn parts(self) -> u32 {
        self.packing.parts()
    }

    /// Stores eight elements of a part of a row, from a column that is a multiple of eight, as they
    /// are multiplied.
    #[track_caller]
    pub(super) fn store8(self, part: u32, row: u32, column: Val<'k, u32>, words: [Val<'k, u32>; 4]) {
        self.row(part, row).at(column).cast::<u32>().store_vec(words);
    }

    /// A row of a part.
    fn row(self, part: u32, row: u32) -> Ptr<'k, Shared, bf16> {
        self.at.at((part * self.rows() + row) * pitch(self.strip))
    }

    /// Stores `N` elements of a row, 2 or 4, from a column that is a multiple of `N`; as codes want
    /// them.
    #[track_caller]
    pub(super) fn store_run<const N: usize>(self, row: u32, column: Val<'k, u32>, x: [Val<'k, f32>; N]) {
        let [even, odd] = lift(self.strip, self.packing);
        let lift_of = |pair: usize| match (even, odd) {
            (Some(even), Some(odd)) if N == 2 && even != odd => {
                Some((column % 4).lt(2).select(column.builder().lit(even), odd))
            }
            _ => [even, odd][pair].map(|lift| column.builder().lit(lift)),
        };
        let pair = |i: usize| {
            let pair = [x[2 * i], x[2 * i + 1]];
            lift_of(i).map_or(pair, |lift| pair.map(|x| x * lift))
        };
        let pairs: Vec<[Val<f32>; 2]> = (0..N / 2).map(pair).collect();
        let place = |part: u32| self.row(part, row).at(column).cast::<u32>();
        let terms = self.packing.terms();
        let parts: Vec<(Val<u32>, [Val<f32>; 2])> = pairs.into_iter().map(|[a, b]| terms.narrow(a, b)).collect();
        let high: Vec<Val<u32>> = parts.iter().map(|&(high, _)| high).collect();
        self.overflow.into_iter().for_each(|(_, infinite)| high.iter().for_each(|&word| infinite.add(word)));
        store_lanes(place(0), &high);
        if self.packing.parts() == 2 {
            store_lanes(place(1), &parts.iter().map(|&(_, [a, b])| terms.narrow(a, b).0).collect::<Vec<_>>());
        }
    }

    /// Stores `N` elements of a row, 2 or 4, each at a place of its own; as codes want them.
    #[track_caller]
    pub(super) fn store_each<const N: usize>(self, row: u32, places: [Val<'k, u32>; N], x: [Val<'k, f32>; N]) {
        let lift = lift(self.strip, self.packing);
        let terms = self.packing.terms();
        let lifted = |i: usize| match lift {
            [Some(even), Some(odd)] if even != odd => {
                x[i] * (places[i] % 4).lt(2).select(x[i].builder().lit(even), odd)
            }
            [lift, _] => lift.map_or(x[i], |lift| x[i] * lift),
        };
        for first in (0..N).step_by(2) {
            let store = |part: u32, word: Val<'k, u32>| {
                let (one, next) = word.split();
                self.row(part, row).at(places[first]).cast::<u16>().store(one);
                self.row(part, row).at(places[first + 1]).cast::<u16>().store(next);
            };
            let (high, [a, b]) = terms.narrow(lifted(first), lifted(first + 1));
            self.overflow.into_iter().for_each(|(_, infinite)| infinite.add(high));
            store(0, high);
            if self.packing.parts() == 2 {
                store(1, terms.narrow(a, b).0);
            }
        }
    }

    /// Reports the overflow if this thread stored a value that no f16 holds.
    #[track_caller]
    pub(super) fn check_overflow(self) {
        self.overflow.into_iter().for_each(|(overflow, infinite)| overflow.report(infinite.has()));
    }

    /// Zeros beyond the rows, where weights are zeros too: what lay there could be a NaN.
    pub(super) fn clear_tail(self, consumers: ConsumerWarps<'k>) {
        let tail = self.strip.padded_k() - self.strip.k();
        for row in 0..self.packing.parts() * self.rows() {
            let start = self.row(0, row).at(self.strip.k()).cast::<u16>();
            consumers.each(tail, |at| start.at(at).store(0u16));
        }
    }

    /// The address from which this lane reads the columns of two steps at a time, for codes as the
    /// A operand: lanes 0 to 15 of the first step.
    pub(super) fn two_steps(self, consumers: ConsumerWarps<'k>) -> Ptr<'k, Shared, u32> {
        let lane = consumers.k.lane();
        let columns = self.packing.parts() * self.packing.rows();
        let column = (lane / 4 % 4).min(columns - 1);
        let column = if columns == 2 { lane / 4 % 2 } else { column };
        self.at.at(column * pitch(self.strip) + lane / 16 * DEPTH + lane % 4 * 8).cast()
    }

    /// The addresses from which this lane reads.
    pub(super) fn lane(self, consumers: ConsumerWarps<'k>) -> Lane<'k> {
        let packing = self.packing;
        let column = consumers.k.lane() % 4 * 8;
        let quads = packing.halves().into_iter().flat_map(|half| {
            let row = half.row(consumers);
            let of_part = |part: Val<'k, u32>| {
                let start = (part * packing.rows() + row) * pitch(self.strip);
                self.at.at(start + column).cast::<u32>()
            };
            let parts = match packing.quads() {
                Quads::High => vec![consumers.k.lit(0)],
                Quads::Folded => vec![consumers.k.lane() / 16],
                Quads::Both => vec![consumers.k.lit(0), consumers.k.lit(1)],
            };
            parts.into_iter().map(of_part).collect::<Vec<_>>()
        });
        Lane { quads: quads.collect(), packing }
    }
}

impl<'k> Lane<'k> {
    /// The words of a tile for this lane.
    #[track_caller]
    pub fn tile(&self, tile: Val<'k, u32>) -> Vec<Fragment<'k>> {
        let quads: Vec<[Val<u32>; 4]> = self.quads.iter().map(|from| from.at(tile * (DEPTH / 2)).load_vec()).collect();
        self.packing.fragments(&quads)
    }
}

/// The words of a step and the next for this lane, from the address at which it reads two of them.
#[track_caller]
pub(super) fn of_two_steps<'k>(from: Ptr<'k, Shared, u32>, step: Val<'k, u32>) -> Vec<Fragment<'k>> {
    vec![Fragment { low: from.at(step * (DEPTH / 2)).load_vec(), high: None }]
}

/// The factors of the even and odd pairs of a lane's eight elements for the codes of a strip, if it
/// has codes.
pub(super) fn lift(strip: Strip, packing: Packing) -> [Option<f32>; 2] {
    match strip.codes() {
        Some(codes) => convert::lift(codes.code, packing.terms()).map(Some),
        None => [None; 2],
    }
}

/// Elements from a row to the next: an odd number of tiles' k, half of the banks each, so that
/// neighbouring rows lie in different banks when a warp reads them.
fn pitch(strip: Strip) -> u32 {
    ((strip.padded_k() / DEPTH) | 1) * DEPTH
}
