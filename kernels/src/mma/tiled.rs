//! [`TiledMma`]: an instruction, its tiles, and the layout of atoms over the result, as one type.

use super::input::{InputType, warp_fragment, warpgroup_atom};
use super::{Accumulator, MmaError};
use crate::tile::Index;
use core::marker::PhantomData;
use thiserror::Error;
use tilewright_codegen::build::Builder;
use tilewright_codegen::ir::{Arch, Needs, WgmmaAtom};
use tilewright_layout::fragment::{MmaOperand, StaticFragment};
use tilewright_layout::typed::StaticLayout;

/// A matrix instruction.
pub trait Atom: 'static {
    /// The type of its operands.
    type Input: InputType;
    /// Its A operand in registers.
    type A: StaticFragment;
    /// Its name.
    const NAME: &'static str;
    /// The architecture that it needs.
    const NEEDS: Needs;
    /// The threads that execute it: "warps" or "warpgroups".
    const GROUP: &'static str;
    /// Threads that execute it: of a warp, or of a warpgroup.
    const THREADS: u32;
    /// Rows of one.
    const ROWS: u32;
    /// Columns of one; nothing where one takes all columns of its threads' part.
    const COLUMNS: Option<u32>;
}

/// `mma.sync` m16n8 on operands of type `F`: a warp executes it, both operands come through its
/// registers.
#[derive(Clone, Copy, Debug)]
pub struct MmaSync<F>(PhantomData<F>);

impl<F: InputType> Atom for MmaSync<F> {
    type Input = F;
    type A = F::WarpA;
    const NAME: &'static str = "mma.sync";
    const NEEDS: Needs = F::WARP.needs();
    const GROUP: &'static str = "warps";
    const THREADS: u32 = 32;
    const ROWS: u32 = 16;
    const COLUMNS: Option<u32> = Some(8);
}

/// `wgmma` m64 on operands of type `F`: a warpgroup executes it, B stays in shared memory, the
/// product is asynchronous.
#[derive(Clone, Copy, Debug)]
pub struct Wgmma<F>(PhantomData<F>);

impl<F: InputType> Atom for Wgmma<F> {
    type Input = F;
    type A = F::WarpgroupA;
    const NAME: &'static str = "wgmma";
    const NEEDS: Needs = Needs::Sm90a;
    const GROUP: &'static str = "warpgroups";
    const THREADS: u32 = 128;
    const ROWS: u32 = 64;
    const COLUMNS: Option<u32> = None;
}

/// An architecture without an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{atom} of {input} needs {needs:?}, and {arch} has not got it; take another instruction or type")]
pub struct MissingAtom {
    /// The instruction.
    pub atom: &'static str,
    /// The type of its operands.
    pub input: &'static str,
    /// The requirement.
    pub needs: Needs,
    /// The architecture.
    pub arch: Arch,
}

/// The arrangement of warps (warpgroups for `wgmma`) over a tile of the result.
pub trait AtomGrid: 'static {
    /// Warps or warpgroups down the rows.
    const DOWN: u32;
    /// Warps or warpgroups across the columns.
    const ACROSS: u32;
}

/// `DOWN` warps (or warpgroups) down the rows, numbered first, and `ACROSS` across the columns.
#[derive(Clone, Copy, Debug)]
pub struct AtomLayout<const DOWN: u32, const ACROSS: u32>;

impl<const DOWN: u32, const ACROSS: u32> AtomGrid for AtomLayout<DOWN, ACROSS> {
    const DOWN: u32 = DOWN;
    const ACROSS: u32 = ACROSS;
}

