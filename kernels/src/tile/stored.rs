//! Tensors of floating-point numbers whose type of storage is chosen while recording.

use super::side::CopyTo;
use super::{Index, Lanes, LayoutTensor, Modes, TensorLayout};
use half::{bf16, f16};
use tilewright_codegen::build::{Bf16x2, Builder, F16x2, Global, Ptr, SpaceOf, Val, Writable};
use tilewright_layout::view::assert_rank;

/// A floating-point type of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// 32 bits.
    F32,
    /// 16 bits, 10 of mantissa.
    F16,
    /// 16 bits, 7 of mantissa.
    Bf16,
}

impl Float {
    /// Bytes of an element.
    pub fn bytes(self) -> u32 {
        match self {
            Float::F32 => 4,
            Float::F16 | Float::Bf16 => 2,
        }
    }
}

/// Numbers in memory, seen through the layout `L`, whose type of storage is chosen while recording:
/// a [`LayoutTensor`] of `f32`, `f16` or `bf16` in vectors of `N`. Loads give f32, stores round to
/// nearest even; masks are the layout's.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::tile::{Float, Modes, StoredTensor};
/// # record("sample", Arch::Sm80, block(128), |k| {
/// // y = x / 2 in pairs of elements, of any two types.
/// let n = k.param::<u32>("n");
/// let run = || Modes::contiguous_run(n).vectors(2);
/// let x = StoredTensor::new(k.global("x"), Float::Bf16, run()).vectorize::<0, 2>();
/// let y = StoredTensor::new(k.global("y"), Float::F32, run()).vectorize::<0, 2>();
/// let at = [(k.block_id() * 128 + k.tid()).into()];
/// y.store(at, x.load(at).map(|x| x * 0.5));
/// # });
/// ```
pub enum StoredTensor<'k, L, S, const N: usize = 1> {
    /// Of [`Float::F32`].
    F32(LayoutTensor<'k, Lanes<f32, N>, L, S>),
    /// Of [`Float::F16`].
    F16(LayoutTensor<'k, Lanes<f16, N>, L, S>),
    /// Of [`Float::Bf16`].
    Bf16(LayoutTensor<'k, Lanes<bf16, N>, L, S>),
}

/// A contiguous run of numbers in global memory.
pub type StoredRun<'k, const N: usize = 1> = StoredTensor<'k, Modes<'k, 1>, Global, N>;

impl<L: Clone, S, const N: usize> Clone for StoredTensor<'_, L, S, N> {
    fn clone(&self) -> Self {
        match self {
            StoredTensor::F32(tensor) => StoredTensor::F32(tensor.clone()),
            StoredTensor::F16(tensor) => StoredTensor::F16(tensor.clone()),
            StoredTensor::Bf16(tensor) => StoredTensor::Bf16(tensor.clone()),
        }
    }
}

impl<L: Copy, S, const N: usize> Copy for StoredTensor<'_, L, S, N> {}

/// Applies an operation to the tensor, whatever its type.
macro_rules! of {
    ($stored:expr, $tensor:ident => $done:expr) => {
        match $stored {
            StoredTensor::F32($tensor) => $done,
            StoredTensor::F16($tensor) => $done,
            StoredTensor::Bf16($tensor) => $done,
        }
    };
}

/// The tensor that it becomes, of the same type.
macro_rules! becomes {
    ($stored:expr, $tensor:ident => $next:expr) => {
        match $stored {
            StoredTensor::F32($tensor) => StoredTensor::F32($next),
            StoredTensor::F16($tensor) => StoredTensor::F16($next),
            StoredTensor::Bf16($tensor) => StoredTensor::Bf16($next),
        }
    };
}

impl<'k, L: TensorLayout<'k>, S: SpaceOf> StoredTensor<'k, L, S> {
    /// Numbers of a type that begin there; the base is aligned to an element.
    #[track_caller]
    pub fn new(base: Ptr<'k, S, u8>, float: Float, layout: L) -> Self {
        match float {
            Float::F32 => StoredTensor::F32(LayoutTensor::new(base.cast::<f32>(), layout).singles()),
            Float::F16 => StoredTensor::F16(LayoutTensor::new(base.cast::<f16>(), layout).singles()),
            Float::Bf16 => StoredTensor::Bf16(LayoutTensor::new(base.cast::<bf16>(), layout).singles()),
        }
    }
}

