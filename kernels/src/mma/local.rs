//! From the accumulator of one product to the A operand of the next, without leaving registers.

use super::{Accumulator, OutputType};
use crate::tile::RegisterTensor;
use thiserror::Error;
use tilewright_codegen::build::Val;
use tilewright_layout::LayoutError;
use tilewright_layout::fragment::{FragmentLayout, StaticFragment};

/// Why sums do not become an operand in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LocalCopyError {
    /// An element that another thread holds.
    #[error(
        "element ({row}, {column}) of the A operand is wanted by thread {to}, and thread {from} holds it; go through shared \
         memory (store_d, then load_a), or multiply 16-bit elements"
    )]
    Threads {
        /// Row of the element.
        row: i64,
        /// Its column, of the accumulator.
        column: i64,
        /// The thread that holds it.
        from: i64,
        /// The thread that wants it.
        to: i64,
    },
    /// Fragments of different heights.
    #[error("the A operand has {to} rows, the accumulator's fragment {from}; take atoms of the same M")]
    Rows {
        /// Rows of the source.
        from: i64,
        /// Rows of the destination.
        to: i64,
    },
    /// Columns beyond the last.
    #[error(
        "columns up to {wanted} of the accumulators: they have {found}; take columns below that, or give more of them"
    )]
    Columns {
        /// Behind the last column that the operand needs.
        wanted: i64,
        /// Columns that there are.
        found: i64,
    },
    /// An accumulator without an inverse.
    #[error("the accumulator's fragment has no inverse")]
    Layout(#[from] LayoutError),
}

/// For each value of fragment `to`, whose columns begin at `column` of a row of fragments `from`:
/// which of those fragments holds the element, and as which value. Every thread finds what it needs
/// with itself.
///
/// The place of an element in `from` is read off the left inverse of its layout.
///
/// ```
/// use tilewright_kernels::mma::local_sources;
/// use tilewright_layout::fragment::{FragmentA, FragmentC, StaticFragment, atoms};
/// type Atom = atoms::SM80_16x8x16_F32BF16BF16F32_TN;
/// let c = FragmentC::<Atom>::FRAGMENT;
/// let a = FragmentA::<Atom>::FRAGMENT;
/// // Columns 16 to 31 of the accumulators: those of the third and the fourth.
/// let sources = local_sources(&c, &a, 16).unwrap();
/// assert_eq!(sources, [(2, 0), (2, 1), (2, 2), (2, 3), (3, 0), (3, 1), (3, 2), (3, 3)]);
/// // The threads of m16n8k8 tf32 hold other columns of A than of C.
/// type Tf32 = atoms::SM80_16x8x8_F32TF32TF32F32_TN;
/// let error = local_sources(&FragmentC::<Tf32>::FRAGMENT, &FragmentA::<Tf32>::FRAGMENT, 0).unwrap_err();
/// assert_eq!(error.to_string(), "element (0, 1) of the A operand is wanted by thread 1, and thread 0 holds it; go through shared memory (store_d, then load_a), or multiply 16-bit elements");
/// ```
///
/// # Errors
/// [`LocalCopyError`] where a value would cross threads, or the fragments differ in height.
pub fn local_sources(
    from: &FragmentLayout,
    to: &FragmentLayout,
    column: i64,
) -> Result<Vec<(usize, usize)>, LocalCopyError> {
    if from.rows != to.rows || from.threads() != to.threads() {
        return Err(LocalCopyError::Rows { from: from.rows, to: to.rows });
    }
    let holder = from.layout.left_inverse()?;
    let mut sources = Vec::new();
    for value in 0..to.values() {
        let mut source = None;
        for thread in 0..to.threads() {
            let (row, col) = to.element(thread, value);
            let at = holder.at(row + from.rows * ((column + col) % from.cols));
            let owner = at % from.threads();
            let found = at / from.threads();
            let here = ((column + col) / from.cols, found);
            if owner != thread || source.is_some_and(|source| source != here) {
                return Err(LocalCopyError::Threads { row, column: column + col, from: owner, to: thread });
            }
            source = Some(here);
        }
        sources.extend(source.map(|(fragment, value)| (fragment as usize, value as usize)));
    }
    Ok(sources)
}

