//! Products by `wgmma`: descriptors read off layouts.

use super::input::InputType;
use super::ldmatrix::LdmatrixSource;
use super::tiled::{AtomGrid, AtomSums, TiledMma, Wgmma};
use super::{Accumulator, MmaError};
use crate::tile::{Index, LayoutTensor, RegisterTensor, place};
use core::panic::Location;
use tilewright_codegen::build::{
    Allocation, Builder, Descriptor, IntoVal, Offset, Scalar, Shared, SwizzleMode, Val, WgmmaOperands,
};
use tilewright_codegen::ir::WgmmaAtom;
use tilewright_codegen::ir::attr::{Major as KernelMajor, Sign};
use tilewright_layout::fragment::StaticFragment;
use tilewright_layout::swizzle::MatrixDescriptor;
use tilewright_layout::swizzle::canonical::{Major, SwizzleWidth};
use tilewright_layout::typed::StaticLayout;
use tilewright_layout::view::OffsetMap;
use tilewright_layout::{IntTuple, Layout, LayoutError, Swizzle, Swizzled};

/// An operand in shared memory, (m, k) or (n, k), as a matrix descriptor describes it. The fields
/// are read off the layout.
#[derive(Clone, Copy)]
pub struct SharedOperand<'k> {
    /// The low half of the descriptor, which holds the address; the other half is constant, so that
    /// sums are of 32 bits.
    start: Val<'k, u32>,
    /// The high half, in its place.
    high: u64,
    layout: Swizzled,
    bits: i64,
    major: KernelMajor,
}

impl<'k> SharedOperand<'k> {
    /// The tensor as an operand. A layout that the hardware cannot read does not compile.
    ///
    /// A tensor known to begin off its swizzle's period is refused, [`MmaError::Beside`]: the
    /// descriptor has no bits for it.
    #[track_caller]
    pub fn new<T: Scalar, L: StaticLayout>(tensor: LayoutTensor<'k, T, L, Shared>) -> SharedOperand<'k> {
        let descriptor = const {
            match Swizzled::new(L::SWIZZLE, 0, L::LAYOUT).matrix_descriptor(T::TY.bits() as i64) {
                Ok(descriptor) => descriptor,
                Err(error) => panic!("{}", error.message().as_str()),
            }
        };
        Self::described(tensor, &descriptor)
    }

    /// The tensor as an operand, by a layout that is a value.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use half::bf16;
    /// use tilewright_kernels::{mma::SharedOperand, tile::LayoutTensor};
    /// use tilewright_layout::{Layout, Swizzle, Swizzled};
    /// # record("sample", Arch::Sm90a, block(128), |k| {
    /// let memory = k.shared_aligned::<bf16>("values", 64 * 64, 1024);
    /// let layout = Layout::parse("(64,64):(1,64)").unwrap();
    /// let swizzled = Swizzled::new(Swizzle::new(3, 3, 3).unwrap(), 0, layout);
    /// assert!(SharedOperand::by_value(LayoutTensor::new(memory, swizzled)).is_ok());
    /// assert!(SharedOperand::by_value(LayoutTensor::new(memory, layout)).is_err());
    /// # });
    /// ```
    ///
    /// # Errors
    /// [`LayoutError`] where the hardware cannot read the layout.
    #[track_caller]
    pub fn by_value<T: Scalar, L: OffsetMap>(
        tensor: LayoutTensor<'k, T, L, Shared>,
    ) -> Result<SharedOperand<'k>, LayoutError> {
        let descriptor = tensor.layout().matrix_descriptor(T::TY.bits().into())?;
        Ok(Self::described(tensor, &descriptor))
    }