/// A product of tiles in shared memory on tensor cores: `D += A·Bᵀ` for a tile (m, k) of layout `A`
/// and a tile (n, k) of layout `B`.
///
/// | parameter | meaning |
/// |---|---|
/// | `X` | the instruction and the type of its operands: [`MmaSync`] (sm_80) or [`Wgmma`] (sm_90a) |
/// | `A`, `B` | typed layouts of the tiles; M, N and K are their extents, and they fix which index is contiguous |
/// | `G` | an [`AtomLayout`]: how warps, or warpgroups for `wgmma`, divide the result |
///
/// Each warp or warpgroup sums its part of the result in registers: f32, or s32 for integers.
///
/// # Steps
/// | step | [`MmaSync`] | [`Wgmma`] |
/// |---|---|---|
/// | multiply the whole K of the tiles | [`multiply`](TiledMma::multiply), complete when it returns | [`issue`](TiledMma::issue), then [`wait_group`](TiledMma::wait_group) |
/// | one step of K, fragments by hand | [`load_a`](TiledMma::load_a), [`load_b`](TiledMma::load_b), [`mma`](TiledMma::mma) | |
/// | write the result | [`store_d`](TiledMma::store_d) | the same |
///
/// # Threads
/// [`new`](TiledMma::new) takes the whole block, whose threads are those of the grid. In a block
/// with other warps, such as a producer, [`by_warps`](TiledMma::by_warps) numbers those that
/// multiply.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use half::bf16;
/// use tilewright_kernels::mma::{AtomLayout, MmaSync, TiledMma, Wgmma};
/// use tilewright_kernels::tile::LayoutTensor;
/// use tilewright_layout::typed::{KMajor, OperandTile, MnMajor};
/// type A = OperandTile<KMajor, 16, 128, 64>;
/// type B = OperandTile<MnMajor, 16, 64, 64>;
/// # record("sample", Arch::Sm90a, block(256), |k| {
/// let a = LayoutTensor::new(k.shared_aligned::<bf16>("a", 128 * 64, 1024), A::default());
/// let b = LayoutTensor::new(k.shared_aligned::<bf16>("b", 64 * 64, 1024), B::default());
///
/// // Eight warps, four down and two across, of 32×32 each.
/// let product = TiledMma::<MmaSync<bf16>, A, B, AtomLayout<4, 2>>::new(k);
/// product.multiply(a, b);
///
/// // Two warpgroups of 64×64 each.
/// let product = TiledMma::<Wgmma<bf16>, A, B, AtomLayout<2, 1>>::new(k);
/// product.issue(a, b, false);
/// product.wait_group(0);
/// # });
/// ```
///
/// Tiles whose K differs do not compile:
/// ```compile_fail
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// # use half::bf16;
/// # use tilewright_kernels::mma::{MmaSync, TiledMma};
/// # use tilewright_layout::typed::{KMajor, OperandTile};
/// # record("sample", Arch::Sm80, block(32), |k| {
/// TiledMma::<MmaSync<bf16>, OperandTile<KMajor, 16, 64, 64>, OperandTile<KMajor, 16, 64, 32>>::new(k);
/// # });
/// ```
/// nor tiles that the warps cannot share out in whole instructions (here 64 rows for two warpgroups
/// of 64, and 264 columns for an instruction of 256 at most):
/// ```compile_fail
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// # use half::bf16;
/// # use tilewright_kernels::mma::{AtomLayout, TiledMma, Wgmma};
/// # use tilewright_layout::typed::{KMajor, OperandTile};
/// # record("sample", Arch::Sm90a, block(256), |k| {
/// TiledMma::<Wgmma<bf16>, OperandTile<KMajor, 16, 64, 64>, OperandTile<KMajor, 16, 64, 64>, AtomLayout<2, 1>>::new(k);
/// # });
/// ```
/// ```compile_fail
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// # use half::bf16;
/// # use tilewright_kernels::mma::{TiledMma, Wgmma};
/// # use tilewright_layout::typed::{KMajor, OperandTile};
/// # record("sample", Arch::Sm90a, block(128), |k| {
/// TiledMma::<Wgmma<bf16>, OperandTile<KMajor, 16, 64, 64>, OperandTile<KMajor, 16, 264, 64>>::new(k);
/// # });
/// ```
/// nor does `multiply` of `wgmma`, which is asynchronous. `wgmma` reads operands of 8 bits only
/// along K: take [`Width::Tile`](super::Width::Tile), which is laid out so. [`on`](TiledMma::on)
/// tells a planner whether an architecture has the instruction; recording a kernel for one without
/// it is an error of `verify`.
pub struct TiledMma<'k, X: Atom, A, B, G = AtomLayout<1, 1>> {
    pub(super) k: &'k Builder,
    pub(super) sums: AtomSums<'k, X>,
    /// The number of this thread's warp or warpgroup in the grid.
    number: Index<'k>,
    tiles: PhantomData<(X, A, B, G)>,
}

