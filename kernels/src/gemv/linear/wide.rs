//! Stages of codes with more activations than registers hold: 16 KB of 4 bits have four times the k
//! of bf16.
//!
//! The stages of a group of strips are taken into registers, their factors into shared memory; then
//! activations come by rounds of tiles, and meet every strip of the group before the next come.

use tilewright_codegen::build::Var;

use super::reloaded::Reloading;
use super::shared_bytes::factor_bytes;
use super::side::side;
use super::source::ActivationSource;
use crate::gemv::activations::AOperand;
use crate::gemv::product::{Chains, ProductOperands, lowered, multiply_codes};
use crate::weights::{CodeTile, Codes, LaneCodes, WarpTile};

/// Adds the products of the next strips of the ring, which are codes, to their sums; a group has
/// `group` strips.
pub(super) fn products<'k>(work: Reloading<'_, 'k>, codes: Codes, group: u32) {
    let Reloading { source, weights, sums, strips, room, zero_points } = work;
    let ActivationSource { consumers, strip, packing, .. } = *source;
    let k = consumers.k;
    let side = side(strip, packing, AOperand::Reloaded { group });
    let terms = packing.terms();
    work.begin();
    let each = |of: &dyn Fn(u32)| (0..group).for_each(|slot| k.when(strips.gt(slot), || of(slot)));
    let factors = |slot: u32| room.at(slot * factor_bytes(strip));
    k.for_(0u32, strip.stages(), |stage| {
        let words = if strip.has_blocks() { 5 } else { 4 };
        let tile = |_| -> Vec<Var<'k, u32>> { (0..words).map(|_| k.var(0u32)).collect() };
        let held: Vec<Vec<_>> = (0..group).map(|_| (0..strip.per_warp()).map(tile).collect()).collect();
        // No warp reads the factors of the previous stage any more.
        consumers.sync();
        each(&|slot| {
            weights.stage(&|from| {
                for (tile, words) in WarpTile::of_whole_rounds(k, strip).zip(&held[slot as usize]) {
                    let loaded = tile.load(strip, from.cast());
                    let loaded = loaded.codes().into_iter().chain(loaded.blocks());
                    words.iter().zip(loaded).for_each(|(word, loaded)| word.set(loaded));
                }
                let from = from.at(strip.scales_at() / 4);
                let to = factors(slot).cast::<u32>();
                consumers.each(factor_bytes(strip) / 4, |at| to.at(at).store(from.at(at).load()));
            });
        });
        consumers.sync();
        let chains: Vec<Chains> = (0..group).map(|_| Chains::new(k, 1, 1)).collect();
        let columns = source.columns(stage);
        let rounds = columns.chunks(strip.steps() as usize).zip(WarpTile::of_whole_rounds(k, strip));
        for (round, (columns, tile)) in rounds.enumerate() {
            let fragments = source.fragments(columns);
            let number = tile.tile.get(k);
            if let Some(zero_points) = zero_points {
                zero_points.make(consumers, &[(number, fragments.clone())]);
                k.sync_warp();
            }
            let fragments = |step: u32| fragments[step as usize].clone();
            let zero_points = |_: u32, part: u32, _: u32| zero_points.map(|sums| sums.load(number, part, 0));
            each(&|slot| {
                let words: Vec<_> = held[slot as usize][round].iter().map(|word| word.get()).collect();
                let packed = LaneCodes::of([0, 1, 2, 3].map(|at| words[at])).with_blocks(words.get(4).copied());
                let tile = CodeTile::new(packed, strip.factors(codes, side, factors(slot), tile.tile));
                let meeting = ProductOperands { side, terms, fragments: &fragments, zero_points: &zero_points };
                multiply_codes(k, strip, codes, std::iter::once(tile), &meeting, chains[slot as usize]);
            });
        }
        each(&|slot| sums.add(consumers, k.lit(slot), lowered(strip, side, terms, chains[slot as usize])));
    });
}
