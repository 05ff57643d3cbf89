//! Weights of the launch that comes next, asked for from level two while this one ends.

use tilewright_codegen::build::{Builder, Global, Ptr, Val};

use super::tiles::Plan;

/// What the blocks of a launch begin with: a kernel's parameters, in this order.
///
/// ```
/// use tilewright_kernels::gemv::{Unit, hopper::{Ahead, Plan, choose}};
/// let unit = Unit::new(4096, 8, 16384)?;
/// let plan = Plan::new(64, 4096, unit, choose(64, 4096, unit, 132, 2))?;
/// let ahead = Ahead::of(&plan, 132, 32768);
/// assert_eq!((ahead.blocks, ahead.units * ahead.piece * ahead.pieces), (plan.blocks(132), 32768));
/// assert_eq!(Ahead::default().numbers(), [0, 1, 0, 1, 1, 0, 0, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Blocks; 0: nothing is asked for.
    pub blocks: u32,
    /// Units of a tile.
    pub units: u32,
    /// Bytes of a unit.
    pub stride: u32,
    /// Blocks that share activations.
    pub multicast: u32,
    /// Shares of k.
    pub splits: u32,
    /// Bytes of a unit from one share to the next.
    pub share: u32,
    /// Bytes of a unit that are asked for at a time, of all units before the next: as stages come.
    pub piece: u32,
    /// How often.
    pub pieces: u32,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead { blocks: 0, units: 1, stride: 0, multicast: 1, splits: 1, share: 0, piece: 0, pieces: 0 }
    }
}

impl Ahead {
    /// At most so many bytes of the first tile of every block of a plan; nothing of a plan whose last tile has not got all its rows.
    pub fn of(plan: &Plan, multiprocessors: u32, bytes: u32) -> Ahead {
        let (units, stride) = (plan.units(), plan.unit.bytes());
        let (multicast, splits) = (plan.tuning.multicast, plan.tuning.splits);
        let stage = plan.stage_bytes() / units;
        let share = plan.chunks() / splits * stage;
        // The last share may be shorter.
        let bytes = (bytes / units).min(share).min(stride.saturating_sub(share * (splits - 1))) / LINE * LINE;
        if !plan.is_whole() || bytes == 0 {
            return Ahead::default();
        }
        let piece = bytes.min(stage);
        Ahead {
            blocks: plan.blocks(multiprocessors),
            units,
            stride,
            multicast,
            splits,
            share,
            piece,
            pieces: bytes / piece,
        }
    }

    /// The parameters behind the weights' address.
    pub fn numbers(self) -> [u32; 8] {
        let Ahead { blocks, units, stride, multicast, splits, share, piece, pieces } = self;
        [blocks, units, stride, multicast, splits, share, piece, pieces]
    }
}

/// Bytes of a line of level two.
const LINE: u32 = 128;

/// The parameters in a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'k> {
    weights: Ptr<'k, Global, u8>,
    numbers: [Val<'k, u32>; 8],
}

impl<'k> Asked<'k> {
    pub fn parameters(k: &'k Builder) -> Asked<'k> {
        let names = ["blocks", "units", "stride", "multicast", "splits", "share", "piece", "pieces"];
        Asked { weights: k.global("ahead"), numbers: names.map(|name| k.param(&format!("ahead_{name}"))) }
    }

    /// Asks, by one thread: for what the block of that number begins with in the next launch.
    pub fn ask(self, k: &'k Builder, block: Val<'k, u32>) {
        let [blocks, units, stride, multicast, splits, share, piece, pieces] = self.numbers;
        k.when(block.lt(blocks), || {
            let cluster = multicast * splits;
            let rank = block % cluster;
            let tile = block / cluster * multicast + rank % multicast;
            let first = self.weights.at((tile * units).mul_wide(stride)).at(rank / multicast * share);
            k.for_(0, pieces, |number| {
                let first = first.at(number * piece);
                k.for_(0, units, |unit| first.at(unit.mul_wide(stride)).bulk_prefetch(piece));
            });
        });
    }
}
