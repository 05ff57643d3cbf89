//! Tensors in registers: values with a layout, as many as their type says.

use super::copy::TileCopyPlan;
use super::element::{most_lanes, zero};
use super::{CopyFrom, CopyTo, Index, LayoutTensor, Mask, TensorLayout, TileError};
use core::array;
use core::marker::PhantomData;
use core::panic::Location;
use generic_array::GenericArray;
use generic_array::sequence::GenericSequence;
use generic_array::typenum::Unsigned;
use tilewright_codegen::build::{Builder, IntoVal, Numeric, RegArray, Scalar, SpaceOf, Val, Writable};
use tilewright_layout::fragment::Registers;
use tilewright_layout::typed::{Contiguous, Lowered, MatrixLayout, RowMajor, StaticLayout, Storage, Within};
use tilewright_layout::view::assert_rank;

/// Values of one thread, seen through the layout `L`: what a [`LayoutTensor`] is to memory.
///
/// It is a value, as [`Val`] is: an operation gives another tensor, and costs what it does to the
/// elements. A view of one (a tile, a row) costs nothing. Registers that a loop changes are a
/// [`RegisterVar`]. The number of registers is part of the type: two tensors of different layouts
/// are not added by mistake.
///
/// `L` sends a coordinate to the register, where the layout [owns its elements](Storage); or it is
/// the fragment of a matrix instruction, and then `T` is what a register holds (`u32` for packed
/// operands).
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::tile::{LayoutTensor, RegisterTensor};
/// use tilewright_layout::typed::{ColMajor, RowMajor};
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let memory = LayoutTensor::new(k.shared::<f32>("tile", 32), RowMajor::<4, 8>::default());
/// let tile = RegisterTensor::<f32, ColMajor<4, 8>>::load_from(memory);
/// let scaled = tile.map(|x| x * 0.5).zip_map(&tile, |half, whole| half + whole);
/// let sums = scaled.reduce_rows(|a, b| a + b);
/// assert_eq!((scaled.registers().len(), sums.registers().len()), (32, 4));
/// scaled.tile::<2, 4>([1, 1]).store_to(memory.tile::<2, 4>([1.into(), 1.into()]));
/// # });
/// ```
///
/// Layouts that do not fit do not compile:
/// ```compile_fail
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// # use tilewright_kernels::tile::RegisterTensor;
/// # use tilewright_layout::typed::{ColMajor, RowMajor};
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let a = RegisterTensor::<f32, RowMajor<4, 8>>::fill(k, 0.0);
/// let b = RegisterTensor::<f32, ColMajor<4, 8>>::fill(k, 0.0);
/// a.zip_map(&b, |a, b| a + b);
/// # });
/// ```
pub struct RegisterTensor<'k, T, L: Registers> {
    registers: GenericArray<Val<'k, T>, L::Count>,
    layout: PhantomData<fn() -> L>,
}

/// Reads the vector of a plan at some coordinates of a tensor.
type ReadVector<'r, 'k, T, P, S> =
    &'r dyn Fn(&TileCopyPlan, &LayoutTensor<'k, T, P, S>, &[Index<'k>]) -> Vec<Val<'k, T>>;

impl<T, L: Registers> Clone for RegisterTensor<'_, T, L> {
    fn clone(&self) -> Self {
        RegisterTensor { registers: self.registers.clone(), layout: PhantomData }
    }
}

/// The values in the order of the registers. Another number of them does not compile.
impl<'k, T: Scalar, L: Registers, const N: usize> From<[Val<'k, T>; N]> for RegisterTensor<'k, T, L> {
    fn from(registers: [Val<'k, T>; N]) -> Self {
        const { assert!(N == <L::Count as Unsigned>::USIZE, "register tensor: the layout has another number of registers") };
        Self::from_registers(|register| registers[register])
    }
}

impl<'k, T: Scalar, L: Registers> RegisterTensor<'k, T, L> {
    /// A tensor whose register `r` is `register(r)`.
    pub fn from_registers(register: impl FnMut(usize) -> Val<'k, T>) -> Self {
        RegisterTensor { registers: GenericArray::generate(register), layout: PhantomData }
    }

    /// A tensor whose elements all have one value.
    #[track_caller]
    pub fn fill(k: &'k Builder, value: impl IntoVal<'k, T>) -> Self {
        let value = value.val(k);
        Self::from_registers(|_| value)
    }

    /// Zeros: of any type, all bits zero.
    #[track_caller]
    pub fn zeros(k: &'k Builder) -> Self {
        Self::fill(k, zero::<T>(k))
    }

    /// The values in the order of the registers.
    pub fn registers(&self) -> &[Val<'k, T>] {
        &self.registers
    }

