//! Strips from the ring times activations that are loaded stage by stage ([`AOperand::Reloaded`]).

use tilewright_codegen::build::{Ptr, Shared, Val};

use super::products::{WeightStage, chains};
use super::side::side;
use super::source::ActivationSource;
use super::sums::SharedSums;
use super::zero_points::SharedZeroPoints;
use crate::gemv::activations::AOperand;
use crate::gemv::product::{Chains, ProductOperands, lowered};
use crate::weights::{WarpTile, WeightStages};

/// The products of a ring's strips, which come in the order of a group, with activations that are
/// loaded stage by stage.
#[derive(Clone, Copy)]
pub(super) struct Reloading<'a, 'k> {
    /// Source of the activations.
    pub source: &'a ActivationSource<'k>,
    /// Source of the strips, stage by stage.
    pub weights: &'a dyn WeightStages<'k>,
    /// Shared memory that receives the products.
    pub sums: SharedSums<'k>,
    /// Strips that are multiplied, a group at most.
    pub strips: Val<'k, u32>,
    /// Shared memory for the factors of a group's codes, of [`AOperand::operand_bytes`].
    pub room: Ptr<'k, Shared, u8>,
    /// Zero-point accumulators of codes.
    pub zero_points: Option<SharedZeroPoints<'k>>,
}

impl Reloading<'_, '_> {
    /// Sets the sums to zero, of products and of squares.
    pub fn begin(self) {
        let Reloading { source, sums, strips, .. } = self;
        let ActivationSource { consumers, .. } = *source;
        let k = consumers.k;
        // A lane alone reads and writes its part of the sums until the consumer warps meets.
        k.for_(0u32, strips, |slot| {
            sums.place(consumers, slot, [k.lit(0.0f32); 4], |at, zeros| at.store_vec(zeros));
        });
        source.clear_squares();
    }
}

/// Multiplies the next strips of the ring.
pub(super) fn products(work: Reloading<'_, '_>) {
    let Reloading { source, weights, sums, strips, zero_points, .. } = work;
    let ActivationSource { consumers, strip, packing, .. } = *source;
    let k = consumers.k;
    let side = side(strip, packing, AOperand::Reloaded { group: 0 });
    let terms = packing.terms();
    work.begin();
    k.for_(0u32, strip.stages(), |stage| {
        let fragments = source.fragments(&source.columns(stage));
        let tile = |round: u32| WarpTile::number(k, strip, round).get(k);
        if let Some(zero_points) = zero_points {
            // The warp has read those of the stage before.
            k.sync_warp();
            let tiles = (0u32..).zip(fragments.chunks(strip.steps() as usize));
            let tiles: Vec<_> = tiles.map(|(round, fragments)| (tile(round), fragments.to_vec())).collect();
            zero_points.make(consumers, &tiles);
            k.sync_warp();
        }
        let zero_points = |round: u32, part: u32, _: u32| zero_points.map(|sums| sums.load(tile(round), part, 0));
        let fragments = |step: u32| fragments[step as usize].clone();
        k.for_(0u32, strips, |slot| {
            let chains = Chains::new(k, 1, chains(strip));
            let meeting = ProductOperands { side, terms, fragments: &fragments, zero_points: &zero_points };
            WeightStage::Next(weights).multiply(consumers, strip, meeting, chains);
            sums.add(consumers, slot, lowered(strip, side, terms, chains));
        });
    });
}