impl<'k, L: TensorLayout<'k>, S: SpaceOf, const N: usize> StoredTensor<'k, L, S, N> {
    /// The type of its elements.
    pub fn float(&self) -> Float {
        match self {
            StoredTensor::F32(_) => Float::F32,
            StoredTensor::F16(_) => Float::F16,
            StoredTensor::Bf16(_) => Float::Bf16,
        }
    }

    /// The recorder.
    pub fn builder(&self) -> &'k Builder {
        of!(self, tensor => tensor.builder())
    }

    /// The vector at a coordinate, by one load; zeros where the mask says that there is none.
    #[track_caller]
    pub fn load<const R: usize>(&self, at: [Index<'k>; R]) -> [Val<'k, f32>; N] {
        const { assert_rank(L::RANK, R) };
        match self {
            StoredTensor::F32(tensor) => tensor.load(at),
            StoredTensor::F16(tensor) => tensor.load(at).map(Val::cast),
            StoredTensor::Bf16(tensor) => tensor.load(at).map(Val::cast),
        }
    }

    /// Writes the vector at a coordinate, by one store, where there is one.
    #[track_caller]
    pub fn store<const R: usize>(&self, at: [Index<'k>; R], values: [Val<'k, f32>; N])
    where
        S: Writable,
    {
        const { assert_rank(L::RANK, R) };
        let words = |pack: fn(Val<'k, f32>, Val<'k, f32>) -> Val<'k, u32>| -> Vec<Val<'k, u32>> {
            values.chunks_exact(2).map(|pair| pack(pair[0], pair[1])).collect()
        };
        match self {
            StoredTensor::F32(tensor) => tensor.store(at, values),
            // Two are rounded by one instruction.
            StoredTensor::F16(tensor) if N.is_multiple_of(2) => {
                let words = words(|a, b| a.pair::<F16x2>(b).bits());
                tensor.mask(at).when(|| tensor.write_words(&at, &words));
            }
            StoredTensor::Bf16(tensor) if N.is_multiple_of(2) => {
                let words = words(|a, b| a.pair::<Bf16x2>(b).bits());
                tensor.mask(at).when(|| tensor.write_words(&at, &words));
            }
            StoredTensor::F16(tensor) => tensor.store(at, values.map(Val::cast)),
            StoredTensor::Bf16(tensor) => tensor.store(at, values.map(Val::cast)),
        }
    }
}

impl<'k, S: SpaceOf, const R: usize, const N: usize> StoredTensor<'k, Modes<'k, R>, S, N> {
    /// The extents, as [`LayoutTensor::extents`].
    pub fn extents(&self) -> [Index<'k>; R] {
        of!(self, tensor => tensor.extents())
    }

    /// Marks the tensor as [`LayoutTensor::inside`] does.
    #[must_use]
    pub fn inside(self) -> Self {
        becomes!(self, tensor => tensor.inside())
    }

    /// Slices the tensor as [`LayoutTensor::slice`] does.
    #[track_caller]
    pub fn slice<const Q: usize>(self, at: [Option<Index<'k>>; R]) -> StoredTensor<'k, Modes<'k, Q>, S, N> {
        becomes!(self, tensor => tensor.slice(at))
    }
}

impl<'k, S: SpaceOf, const R: usize> StoredTensor<'k, Modes<'k, R>, S> {
    /// Splits the tensor as [`LayoutTensor::whole_and_rest`] does.
    #[track_caller]
    pub fn whole_and_rest(self, mode: usize, lanes: u32) -> [Self; 2] {
        [0, 1].map(|part| becomes!(self, tensor => tensor.whole_and_rest(mode, lanes)[part]))
    }

    /// Views the tensor as vectors, as [`LayoutTensor::vectorize`] does.
    #[track_caller]
    pub fn vectorize<const ALONG: usize, const N: usize>(self) -> StoredTensor<'k, Modes<'k, R>, S, N> {
        becomes!(self, tensor => tensor.scalars().vectorize::<ALONG, N>())
    }
}