    /// A value of each value.
    #[track_caller]
    pub fn map<U: Scalar>(&self, mut f: impl FnMut(Val<'k, T>) -> Val<'k, U>) -> RegisterTensor<'k, U, L> {
        RegisterTensor::from_registers(|register| f(self.registers[register]))
    }

    /// A value of each two at the same place.
    #[track_caller]
    pub fn zip_map<U: Scalar, V: Scalar>(
        &self,
        other: &RegisterTensor<'k, U, L>,
        mut f: impl FnMut(Val<'k, T>, Val<'k, U>) -> Val<'k, V>,
    ) -> RegisterTensor<'k, V, L> {
        RegisterTensor::from_registers(|register| f(self.registers[register], other.registers[register]))
    }

    /// The numbers in another type, as [`Val::cast`] converts.
    #[track_caller]
    pub fn cast<U: Numeric>(&self) -> RegisterTensor<'k, U, L>
    where
        T: Numeric,
    {
        self.map(Val::cast)
    }

    /// All of this thread's values combined, in the order of the registers. A layout that has none
    /// does not compile.
    #[track_caller]
    pub fn reduce(&self, mut f: impl FnMut(Val<'k, T>, Val<'k, T>) -> Val<'k, T>) -> Val<'k, T> {
        const { assert!(<L::Count as Unsigned>::USIZE > 0, "register tensor: the layout has no registers to combine") };
        self.registers[1..].iter().fold(self.registers[0], |all, &value| f(all, value))
    }
}

impl<'k, T: Scalar, L: Storage> RegisterTensor<'k, T, L> {
    /// Proof that there is a register for every coordinate, and none for nothing.
    const COMPACT: () = {
        let size = Lowered::<L>::SIZE;
        let reach = Lowered::<L>::REACH;
        assert!(
            size == reach && size == <L::Len as Unsigned>::USIZE,
            "register tensor: the layout leaves registers out; take a compact one"
        );
    };

    /// A tensor whose element at a coordinate is `element` of it, one integer per mode. Another
    /// rank does not compile.
    pub fn from_fn<const R: usize>(mut element: impl FnMut([usize; R]) -> Val<'k, T>) -> Self {
        const { Self::COMPACT };
        const { assert_rank(Some(Lowered::<L>::RANK), R) };
        let mut at_register = vec![[0; R]; Lowered::<L>::SIZE];
        for index in 0..Lowered::<L>::SIZE {
            let coordinate = coordinate_of::<L, R>(index);
            at_register[Lowered::<L>::at(coordinate)] = coordinate;
        }
        Self::from_registers(|register| element(at_register[register]))
    }

    /// The element at a coordinate, one integer per mode. Another rank does not compile; one beyond
    /// an extent is refused, [`TileError::Beyond`].
    #[track_caller]
    pub fn get<const R: usize>(&self, coordinate: [usize; R]) -> Val<'k, T> {
        const { Self::COMPACT };
        const { assert_rank(Some(Lowered::<L>::RANK), R) };
        self.registers[Lowered::<L>::at(self.below(coordinate, &Lowered::<L>::EXTENTS))]
    }

    /// A coordinate below some extents; the first coordinate if the given one is not, which is
    /// refused.
    #[track_caller]
    fn below<const R: usize>(&self, coordinate: [usize; R], extents: &[usize]) -> [usize; R] {
        for (mode, (&index, &extent)) in coordinate.iter().zip(extents).enumerate() {
            if index >= extent {
                let index = index as u32;
                let extent = extent as u32;
                self.recorder().refuse(&TileError::Beyond { mode, index, extent });
                return [0; R];
            }
        }
        coordinate
    }

    /// Loads the elements of memory at the same coordinates, by loads as wide as the memory's
    /// layout allows; zeros where a mask says that there are none, of which no maximum or minimum
    /// is taken. Memory of another shape is refused, [`TileError::Extents`].
    #[track_caller]
    pub fn load_from<P: TensorLayout<'k>, S: SpaceOf>(memory: LayoutTensor<'k, T, P, S>) -> Self {
        Self::load_by(memory, &|plan, memory, at| plan.read(memory, at))
    }

    /// Loads the elements of memory as [`load_from`](Self::load_from) does, and `fill` where a mask
    /// has none.
    #[track_caller]
    pub fn load_or<P: TensorLayout<'k>, S: SpaceOf>(
        memory: LayoutTensor<'k, T, P, S>,
        fill: impl IntoVal<'k, T>,
    ) -> Self {
        let fill = fill.val(memory.builder());
        Self::load_by(memory, &|plan, memory, at| plan.read_or(memory, at, fill))
    }

    #[track_caller]
    fn load_by<P: TensorLayout<'k>, S: SpaceOf>(
        memory: LayoutTensor<'k, T, P, S>,
        read: ReadVector<'_, 'k, T, P, S>,
    ) -> Self {
        const { Self::COMPACT };
        let Some(plan) = TileCopyPlan::of(&memory, [memory.shape(), shape_of::<L>()]) else {
            return Self::zeros(memory.builder());
        };
        memory.builder().on_behalf(Location::caller(), || {
            let mut values = vec![None; Lowered::<L>::SIZE];
            for number in 0..plan.vectors() {
                let at = plan.at(number.into());
                for (register, lane) in
                    registers_of::<L>(&at, plan.along, plan.width).into_iter().zip(read(&plan, &memory, &at))
                {
                    values[register] = Some(lane);
                }
            }
            Self::from_registers(|register| {
                values[register].unwrap_or_else(|| unreachable!("a layout reaches every register"))
            })
        })
    }

    /// Writes the elements to memory at the same coordinates, by stores as wide as the memory's
    /// layout allows; nothing where a mask says that there is no element. Memory of another shape
    /// is refused, [`TileError::Extents`].
    #[track_caller]
    pub fn store_to<P: TensorLayout<'k>, S: Writable>(&self, memory: LayoutTensor<'k, T, P, S>) {
        const { Self::COMPACT };
        let Some(plan) = TileCopyPlan::of(&memory, [shape_of::<L>(), memory.shape()]) else { return };
        memory.builder().on_behalf(Location::caller(), || {
            for number in 0..plan.vectors() {
                let at = plan.at(number.into());
                memory.mask_at(&at).when(|| memory.write(&at, plan.along, &self.read(&at, plan.along, plan.width)));
            }
        });
    }
}

