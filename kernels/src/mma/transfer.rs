//! Fragments between registers and memory of their operand's shape, without an instruction of their
//! own.

use super::MmaError;
use super::fragment::places;
use super::store::fits;
use crate::tile::{Index, LayoutTensor, RegisterTensor};
use tilewright_codegen::build::{Ptr, Scalar, SpaceOf, Writable};
use tilewright_layout::fragment::StaticFragment;
use tilewright_layout::view::OffsetMap;

/// Registers that one instruction moves: where the first is in memory, its number, and how many
/// there are.
struct RegisterRun<'k, T, S> {
    at: Ptr<'k, S, T>,
    first: usize,
    count: usize,
}

/// The registers of `thread` in order, neighbours in a row two by two where memory has them side by
/// side and aligned; none where the memory is refused.
#[track_caller]
fn runs<'k, T: Scalar, L: StaticFragment, E: Scalar, P: OffsetMap, S: SpaceOf>(
    thread: Index<'k>,
    tile: LayoutTensor<'k, E, P, S>,
) -> Option<Vec<RegisterRun<'k, T, S>>> {
    const {
        let word = E::TY.bits() as i64 * L::PACKED;
        assert!(
            word == T::TY.bits() as i64,
            "fragment: the registers do not hold as many elements of the memory's type"
        );
    }
    if !fits(&tile, "the operand", [L::FRAGMENT.rows, L::FRAGMENT.cols].map(|extent| extent as u32)) {
        return None;
    }
    let packed = L::PACKED as u32;
    let origin = tile.origin();
    let side_by_side = tile.layout().vector_along(1, E::TY.bits().into()) as u32;
    let width = side_by_side.min(1 << (origin.bits() | origin.constant()).trailing_zeros().min(8));
    if width < packed {
        tile.builder().refuse(&MmaError::Neighbours { packed, width });
        return None;
    }
    let ([row, column], registers) = places(&L::FRAGMENT, L::PACKED, thread);
    let mut runs = Vec::new();
    let mut first = 0;
    while let Some(&[r, c]) = registers.get(first) {
        let next = registers.get(first + 1) == Some(&[r, c + packed]);
        // The pair begins at an even number of registers, as its column does.
        let count = if next && width >= 2 * packed && c % (2 * packed) == 0 { 2 } else { 1 };
        runs.push(RegisterRun { at: tile.at([row + r, column + c]).cast(), first, count });
        first += count;
    }
    Some(runs)
}

impl<'k, T: Scalar, L: StaticFragment> RegisterTensor<'k, T, L> {
    /// The operand's elements from memory of its shape, (row, column), each where the fragment of
    /// `thread` has it.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use half::bf16;
    /// use tilewright_kernels::tile::{Index, LayoutTensor, RegisterTensor};
    /// use tilewright_layout::fragment::{FragmentA, FragmentC, atoms};
    /// use tilewright_layout::typed::RowMajor;
    /// type Atom = atoms::SM80_16x8x16_F32BF16BF16F32_TN;
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let queries = LayoutTensor::new(k.global::<bf16>("queries"), RowMajor::<16, 16>::default());
    /// let a = RegisterTensor::<u32, FragmentA<Atom>>::load_fragment(Index::lane(k), queries);
    /// let residual = LayoutTensor::new(k.global::<f32>("residual"), RowMajor::<16, 8>::default());
    /// let c = RegisterTensor::<f32, FragmentC<Atom>>::load_fragment(Index::lane(k), residual);
    /// c.map(|x| x * 0.5).store_fragment(Index::lane(k), residual);
    /// # });
    /// ```
    ///
    /// Refused: memory of another shape, [`MmaError::Tile`], and such that the elements of a
    /// register are not side by side in it, [`MmaError::Neighbours`].
    #[track_caller]
    pub fn load_fragment<E: Scalar, P: OffsetMap, S: SpaceOf>(
        thread: Index<'k>,
        tile: LayoutTensor<'k, E, P, S>,
    ) -> Self {
        let Some(runs) = runs::<T, L, E, P, S>(thread, tile) else { return Self::zeros(tile.builder()) };
        let mut registers = Vec::new();
        for RegisterRun { at, count, .. } in runs {
            match count {
                2 => registers.extend(at.load_vec::<2>()),
                _ => registers.push(at.load()),
            }
        }
        Self::from_registers(|register| registers[register])
    }

    /// Writes the fragment of `thread` to memory of the operand's shape, (row, column). It refuses
    /// what [`load_fragment`](RegisterTensor::load_fragment) does.
    #[track_caller]
    pub fn store_fragment<E: Scalar, P: OffsetMap, S: Writable>(
        &self,
        thread: Index<'k>,
        tile: LayoutTensor<'k, E, P, S>,
    ) {
        for RegisterRun { at, first, count } in runs::<T, L, E, P, S>(thread, tile).into_iter().flatten() {
            match self.registers()[first..first + count] {
                [a, b] => at.store_vec([a, b]),
                _ => at.store(self.registers()[first]),
            }
        }
    }
}
