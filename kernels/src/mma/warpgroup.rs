//! Tiles of one warpgroup: `wgmma` from shared memory, or with the left factor in registers.

use super::Accumulator;
use super::factor::{Factor, warpgroup_atom};
use crate::tile::{Coord, LayoutTensor, place};
use core::marker::PhantomData;
use tilewright_codegen::build::{Arg, Builder, Descriptor, Operands, Scalar, Shared, SwizzleMode, Val};
use tilewright_codegen::ir::WgmmaAtom;
use tilewright_codegen::ir::attr::{Major as KernelMajor, Sign};
use tilewright_layout::swizzle::MatrixDescriptor;
use tilewright_layout::swizzle::canonical::{Major, SwizzleWidth};
use tilewright_layout::typed::StaticLayout;
use tilewright_layout::{IntTuple, Layout, Swizzled};

/// A factor in shared memory, (m, k) or (n, k), as a matrix descriptor describes it. The fields are read off the layout.
#[derive(Clone, Copy)]
pub struct SharedFactor<'k> {
    start: Val<'k, u64>,
    layout: Swizzled,
    bits: i64,
    major: KernelMajor,
}

impl<'k> SharedFactor<'k> {
    /// The tensor as a factor. A layout that the hardware cannot read does not compile.
    ///
    /// The tensor's origin must be a multiple of its swizzle's period, as tiles of whole atoms are.
    #[track_caller]
    pub fn new<T: Scalar, L: StaticLayout>(tensor: LayoutTensor<'k, T, L, Shared>) -> SharedFactor<'k> {
        let descriptor = const {
            match Swizzled::new(L::SWIZZLE, 0, L::LAYOUT).matrix_descriptor(T::TY.bits() as i64) {
                Ok(descriptor) => descriptor,
                Err(error) => panic!("{}", error.message().as_str()),
            }
        };
        let origin = tensor.origin();
        let base = match origin.value() {
            Some(value) => tensor.base().at(value),
            None => tensor.base(),
        };
        let bits = i64::from(T::TY.bits());
        let start = base.descriptor(fields(&descriptor)) + u64::from(origin.constant()) * bits as u64 / 128;
        let major = match descriptor.major {
            Major::K => KernelMajor::K,
            Major::Mn => KernelMajor::Mn,
        };
        SharedFactor { start, layout: tensor.layout(), bits, major }
    }

    /// The factor from a row on, which must be a multiple of 8.
    #[track_caller]
    pub fn from_row(self, row: Coord<'k>) -> SharedFactor<'k> {
        let mode = Layout::constant(self.layout.layout().mode(0));
        // Offsets of whole rows are multiples of the 16 bytes that descriptors count in.
        let units = place(&mode, row) * (self.bits as u32) / 128;
        let start = match units.value() {
            Some(value) => self.start + value.cast::<u64>() + u64::from(units.constant()),
            None => self.start + u64::from(units.constant()),
        };
        SharedFactor { start, ..self }
    }

    /// The descriptor of what begins at (row, column).
    #[track_caller]
    pub fn at(self, row: u32, column: u32) -> Val<'k, u64> {
        let coordinate = IntTuple::constant(IntTuple::flat(&[row.into(), column.into()]));
        let offset = self.layout.layout().offset(&coordinate).unwrap_or(0);
        self.start + (offset * self.bits / 128) as u64
    }

    /// Elements along K.
    pub fn depth(self) -> u32 {
        self.layout.layout().extent(1) as u32
    }

    /// Rows: M or N.
    pub fn rows(self) -> u32 {
        self.layout.layout().extent(0) as u32
    }
}

fn fields(descriptor: &MatrixDescriptor) -> Descriptor {
    let swizzle = match descriptor.width {
        SwizzleWidth::Interleaved => SwizzleMode::None,
        SwizzleWidth::Bytes32 => SwizzleMode::B32,
        SwizzleWidth::Bytes64 => SwizzleMode::B64,
        SwizzleWidth::Bytes128 => SwizzleMode::B128,
    };
    Descriptor { swizzle, leading: descriptor.leading as u32, stride: descriptor.stride as u32 }
}

/// A product of M×N that one warpgroup sums up, M a multiple of 64 and N one atom's.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use half::bf16;
/// use tilewright_kernels::{mma::{SharedFactor, WarpgroupTile}, tile::LayoutTensor};
/// use tilewright_layout::typed::{KMajor, MatrixTile, MnMajor};
/// # record("sample", Arch::Sm90a, block(128), |k| {
/// let a = LayoutTensor::new(k.shared_aligned::<bf16>("a", 64 * 64, 1024), MatrixTile::<KMajor, 16, 64, 64>::default());
/// let b = LayoutTensor::new(k.shared_aligned::<bf16>("b", 128 * 64, 1024), MatrixTile::<MnMajor, 16, 128, 64>::default());
/// let tile = WarpgroupTile::<bf16>::new(k, 64, 128);
/// k.wgmma_fence();
/// tile.multiply(SharedFactor::new(a), SharedFactor::new(b), false);
/// k.wgmma_commit();
/// k.wgmma_wait(0);
/// # });
/// ```
pub struct WarpgroupTile<'k, F: Factor> {
    sums: Accumulator<'k, F::Sum>,
    atom: WgmmaAtom,
    factor: PhantomData<F>,
}

impl<F: Factor> Clone for WarpgroupTile<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Factor> Copy for WarpgroupTile<'_, F> {}

impl<'k, F: Factor> WarpgroupTile<'k, F> {
    /// Sums that the first [`multiply`](WarpgroupTile::multiply) must replace.
    ///
    /// # Panics
    /// Where `n` is no atom's: a multiple of 8 (of 16 above 32 for integers), 8 to 256.
    pub fn new(k: &'k Builder, m: u32, n: u32) -> WarpgroupTile<'k, F> {
        let (atom, fragment) = warpgroup_atom::<F>(n);
        WarpgroupTile { sums: Accumulator::unset(k, fragment, m / 64, 1), atom, factor: PhantomData }
    }

    /// The sums; not to be touched while a group is in flight.
    pub fn sums(self) -> Accumulator<'k, F::Sum> {
        self.sums
    }

    /// Adds A·Bᵀ over all of K that the factors hold; where `keep` is false, replaces the sums by it. Asynchronous: fence
    /// before, commit and wait behind.
    #[track_caller]
    pub fn multiply(self, a: SharedFactor<'k>, b: SharedFactor<'k>, keep: impl Arg<'k, bool> + Copy) {
        let operands = Operands { sign_a: Sign::Plus, sign_b: Sign::Plus, major_a: a.major, major_b: b.major };
        for step in (0..a.depth()).step_by(F::K as usize) {
            for i in 0..self.sums.atoms()[0] {
                let (sums, a, b) = (self.sums.atom(i, 0), a.at(64 * i, step), b.at(0, step));
                if step == 0 {
                    sums.wgmma(self.atom, a, b, keep, operands)
                } else {
                    sums.wgmma(self.atom, a, b, true, operands)
                }
            }
        }
    }

    /// As [`multiply`](WarpgroupTile::multiply) for one step of K and the 64 rows of atom `i`, the left factor in four
    /// registers.
    #[track_caller]
    pub fn multiply_registers<A: Scalar>(
        self,
        i: u32,
        a: &[Val<'k, A>],
        b: SharedFactor<'k>,
        step: u32,
        keep: impl Arg<'k, bool>,
    ) {
        let operands = Operands { major_b: b.major, ..Operands::K_MAJOR };
        self.sums.atom(i, 0).wgmma_rs(self.atom, a, b.at(0, step), keep, operands);
    }
}