impl<'k, T: Scalar, L: Storage> RegisterTensor<'k, T, L> {
    /// Tile (`row`, `column`) of `P`×`Q`. Extents that are not a whole number of tiles do not
    /// compile; a tile number out of range is refused, [`TileError::Beyond`].
    #[track_caller]
    pub fn tile<const P: usize, const Q: usize>(&self, tile: [usize; 2]) -> RegisterTensor<'k, T, RowMajor<P, Q>>
    where
        RowMajor<P, Q>: Storage,
    {
        const { assert!(Within::<L, P, Q>::LAYOUT.size() == (P * Q) as i64) };
        let [rows, columns, ..] = Lowered::<L>::EXTENTS;
        let [row, column] = self.below(tile, &[rows / P, columns / Q]);
        RegisterTensor::from_fn(|[i, j]| self.get([P * row + i, Q * column + j]))
    }

    /// Row `row` of the matrix; a number that no row has is refused, [`TileError::Beyond`].
    #[track_caller]
    pub fn row<const M: usize, const N: usize>(&self, row: usize) -> RegisterTensor<'k, T, Contiguous<N>>
    where
        L: MatrixLayout<M, N>,
        Contiguous<N>: Storage,
    {
        let [row, _] = self.below([row, 0], &[M, N]);
        RegisterTensor::from_fn(|[column]| self.get([row, column]))
    }

    /// Column `column` of the matrix; a number that no column has is refused,
    /// [`TileError::Beyond`].
    #[track_caller]
    pub fn column<const M: usize, const N: usize>(&self, column: usize) -> RegisterTensor<'k, T, Contiguous<M>>
    where
        L: MatrixLayout<M, N>,
        Contiguous<M>: Storage,
    {
        let [_, column] = self.below([0, column], &[M, N]);
        RegisterTensor::from_fn(|[row]| self.get([row, column]))
    }

    /// The elements of each row combined, from the first column to the last.
    #[track_caller]
    pub fn reduce_rows<const M: usize, const N: usize>(
        &self,
        mut f: impl FnMut(Val<'k, T>, Val<'k, T>) -> Val<'k, T>,
    ) -> RegisterTensor<'k, T, Contiguous<M>>
    where
        L: MatrixLayout<M, N>,
        Contiguous<M>: Storage,
    {
        RegisterTensor::from_fn(|[row]| (1..N).fold(self.get([row, 0]), |all, column| f(all, self.get([row, column]))))
    }
}

/// The coordinate of a flat index, the first mode fastest.
fn coordinate_of<L: StaticLayout, const R: usize>(index: usize) -> [usize; R] {
    let mut rest = index;
    array::from_fn(|mode| {
        let extent = Lowered::<L>::EXTENTS[mode];
        let at = if mode + 1 == R { rest } else { rest % extent };
        rest /= extent;
        at
    })
}

