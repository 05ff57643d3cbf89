//! Fragments of matrix instructions as register tensors: where their values stand, and what their
//! rows amount to.

use super::MmaError;
use crate::tile::{Index, RegisterTensor, place};
use tilewright_codegen::build::{Lane, Scalar, Val};
use tilewright_layout::Layout;
use tilewright_layout::fragment::{Axes, FragmentLayout, StaticFragment};

/// (row, column) of the first element of each register: the part of `thread`, and what the
/// registers add to it.
#[track_caller]
pub(super) fn places<'k>(fragment: &FragmentLayout, packed: i64, thread: Index<'k>) -> ([Index<'k>; 2], Vec<[u32; 2]>) {
    let Axes { row, col } = fragment.axes();
    let modes = [row, col].map(|axis| [0, 1].map(|mode| Layout::constant(axis.mode(mode))));
    let of_thread = modes.map(|[threads, _]| place(&threads, thread));
    let of_register =
        (0..fragment.values() / packed).map(|register| modes.map(|[_, values]| values.at(register * packed) as u32));
    (of_thread, of_register.collect())
}

/// The column of each register of a thread, in the order of the registers.
#[track_caller]
pub(super) fn columns<'k>(fragment: &FragmentLayout, thread: Index<'k>) -> Vec<Index<'k>> {
    let [threads, values] = [0, 1].map(|mode| Layout::constant(fragment.axes().col.mode(mode)));
    let of_thread = place(&threads, thread);
    (0..fragment.values()).map(|value| of_thread + values.at(value) as u32).collect()
}

/// The values of each row that a thread holds, the rows from the top.
pub(super) fn rows(fragment: &FragmentLayout) -> Vec<Vec<u32>> {
    let row_of = Layout::constant(fragment.axes().row.mode(1));
    let mut rows: Vec<(i64, Vec<u32>)> = Vec::new();
    for value in 0..fragment.values() {
        let row = row_of.at(value);
        match rows.iter_mut().find(|(other, _)| *other == row) {
            Some((_, values)) => values.push(value as u32),
            None => rows.push((row, vec![value as u32])),
        }
    }
    rows.sort_by_key(|(row, _)| *row);
    rows.into_iter().map(|(_, values)| values).collect()
}

/// A value combined with those of the other lanes that hold a part of its row, which all have the
/// result: they differ in the bits of their number that do not move the row of the fragment.
#[track_caller]
pub fn across_lanes<'k, T: Lane>(
    fragment: &FragmentLayout,
    value: Val<'k, T>,
    f: impl Fn(Val<'k, T>, Val<'k, T>) -> Val<'k, T>,
) -> Val<'k, T> {
    let threads = Layout::constant(fragment.axes().row.mode(0));
    let mut all = value;
    let mut step = 1;
    for (&extent, &stride) in threads.extents().iter().zip(threads.strides()) {
        let mut bit = step;
        while stride == 0 && bit < step * extent {
            all = f(all, all.shfl_bfly(bit as u32));
            bit *= 2;
        }
        step *= extent;
    }
    all
}

impl<'k, T: Scalar, L: StaticFragment> RegisterTensor<'k, T, L> {
    /// (row, column) of the operand where the first element of each register of `thread` stands, in
    /// the order of the registers. The thread counts within the warp, or within the warpgroup.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::tile::{Index, RegisterTensor};
    /// use tilewright_layout::fragment::{FragmentC, atoms};
    /// type C = FragmentC<atoms::SM80_16x8x16_F32BF16BF16F32_TN>;
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let places = RegisterTensor::<f32, C>::places(Index::lane(k));
    /// assert_eq!(places.iter().map(|[row, column]| (row.constant(), column.constant())).collect::<Vec<_>>(), [(0, 0), (0, 1), (8, 0), (8, 1)]);
    /// # });
    /// ```
    #[track_caller]
    pub fn places(thread: Index<'k>) -> Vec<[Index<'k>; 2]> {
        let ([row, column], registers) = places(&L::FRAGMENT, L::PACKED, thread);
        registers.into_iter().map(|[r, c]| [row + r, column + c]).collect()
    }

    /// Reduces each of the fragment's rows that this thread holds a part of: this thread's columns
    /// first, then those of the lanes that hold the rest. All of these lanes have the result. Rows
    /// are in order from the top.
    ///
    /// Registers that hold several elements do not compile: [`unpack`](Val::split) them first.
    #[track_caller]
    pub fn reduce_across(&self, f: impl Fn(Val<'k, T>, Val<'k, T>) -> Val<'k, T>) -> Vec<Val<'k, T>>
    where
        T: Lane,
    {
        const { assert!(L::PACKED == 1, "reduction of a fragment's rows: a register holds several elements") };
        let mine = |values: Vec<u32>| values.into_iter().map(|value| self.registers()[value as usize]).reduce(&f);
        rows(&L::FRAGMENT).into_iter().filter_map(mine).map(|row| across_lanes(&L::FRAGMENT, row, &f)).collect()
    }

    /// A value of each value and of what stands for its row: of
    /// [`reduce_across`](RegisterTensor::reduce_across). More or fewer values than this thread
    /// holds rows are refused, [`MmaError::Rows`].
    #[track_caller]
    pub fn zip_rows<U: Scalar, V: Scalar>(
        &self,
        of_row: &[Val<'k, U>],
        mut f: impl FnMut(Val<'k, T>, Val<'k, U>) -> Val<'k, V>,
    ) -> RegisterTensor<'k, V, L> {
        const { assert!(L::PACKED == 1, "rows of a fragment: a register holds several elements") };
        let rows = rows(&L::FRAGMENT);
        let held = rows.len();
        let given = of_row.len();
        if held != given {
            let k = self.registers()[0].builder();
            k.refuse(&MmaError::Rows { given, held });
            return RegisterTensor::zeros(k);
        }
        let row_of = |register: usize| rows.iter().position(|row| row.contains(&(register as u32))).unwrap_or(0);
        RegisterTensor::from_registers(|register| f(self.registers()[register], of_row[row_of(register)]))
    }
}