/// The registers in which the products of an atom are summed.
pub type AtomSums<'k, X> = Accumulator<'k, <<X as Atom>::Input as InputType>::Sum>;

impl<X: Atom, A, B, G> Clone for TiledMma<'_, X, A, B, G> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<X: Atom, A, B, G> Copy for TiledMma<'_, X, A, B, G> {}

impl<'k, X: Atom, A: StaticLayout, B: StaticLayout, G: AtomGrid> TiledMma<'k, X, A, B, G> {
    /// M, N and K of the tiles. Everything that a type can get wrong is an error of this constant.
    pub const EXTENTS: [u32; 3] = {
        let [m, depth] = extents::<A>();
        let [n, other] = extents::<B>();
        assert!(depth == other, "tiled mma: the two operands' tiles have different extents of K");
        assert!(depth.is_multiple_of(X::Input::K), "tiled mma: K of the tiles is not a multiple of the instruction's");
        assert!(
            m.is_multiple_of(X::ROWS * G::DOWN),
            "tiled mma: the warps of the grid do not share out M in whole instructions"
        );
        assert!(n.is_multiple_of(G::ACROSS), "tiled mma: the warps of the grid do not share out N");
        let columns = n / G::ACROSS;
        let whole = match X::COLUMNS {
            Some(one) => columns.is_multiple_of(one),
            None => WgmmaAtom::new(columns, X::Input::WARPGROUP).is_some(),
        };
        assert!(whole, "tiled mma: the warps of the grid do not share out N in whole instructions");
        [m, n, depth]
    };
    /// Rows and columns of a warp's (or warpgroup's) part of the result.
    pub const PART: [u32; 2] = [Self::EXTENTS[0] / G::DOWN, Self::EXTENTS[1] / G::ACROSS];
    /// Steps of K that the tiles hold, an instruction's K each.
    pub const STEPS: u32 = Self::EXTENTS[2] / X::Input::K;
    /// Threads of the whole grid.
    pub const THREADS: u32 = X::THREADS * G::DOWN * G::ACROSS;

    /// Checks that an architecture has the instruction.
    ///
    /// ```
    /// use tilewright_codegen::ir::Arch;
    /// use tilewright_kernels::mma::{E4M3, MmaSync, TiledMma};
    /// use tilewright_layout::typed::{KMajor, OperandTile};
    /// type Tile = OperandTile<KMajor, 8, 64, 128>;
    /// let missing = TiledMma::<MmaSync<E4M3>, Tile, Tile>::on(Arch::Sm80).unwrap_err();
    /// assert_eq!(missing.to_string(), "mma.sync of e4m3 needs Sm89, and sm_80 has not got it; take another instruction or type");
    /// ```
    ///
    /// # Errors
    /// [`MissingAtom`] where it has not.
    pub const fn on(arch: Arch) -> Result<(), MissingAtom> {
        let needs = X::NEEDS;
        if needs.met_by(arch) { Ok(()) } else { Err(MissingAtom { atom: X::NAME, input: X::Input::NAME, needs, arch }) }
    }