    #[track_caller]
    fn described<T: Scalar, L: OffsetMap>(
        tensor: LayoutTensor<'k, T, L, Shared>,
        descriptor: &MatrixDescriptor,
    ) -> SharedOperand<'k> {
        expect_aligned(tensor.base().builder(), tensor);
        let origin = tensor.origin();
        let base = match origin.value() {
            Some(value) => tensor.base().at(value),
            None => tensor.base(),
        };
        let bits = i64::from(T::TY.bits());
        let fields = fields(descriptor);
        let start = base.descriptor(fields).cast::<u32>() + (u64::from(origin.constant()) * bits as u64 / 128) as u32;
        let major = match descriptor.major {
            Major::K => KernelMajor::K,
            Major::Mn => KernelMajor::Mn,
        };
        let high = fields.bits() >> 32 << 32;
        SharedOperand { start, high, layout: tensor.layout(), bits, major }
    }

    /// The operand from a row on, which must be a multiple of 8.
    #[track_caller]
    fn sub_tile_at(self, row: Index<'k>) -> SharedOperand<'k> {
        let mode = Layout::constant(self.layout.layout().mode(0));
        // Offsets of whole rows are multiples of the 16 bytes that descriptors count in.
        let units = place(&mode, row) * (self.bits as u32) / 128;
        let start = match units.value() {
            Some(value) => self.start + value + units.constant(),
            None => self.start + units.constant(),
        };
        SharedOperand { start, ..self }
    }

    /// The descriptor of what begins at (row, column).
    #[track_caller]
    fn at(self, row: u32, column: u32) -> Val<'k, u64> {
        let coordinate = IntTuple::constant(IntTuple::flat(&[row.into(), column.into()]));
        let offset = self.layout.layout().offset(&coordinate).unwrap_or(0);
        (self.start + (offset * self.bits / 128) as u32).cast::<u64>() | self.high
    }
}

/// Bytes after which a swizzle repeats; without one, the 16 that a descriptor counts in.
fn period(swizzle: Swizzle, bits: i64) -> u32 {
    let reach = (swizzle.source_mask() | swizzle.target_mask()) * bits / 8;
    (reach as u32 + 1).next_power_of_two().max(16)
}

