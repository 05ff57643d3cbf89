//! Copies of tiles: who moves what, and how wide, follows from the layouts; edges read as zero.

use super::matrix::MatrixTile;
use super::{Index, LayoutTensor};
use tilewright_codegen::build::{Builder, Scalar, Shared, Val};
use tilewright_codegen::ir::attr::{CpBytes, CpCache};
use tilewright_layout::LayoutError;
use tilewright_layout::analysis::CopyPlan;
use tilewright_layout::view::OffsetMap;

/// The threads that copy together: the number of one, and how many there are.
#[derive(Clone, Copy)]
pub struct ThreadGroup<'k> {
    /// This thread, below `count`.
    pub thread: Index<'k>,
    /// How many take part.
    pub count: u32,
}

impl<'k> ThreadGroup<'k> {
    /// All threads of the block.
    pub fn block(k: &'k Builder) -> ThreadGroup<'k> {
        ThreadGroup { thread: Index::thread(k), count: k.threads() }
    }
}

/// A copy of one vector: coordinates of its first element, and whether this thread has one at all.
struct Piece<'k> {
    at: [Index<'k>; 2],
    mine: Option<Val<'k, bool>>,
}

/// Deals the vectors of a plan to the threads of a team.
fn pieces<'k>(k: &'k Builder, team: ThreadGroup<'k>, plan: &CopyPlan) -> Vec<Piece<'k>> {
    let total = plan.vectors.size() as u32;
    let along = plan.vectors.extent(0) as u32;
    (0..plan.rounds as u32)
        .map(|round| {
            let number = team.thread + round * team.count;
            let [a, b] = [number % along * plan.width as u32, number / along];
            let at = if plan.along == 0 { [a, b] } else { [b, a] };
            let whole = (round + 1) * team.count <= total;
            Piece { at, mine: (!whole).then(|| number.get(k).lt(total)) }
        })
        .collect()
}

/// Copies a tile of a matrix to shared memory, asynchronously where vectors have 4 bytes or more (the caller commits the
/// group and waits), by plain loads and stores elsewhere. What lies outside the matrix reads as zero.
///
/// # Errors
/// [`LayoutError`] where the destination has another shape than the tile.
#[track_caller]
pub fn copy_async<'k, T: Scalar, L: OffsetMap>(
    k: &'k Builder,
    team: ThreadGroup<'k>,
    from: MatrixTile<'k, T>,
    to: LayoutTensor<'k, T, L, Shared>,
) -> Result<(), LayoutError> {
    let (matrix, bits) = (from.matrix(), i64::from(T::TY.bits()));
    let [rows, columns] = from.extents().map(i64::from);
    let source = i64::from(matrix.vector());
    let plan = CopyPlan::new([rows, columns], matrix.contiguous(), source, &to.layout(), bits, i64::from(team.count))?;
    let bytes = match plan.width * bits {
        32 => Some(CpBytes::B4),
        64 => Some(CpBytes::B8),
        128 => Some(CpBytes::B16),
        _ => None,
    };
    for Piece { at, mine } in pieces(k, team, &plan) {
        let one = || match bytes {
            Some(bytes) => {
                let filled = from.inside(k, at).select((plan.width * bits / 8) as u32, 0u32);
                let cache = if bytes == CpBytes::B16 { CpCache::Cg } else { CpCache::Ca };
                to.at(at).cp_async_as(from.at(k, at), bytes, cache, Some(filled));
            }
            None => (0..plan.width as u32).for_each(|i| {
                let at = step(at, plan.along, i);
                k.if_else(from.inside(k, at), || to.at(at).store(from.at(k, at).load()), || to.at(at).store(zero(k)));
            }),
        };
        match mine {
            Some(mine) => k.when(mine, one),
            None => one(),
        }
    }
    Ok(())
}

/// The coordinate so many elements further along a mode.
fn step<'k>([row, column]: [Index<'k>; 2], along: usize, by: u32) -> [Index<'k>; 2] {
    if along == 0 { [row + by, column] } else { [row, column + by] }
}

/// All bits zero: the zero of every type.
fn zero<T: Scalar>(k: &Builder) -> Val<'_, T> {
    match T::TY.bits() {
        8 => k.lit(0u8).bits(),
        16 => k.lit(0u16).bits(),
        32 => k.lit(0u32).bits(),
        _ => k.lit(0u64).bits(),
    }
}
