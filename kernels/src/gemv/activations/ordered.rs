//! Activations in the order in which codes lie, where that is not the order of the columns: weights
//! with an act-order, and weights whose groups are halves of a step
//! ([`codes`](crate::weights::Codes)).
//!
//! A permutation changes no sum as long as both operands share it. Codes lie as their checkpoint
//! has them, so activations are brought in the same order, by a table of indexes of k:
//!
//! | who brings them | index i of the table | how |
//! |---|---|---|
//! | copies to shared memory ([`Reordering::Scattered`]) | the place of column i | runs of columns are loaded as ever, packets too; each element is stored at its place |
//! | registers ([`Reordering::Gathered`]) | the column of place i | each element is loaded by itself |
//!
//! The weights of a norm follow the table as f32, in the order of its entries.

use tilewright_codegen::build::{Global, Load, Ptr, Val};
use tilewright_codegen::ir::attr::{LdOrder, Scope};

use super::a_operand::AOperand;
use crate::tile::{AccessMode, Array, Float};
use crate::weights::{DEPTH, Strip};

/// The column of every place of a strip's rows, where codes have this act-order; `None`: places are
/// columns.
///
/// ```
/// use tilewright_kernels::weights::{Codes, Strip};
/// use tilewright_kernels::gemv::activations::columns;
/// use tilewright_kernels::{quant::Code, tile::Float};
/// let codes = |group| Codes::new(Code::E2m1, Some(group), false, Float::F32).expect("a form");
/// let strip = |group| Strip::of_codes(32, 1, 512, codes(group));
/// assert_eq!(columns(strip(32)?, None), None);
/// // A lane's first four are of the first group, its other four of the second.
/// let halves = columns(strip(16)?, None).expect("an order");
/// assert_eq!(halves[..12], [0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7]);
/// # Ok::<(), tilewright_kernels::weights::StripError>(())
/// ```
pub fn columns(strip: Strip, order: Option<&[u32]>) -> Option<Vec<u32>> {
    if !strip.is_halved() {
        return order.map(<[u32]>::to_vec);
    }
    let half = DEPTH / 2;
    let place = |at: u32| at / DEPTH * DEPTH + at % 8 / 4 * half + at % DEPTH / 8 * 4 + at % 4;
    let column = |at: u32| order.map_or(at, |order| order[at as usize]);
    Some((0..strip.k()).map(|at| column(place(at))).collect())
}

/// The contents of an act-order table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reordering {
    /// Of every column its place.
    Scattered,
    /// Of every place its column.
    Gathered,
}

impl Reordering {
    /// The reordering of activations for an operand.
    ///
    /// ```
    /// use tilewright_kernels::gemv::activations::{AOperand, Reordering};
    /// assert_eq!(Reordering::of(AOperand::Shared), Reordering::Scattered);
    /// assert_eq!(Reordering::of(AOperand::Registers), Reordering::Gathered);
    /// ```
    pub fn of(a_operand: AOperand) -> Reordering {
        match a_operand {
            AOperand::Shared => Reordering::Scattered,
            AOperand::Registers | AOperand::Phases { .. } | AOperand::Reloaded { .. } => Reordering::Gathered,
        }
    }

    /// The table of an order, the column of every place.
    ///
    /// ```
    /// use tilewright_kernels::gemv::activations::Reordering;
    /// assert_eq!(Reordering::Gathered.indexes(&[2, 0, 1]), [2, 0, 1]);
    /// assert_eq!(Reordering::Scattered.indexes(&[2, 0, 1]), [1, 2, 0]);
    /// ```
    ///
    /// # Panics
    /// If the order is not a permutation.
    pub fn indexes(self, order: &[u32]) -> Vec<u32> {
        match self {
            Reordering::Gathered => order.to_vec(),
            Reordering::Scattered => {
                let mut places = vec![0; order.len()];
                (0..).zip(order).for_each(|(place, &column)| places[column as usize] = place);
                places
            }
        }
    }

    /// The column whose norm's weight lies at entry `at` of the table.
    pub fn column(self, order: &[u32], at: usize) -> usize {
        match self {
            Reordering::Scattered => at,
            Reordering::Gathered => order[at] as usize,
        }
    }
}

/// Activations of a linear layer whose codes have an order of their own.
#[derive(Clone, Copy)]
pub struct Ordered<'k> {
    /// `[rows, k]`, by columns.
    pub x: Array<'k>,
    /// The table, `[k]`, aligned to 16 bytes: as [`Reordering::of`] the operand wants it.
    pub indexes: Ptr<'k, Global, u32>,
    /// The weights of the norm, f32 `[k]`, in the order of the table, and its epsilon.
    pub norm: Option<(Array<'k>, f32)>,
}

impl<'k> Ordered<'k> {
    /// The type that holds what is multiplied without loss.
    pub(in crate::gemv) fn float(self) -> Float {
        if self.norm.is_some() { Float::F32 } else { self.x.float() }
    }

    /// The gather from a place on, a multiple of 32, for a table of columns.
    pub(in crate::gemv) fn from(self, place: Val<'k, u32>) -> Ordered<'k> {
        let norm = self.norm.map(|(weight, eps)| (weight.from(place), eps));
        Ordered { indexes: self.indexes.at(place), norm, ..self }
    }

    /// `N` consecutive indexes, 2 or 4, from each of some entries, multiples of `N`.
    #[track_caller]
    pub(in crate::gemv) fn runs<const N: usize>(self, entries: &[Val<'k, u32>]) -> Vec<[Val<'k, u32>; N]> {
        entries.iter().map(|&entry| self.indexes.at(entry).load_vec()).collect()
    }

    /// The weights of the norm where elements are gathered, loaded as their columns are.
    pub(in crate::gemv) fn weight(self) -> Option<Array<'k>> {
        self.norm.map(|(weight, _)| weight.accessed(AccessMode::Relaxed))
    }

    /// The elements of a row, which begins at `start`, at four consecutive places from each of some
    /// on, multiples of four.
    #[track_caller]
    pub(in crate::gemv) fn gather(self, start: Val<'k, u32>, places: &[Val<'k, u32>]) -> Vec<[Val<'k, f32>; 4]> {
        // Relaxed, so that the assembler does not keep what eight rows have loaded for the next
        // eight: registers have no room for an order.
        let once = Load::WEAK.order(LdOrder::Relaxed(Scope::Cta));
        let columns: Vec<[Val<u32>; 4]> =
            places.iter().map(|&place| self.indexes.at(place).load_as::<4>(once)).collect();
        let loaded = self.x.each(&columns.as_flattened().iter().map(|&column| start + column).collect::<Vec<_>>());
        loaded.chunks_exact(4).map(|four| std::array::from_fn(|i| four[i])).collect()
    }
}