/// Refuses a tensor that is known to begin off its swizzle's period.
#[track_caller]
fn expect_aligned<'k, T: Scalar, L: OffsetMap>(k: &'k Builder, tensor: LayoutTensor<'k, T, L, Shared>) {
    let period = period(tensor.layout().swizzle(), T::TY.bits().into());
    let bits = tensor.origin().bits().wrapping_mul(T::TY.bytes());
    let mut start = tensor.origin().constant().wrapping_mul(T::TY.bytes());
    if let Some(Allocation { name, align, offset, .. }) = tensor.base().allocation() {
        if align < period {
            return k.refuse(&MmaError::Alignment { name, align, period });
        }
        match offset {
            Offset::Exactly(offset) => start = start.wrapping_add(offset as u32),
            Offset::MultipleOf(step) if step < period => return,
            Offset::MultipleOf(_) => {}
        }
    }
    let low = period - 1;
    let beside = start & (period - 1);
    if bits & low == 0 && beside != 0 {
        k.refuse(&MmaError::Beside { beside, period });
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

impl<'k, S: Scalar> Accumulator<'k, S> {
    /// Adds A·Bᵀ over `steps` steps of K, or where `keep` is false replaces the sums by it, by
    /// `wgmma` on both operands in shared memory. The caller fences before, commits the group and
    /// waits for it.
    ///
    /// Sums that are not those of a `wgmma` of such columns are refused, [`MmaError::Sums`].
    #[track_caller]
    pub fn wgmma<F: InputType<Sum = S>>(
        self,
        a: SharedOperand<'k>,
        b: SharedOperand<'k>,
        steps: u32,
        keep: impl IntoVal<'k, bool> + Copy,
    ) {
        let Some(atom) = self.wgmma_atom::<F>() else { return };
        let operands = WgmmaOperands { sign_a: Sign::Plus, sign_b: Sign::Plus, major_a: a.major, major_b: b.major };
        for step in 0..steps {
            for i in 0..self.atoms()[0] {
                let sums = self.atom(i, 0);
                let a = a.at(64 * i, F::K * step);
                let b = b.at(0, F::K * step);
                if step == 0 {
                    sums.wgmma(atom, a, b, keep, operands);
                } else {
                    sums.wgmma(atom, a, b, true, operands);
                }
            }
        }
    }

    /// The A operand of this thread's warpgroup for the first `steps` steps of K, from row `row` on
    /// of a tile in shared memory (m, k) by `ldmatrix`: for each step a fragment for every 64 rows,
    /// as [`wgmma_registers`](Accumulator::wgmma_registers) takes them. The layout may be a value.
    /// `thread` counts within the warpgroup.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use half::bf16;
    /// use tilewright_kernels::weights::Strip;
    /// use tilewright_kernels::mma::{Accumulator, SharedOperand, warpgroup_atom};
    /// use tilewright_kernels::tile::{Index, LayoutTensor};
    /// use tilewright_layout::{swizzle::canonical::Major, typed::operand_tile};
    /// # record("sample", Arch::Sm90a, block(128), |k| {
    /// // 64 packed rows of weights times 32 vectors, over 64 of k.
    /// let weights = Strip::new(64, 1, 1024).unwrap().layout(8);
    /// let weights = LayoutTensor::new(k.shared_aligned::<bf16>("weights", 64 * 64, 1024), weights);
    /// let vectors = operand_tile(Major::K, 16, 32, 64).unwrap();
    /// let vectors = LayoutTensor::new(k.shared_aligned::<bf16>("vectors", 32 * 64, 1024), vectors);
    /// let sums = Accumulator::<f32>::unset(k, warpgroup_atom::<bf16>(32).1, 1, 1);
    /// let a = sums.load_a::<bf16, _>(Index::thread(k), weights, 0.into(), 4);
    /// k.wgmma_fence();
    /// sums.wgmma_registers::<bf16, _>(&a, SharedOperand::by_value(vectors).unwrap(), false);
    /// k.wgmma_commit();
    /// k.wgmma_wait(0);
    /// # });
    /// ```
    ///
    /// A tile without rows of 16 bytes, along K or of elements of 16 bits along M, is refused,
    /// [`MmaError::Matrices`], and no step is given.
    #[track_caller]
    pub fn load_a<F: InputType<Sum = S>, L: OffsetMap>(
        self,
        thread: Index<'k>,
        a: LayoutTensor<'k, F::Stored, L, Shared>,
        row: Index<'k>,
        steps: u32,
    ) -> Vec<Vec<RegisterTensor<'k, u32, F::WarpgroupA>>> {
        let k = self.registers().builder();
        let source = LdmatrixSource::by_value::<F>(k, a, F::WarpgroupA::FRAGMENT, thread / 32 * 32);
        let Some(source) = source else { return Vec::new() };
        let of_step = |step| (0..self.atoms()[0]).map(|i| source.four(row + 64 * i, F::K * step)).collect();
        (0..steps).map(of_step).collect()
    }

    /// Multiplies as [`wgmma`](Accumulator::wgmma) does, with the A operand in registers: for each
    /// step of K a fragment for every 64 rows.
    ///
    /// More or fewer than the sums have rows of atoms are refused too, [`MmaError::Fragments`].
    #[track_caller]
    pub fn wgmma_registers<F: InputType<Sum = S>, P: Scalar>(
        self,
        a: &[Vec<RegisterTensor<'k, P, F::WarpgroupA>>],
        b: SharedOperand<'k>,
        keep: impl IntoVal<'k, bool> + Copy,
    ) {
        let Some(atom) = self.wgmma_atom::<F>() else { return };
        let operands = WgmmaOperands { major_b: b.major, ..WgmmaOperands::K_MAJOR };
        for (step, a) in (0..).zip(a) {
            if !self.are_for("A", a.len(), self.atoms()[0]) {
                return;
            }
            for (i, a) in (0..).zip(a) {
                let sums = self.atom(i, 0);
                let b = b.at(0, F::K * step);
                if step == 0 {
                    sums.wgmma_rs(atom, a.registers(), b, keep, operands);
                } else {
                    sums.wgmma_rs(atom, a.registers(), b, true, operands);
                }
            }
        }
    }

    /// The instruction whose accumulator this is; one of none is refused.
    #[track_caller]
    fn wgmma_atom<F: InputType>(self) -> Option<WgmmaAtom> {
        let [rows, columns] = [self.fragment().rows, self.fragment().cols];
        let [_, across] = self.atoms();
        let atom = WgmmaAtom::new(columns as u32, F::WARPGROUP).filter(|_| rows == 64 && across == 1);
        if atom.is_none() {
            self.registers().builder().refuse(&MmaError::Sums { rows, columns, across });
        }
        atom
    }
}

impl<'k, F: InputType, A: StaticLayout, B: StaticLayout, G: AtomGrid> TiledMma<'k, Wgmma<F>, A, B, G> {
    /// Begins to add A·Bᵀ over all of K that the tiles hold, or where `keep` is false to replace
    /// the sums by it, as a separate group. Tiles begin at a multiple of their swizzle's period.
    #[track_caller]
    pub fn issue(
        self,
        a: LayoutTensor<'k, F::Stored, A, Shared>,
        b: LayoutTensor<'k, F::Stored, B, Shared>,
        keep: impl IntoVal<'k, bool> + Copy,
    ) {
        self.k.on_behalf(Location::caller(), || {
            self.k.wgmma_fence();
            let [row, column] = self.corner();
            let a = SharedOperand::new(a).sub_tile_at(row);
            let b = SharedOperand::new(b).sub_tile_at(column);
            self.sums.wgmma::<F>(a, b, Self::STEPS, keep);
            self.k.wgmma_commit();
        });
    }

    /// Begins the product of one row of the part's atoms, 64 rows, as a separate group, and replaces
    /// `sums` by it: sums [of such a row](Accumulator::rows_of_atoms), or [like](Accumulator::like)
    /// them.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use half::bf16;
    /// use tilewright_kernels::mma::{TiledMma, Wgmma};
    /// # use tilewright_kernels::tile::LayoutTensor;
    /// use tilewright_layout::typed::{KMajor, OperandTile};
    /// type A = OperandTile<KMajor, 16, 128, 64>;
    /// type B = OperandTile<KMajor, 16, 64, 64>;
    /// # record("sample", Arch::Sm90a, block(128), |k| {
    /// # let a = LayoutTensor::new(k.shared_aligned::<bf16>("a", 128 * 64, 1024), A::default());
    /// # let b = LayoutTensor::new(k.shared_aligned::<bf16>("b", 64 * 64, 1024), B::default());
    /// // 128 rows of one warpgroup, whose totals are apart from the sums of a step.
    /// let product = TiledMma::<Wgmma<bf16>, A, B>::new(k);
    /// let totals = product.sums();
    /// totals.clear(k);
    /// let sums = totals.rows_of_atoms(0, 1).like(k);
    /// for row in 0..2 {
    ///     product.issue_row(row, sums, a, b);
    ///     product.wait_group(0);
    ///     totals.rows_of_atoms(row, 1).add(sums);
    /// }
    /// # });
    /// ```
    #[track_caller]
    pub fn issue_row(
        self,
        row: u32,
        sums: AtomSums<'k, Wgmma<F>>,
        a: LayoutTensor<'k, F::Stored, A, Shared>,
        b: LayoutTensor<'k, F::Stored, B, Shared>,
    ) {
        self.k.on_behalf(Location::caller(), || {
            self.k.wgmma_fence();
            let [first, column] = self.corner();
            let a = SharedOperand::new(a).sub_tile_at(first + 64 * row);
            let b = SharedOperand::new(b).sub_tile_at(column);
            sums.wgmma::<F>(a, b, Self::STEPS, false);
            self.k.wgmma_commit();
        });
    }

    /// Waits until at most `groups` of the newest groups are in flight.
    #[track_caller]
    pub fn wait_group(self, groups: u32) {
        self.k.wgmma_wait(groups);
    }
}