    /// The product by the threads of the block. Sums of `mma.sync` begin as zeros; those of `wgmma`
    /// are what the first `issue` makes them.
    ///
    /// The block has the threads of the grid, neither fewer ([`MmaError::Threads`]) nor more
    /// ([`MmaError::Idle`]): a block with other warps besides numbers those that multiply, with
    /// [`by_warps`](TiledMma::by_warps).
    #[track_caller]
    pub fn new(k: &'k Builder) -> Self {
        let (threads, block, [down, across]) = (Self::THREADS, k.threads(), [G::DOWN, G::ACROSS]);
        if threads > block {
            k.refuse(&MmaError::Threads { threads, down, across, group: X::GROUP, block });
        } else if threads < block {
            k.refuse(&MmaError::Idle { threads, down, across, group: X::GROUP, block });
        }
        let count = G::DOWN * G::ACROSS;
        let warps = X::THREADS / 32;
        let number = if warps == 1 { k.warp() } else { k.warp() / warps };
        Self::by_warps(k, Index::below(number, count))
    }

    /// The product by warps (or warpgroups) that are numbered otherwise: this thread's is `number`.
    ///
    /// Refused, as an [`MmaError`]: a block without the threads of one of them, a number known to
    /// be beyond the grid, and too few numbers, which would leave parts of the result uncomputed.
    #[track_caller]
    pub fn by_warps(k: &'k Builder, number: Index<'k>) -> Self {
        Self::expect_number(k, number);
        let [rows, columns] = Self::PART;
        let (fragment, across) = match X::COLUMNS {
            Some(one) => (const { warp_fragment::<X::Input>(MmaOperand::C) }, columns / one),
            None => (warpgroup_atom::<X::Input>(columns).1, 1),
        };
        let sums = Accumulator::unset(k, fragment, rows / X::ROWS, across);
        let product = TiledMma { k, sums, number, tiles: PhantomData };
        if X::COLUMNS.is_some() {
            product.clear();
        }
        product
    }

    /// Refuses numbers that do not make up the grid, as far as they are known.
    #[track_caller]
    fn expect_number(k: &Builder, number: Index<'k>) {
        let (group, threads, block, [down, across]) = (X::GROUP, X::THREADS, k.threads(), [G::DOWN, G::ACROSS]);
        let count = down * across;
        let first = number.constant();
        let most = first.saturating_add(1).saturating_add(number.bits());
        if threads > block {
            k.refuse(&MmaError::Group { group, threads, block });
        } else if first >= count {
            k.refuse(&MmaError::Number { number: first, down, across, group, count });
        } else if number.value().is_some() && most < count {
            k.refuse(&MmaError::Unnumbered { down, across, group, most, count });
        }
    }

    /// A step of K; the first step if the tiles do not have the one that was given, which is
    /// refused.
    #[track_caller]
    pub(super) fn step_of(self, step: u32) -> u32 {
        let steps = Self::STEPS;
        if step >= steps {
            self.k.refuse(&MmaError::Step { step, steps });
        }
        if step < steps { step } else { 0 }
    }

    /// Sets every sum to zero.
    #[track_caller]
    pub fn clear(self) {
        self.sums.clear(self.k);
    }

    /// The sums of this thread's warp or warpgroup. Those of `wgmma` are not to be touched while a
    /// group is in flight.
    pub fn sums(self) -> AtomSums<'k, X> {
        self.sums
    }

    /// The index of this thread in its warp or warpgroup.
    #[track_caller]
    pub fn thread(self) -> Index<'k> {
        if X::THREADS == 32 { Index::lane(self.k) } else { Index::below(self.k.tid() % X::THREADS, X::THREADS) }
    }

    /// Row and column of the result where the part of this thread's warp or warpgroup begins.
    #[track_caller]
    pub fn corner(self) -> [Index<'k>; 2] {
        let [rows, columns] = Self::PART;
        match (G::DOWN, G::ACROSS) {
            (1, across) => [0.into(), if across == 1 { 0.into() } else { self.number * columns }],
            (_, 1) => [self.number * rows, 0.into()],
            (down, _) => [self.number % down * rows, self.number / down * columns],
        }
    }
}

const fn extents<L: StaticLayout>() -> [u32; 2] {
    assert!(L::LAYOUT.rank() == 2, "tiled mma: an operand's tile has two modes, rows and K");
    [L::LAYOUT.extent(0) as u32, L::LAYOUT.extent(1) as u32]
}