/// Sums that lie side by side in a row, rounded to `T` and packed as the A operand whose first
/// column of K is `column` of theirs: `from[j]` is the fragment of columns `j·N` on.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use half::bf16;
/// use tilewright_kernels::{mma::copy_local_to_local, tile::RegisterTensor};
/// use tilewright_layout::fragment::{FragmentA, FragmentC, atoms};
/// type Atom = atoms::SM80_16x8x16_F32BF16BF16F32_TN;
/// # record("sample", Arch::Sm80, block(32), |k| {
/// // The scores of 16 queries and 32 keys; weights of the second 16 keys as the A operand of P·V.
/// let scores = [0.0, 1.0, 2.0, 3.0].map(|score| RegisterTensor::<f32, FragmentC<Atom>>::fill(k, score));
/// let weights: RegisterTensor<u32, FragmentA<Atom>> = copy_local_to_local::<bf16, _, _>(&scores, 16).unwrap();
/// # });
/// ```
///
/// # Errors
/// [`LocalCopyError`] where the fragment layouts do not allow it, or `from` ends before the
/// operand's last column.
#[track_caller]
pub fn copy_local_to_local<'k, T: OutputType, C: StaticFragment, A: StaticFragment>(
    from: &[RegisterTensor<'k, f32, C>],
    column: u32,
) -> Result<RegisterTensor<'k, u32, A>, LocalCopyError> {
    const { assert!(C::PACKED == 1, "local copy: the accumulator's registers hold several elements") };
    enough::<A>(column, from.len() as i64 * C::FRAGMENT.cols)?;
    packed::<T, A>(&C::FRAGMENT, column, |fragment, value| from[fragment].registers()[value])
}

/// Refuses an operand that reaches beyond the accumulators' columns.
fn enough<A: StaticFragment>(column: u32, found: i64) -> Result<(), LocalCopyError> {
    let wanted = i64::from(column) + A::FRAGMENT.cols;
    if wanted <= found { Ok(()) } else { Err(LocalCopyError::Columns { wanted, found }) }
}

/// The operand from sums that `sum(fragment, value)` gives.
#[track_caller]
fn packed<'k, T: OutputType, A: StaticFragment>(
    from: &FragmentLayout,
    column: u32,
    sum: impl Fn(usize, usize) -> Val<'k, f32>,
) -> Result<RegisterTensor<'k, u32, A>, LocalCopyError> {
    let sources = local_sources(from, &A::FRAGMENT, column.into())?;
    const {
        assert!(
            A::PACKED == 2 && T::TY.bits() == 16,
            "local copy: sums are packed in pairs; take an atom of 16-bit elements"
        )
    };
    let pack = T::pack().unwrap_or_else(|| unreachable!("types of 16 bits come in pairs"));
    let of = |(fragment, value): (usize, usize)| sum(fragment, value);
    Ok(RegisterTensor::from_registers(|register| pack(of(sources[2 * register]), of(sources[2 * register + 1]))))
}

impl<'k> Accumulator<'k, f32> {
    /// The sums of row `down` of atoms, rounded to `T`, as the A operand whose first column of K is
    /// `column` of theirs. `A` is the operand's fragment, such as an
    /// [`InputType::WarpA`](super::InputType::WarpA).
    ///
    /// # Errors
    /// [`LocalCopyError`] where the fragment layouts do not allow it, or the operand's last column
    /// is beyond the accumulator's.
    #[track_caller]
    pub fn copy_local_to_local<T: OutputType, A: StaticFragment>(
        self,
        down: u32,
        column: u32,
    ) -> Result<RegisterTensor<'k, u32, A>, LocalCopyError> {
        enough::<A>(column, self.extents()[1].into())?;
        let sum = |fragment: usize, value: usize| self.atom(down, fragment as u32).get(value as u32);
        packed::<T, A>(&self.fragment(), column, sum)
    }
}