/// The extents of a layout, as a side of a copy has them.
fn shape_of<L: StaticLayout>() -> Vec<Option<u32>> {
    Lowered::<L>::EXTENTS[..Lowered::<L>::RANK].iter().map(|&extent| Some(extent as u32)).collect()
}

/// The registers of neighbours along a mode, from a coordinate on that is known while recording;
/// another is refused.
#[track_caller]
fn registers_of<L: StaticLayout>(at: &[Index<'_>], along: usize, count: u32) -> Vec<usize> {
    let extents = &Lowered::<L>::EXTENTS[..Lowered::<L>::RANK];
    let steps: Vec<usize> = (0..at.len()).map(|mode| extents[..mode].iter().product()).collect();
    if let Some(value) = at.iter().find_map(|index| index.value()) {
        value.builder().refuse(&TileError::NoAddress);
        return vec![0; count as usize];
    }
    let first: usize = at.iter().zip(&steps).map(|(index, step)| index.constant() as usize * step).sum();
    let step = steps.get(along).copied().unwrap_or(1);
    (0..count as usize).map(|i| Lowered::<L>::swizzle(Lowered::<L>::flat(first + i * step))).collect()
}

/// Implements copies from registers: the recorder, and the value of a register by its number.
macro_rules! copies_from {
    ($Registers:ident, $recorder:expr, $register:expr) => {
        impl<'k, T: Scalar, L: Storage> CopyFrom<'k> for $Registers<'k, T, L> {
            type Scalar = T;
            const LANES: u32 = 1;

            fn recorder(&self) -> &'k Builder {
                $recorder(self)
            }

            fn shape(&self) -> Vec<Option<u32>> {
                shape_of::<L>()
            }

            fn widest(&self, _: usize) -> u32 {
                most_lanes(T::TY.bits())
            }

            fn contiguous(&self) -> Option<usize> {
                None
            }

            fn mask_at(&self, _: &[Index<'k>]) -> Mask<'k> {
                Mask::always(self.recorder())
            }

            #[track_caller]
            fn read(&self, at: &[Index<'k>], along: usize, count: u32) -> Vec<Val<'k, T>> {
                registers_of::<L>(at, along, count).into_iter().map(|register| $register(self, register)).collect()
            }
        }
    };
}

copies_from!(RegisterTensor, |from: &Self| from.registers[0].builder(), |from: &Self, register| from.registers
    [register]);
copies_from!(RegisterVar, |from: &Self| from.k, |from: &Self, register| from.array.get(register as u32));

impl<'k, T: Scalar, L: Storage> CopyTo<'k> for RegisterVar<'k, T, L> {
    #[track_caller]
    fn write(&self, at: &[Index<'k>], along: usize, lanes: &[Val<'k, T>]) {
        for (register, &lane) in registers_of::<L>(at, along, lanes.len() as u32).into_iter().zip(lanes) {
            self.array.set(register as u32, lane);
        }
    }
}

/// Registers that hold a [`RegisterTensor`] and may change: what
/// [`Var`](tilewright_codegen::build::Var) is to a value.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::tile::{RegisterTensor, RegisterVar};
/// use tilewright_layout::typed::Contiguous;
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let sums = RegisterVar::new(k, &RegisterTensor::<f32, Contiguous<4>>::fill(k, 0.0));
/// k.for_(0, 10, |_| sums.set(&sums.get().map(|sum| sum + 1.0)));
/// # });
/// ```
pub struct RegisterVar<'k, T, L> {
    k: &'k Builder,
    array: RegArray<'k, T>,
    layout: PhantomData<fn() -> L>,
}

impl<T, L> Clone for RegisterVar<'_, T, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, L> Copy for RegisterVar<'_, T, L> {}

impl<'k, T: Scalar, L: Registers> RegisterVar<'k, T, L> {
    /// Registers that must be written before they are read.
    pub fn unset(k: &'k Builder) -> Self {
        let count = <L::Count as Unsigned>::U32;
        RegisterVar { k, array: k.regs_unset(count), layout: PhantomData }
    }

    /// Registers that start with these values.
    #[track_caller]
    pub fn new(k: &'k Builder, start: &RegisterTensor<'k, T, L>) -> Self {
        let var = Self::unset(k);
        var.set(start);
        var
    }

    /// The values now.
    #[track_caller]
    pub fn get(self) -> RegisterTensor<'k, T, L> {
        RegisterTensor::from_registers(|register| self.array.get(register as u32))
    }

    /// Sets the registers to other values.
    #[track_caller]
    pub fn set(self, values: &RegisterTensor<'k, T, L>) {
        for (register, &value) in (0..).zip(values.registers()) {
            self.array.set(register, value);
        }
    }

    /// The registers themselves, in order.
    pub fn registers(self) -> RegArray<'k, T> {
        self.array
    }
}
