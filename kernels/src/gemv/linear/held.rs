//! Stages of weights in registers: what a team that waits for its activations has taken out of the ring, so that the ring
//! has room for what comes behind.

use tilewright_codegen::build::{Val, Var};

use super::Weights;
use crate::gemv::Unit;
use crate::gemv::product::{Packed, WarpTile};
use crate::warps::ConsumerWarps;

/// A stage of the ring in the registers of the team: of each tile that a warp multiplies, a lane's 16 bytes.
pub struct HeldStage<'k> {
    team: ConsumerWarps<'k>,
    widest: Unit,
    tiles: Vec<[Var<'k, u32>; 4]>,
}

impl<'k> HeldStage<'k> {
    /// Registers for a stage of at most so many bytes, zeros.
    pub fn new(team: ConsumerWarps<'k>, stage_bytes: u32) -> HeldStage<'k> {
        let widest = Unit::of_one_stage(team.warps, stage_bytes);
        let tile = |_| std::array::from_fn(|_| team.k.var(0u32));
        HeldStage { team, widest, tiles: (0..widest.per_warp()).map(tile).collect() }
    }

    /// Takes the ring's next stage, which has `bytes` bytes, and gives it back; by whole warps.
    pub fn take(&self, ring: &dyn Weights<'k>, bytes: Val<'k, u32>) {
        let (k, round) = (self.team.k, self.widest.stage_bytes() / self.widest.per_warp().max(1));
        ring.stage(&|stage| {
            for ((number, tile), words) in (0u32..).zip(WarpTile::of_whole_rounds(k, self.widest)).zip(&self.tiles) {
                k.when(bytes.gt(number * round), || {
                    let loaded = tile.load(self.widest, stage.cast()).codes();
                    words.iter().zip(loaded).for_each(|(word, loaded)| word.set(loaded));
                });
            }
        });
    }

    /// This lane's weights of its warp's tiles of a stage of the unit.
    pub(super) fn tiles(&self, unit: Unit) -> impl Iterator<Item = Packed<'k>> {
        self.tiles.iter().take(unit.per_warp() as usize).map(|tile| Packed::of(tile.map(Var::get)))
    }
}
