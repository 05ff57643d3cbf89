//! The prologue of a linear product: activations unchanged, or normalised.

use tilewright_codegen::build::Val;

use super::ordered::Ordered;
use super::scaled::{Scaled, Squares};
use crate::norm::rms_factor;
use crate::tile::{Array, Float};
use crate::warps::{ConsumerWarps, sum_of_warps};
use crate::weights::Strip;

/// The prologue of a linear product: the activations that it multiplies, rows of `k` elements, and
/// what is done to them on the way. What a norm's factor leaves to the sums is
/// [`SumScale::Norm`](crate::epilogue::SumScale::Norm).
#[derive(Clone, Copy)]
pub enum Prologue<'k> {
    /// `[rows, k]`.
    Plain(Array<'k>),
    /// The RMS norm of `x`. The product is taken with `x · weight`; its rows are scaled when the
    /// sums are read.
    RmsNorm {
        /// `[rows, k]`.
        x: Array<'k>,
        /// `[k]`.
        weight: Array<'k>,
        /// Added to the mean square.
        eps: f32,
    },
    /// Either of them, multiplied in the order of codes that have one of their own.
    Ordered(Ordered<'k>),
    /// Either of the first two, where the operand's terms are there, of a norm those of
    /// `x · weight`.
    Scaled {
        /// The terms, and the sums of squares of a norm.
        x: Scaled<'k>,
        /// The epsilon of the norm, if there is one.
        eps: Option<f32>,
    },
}

impl<'k> Prologue<'k> {
    /// The type that holds the activations without loss.
    pub fn float(self) -> Float {
        match self {
            Prologue::Plain(x) => x.float(),
            Prologue::Scaled { x, .. } => x.form.exact(),
            Prologue::RmsNorm { .. } => Float::F32,
            Prologue::Ordered(ordered) => ordered.float(),
        }
    }

    /// The input from a column on, a multiple of 32.
    pub fn from(self, column: Val<'k, u32>) -> Prologue<'k> {
        match self {
            Prologue::Plain(x) => Prologue::Plain(x.from(column)),
            Prologue::RmsNorm { x, weight, eps } => {
                Prologue::RmsNorm { x: x.from(column), weight: weight.from(column), eps }
            }
            Prologue::Ordered(ordered) => Prologue::Ordered(ordered.from(column)),
            Prologue::Scaled { x, eps } => Prologue::Scaled { x: x.from(column), eps },
        }
    }

    /// The factor on a row's sums: one over the root of the mean square of a normalised row.
    pub(in crate::gemv) fn scale(
        self,
        consumers: ConsumerWarps<'k>,
        strip: Strip,
        row: Val<'k, u32>,
        squares: Squares<'k>,
    ) -> Option<Val<'k, f32>> {
        let of_row = squares.at(row * consumers.warps);
        match self {
            Prologue::Plain(_) | Prologue::Ordered(Ordered { norm: None, .. }) | Prologue::Scaled { eps: None, .. } => {
                None
            }
            Prologue::RmsNorm { eps, .. } | Prologue::Ordered(Ordered { norm: Some((_, eps)), .. }) => {
                Some(rms_factor(sum_of_warps(of_row, consumers.warps, 1), strip.k(), eps))
            }
            Prologue::Scaled { eps: Some(_), .. } => Some(of_row.load()),
        }
    }
}

impl<'k> Prologue<'k> {
    /// The order that it is brought in, if it is not that of its columns.
    pub(in crate::gemv) fn ordered(self) -> Option<Ordered<'k>> {
        match self {
            Prologue::Ordered(ordered) => Some(ordered),
            Prologue::Plain(_) | Prologue::RmsNorm { .. } | Prologue::Scaled { .. } => None,
        }
    }

    /// The weights of a norm that are multiplied while activations are brought, and what is added
    /// to its mean square.
    pub(in crate::gemv) fn norm(self) -> Option<(Array<'k>, f32)> {
        match self {
            Prologue::RmsNorm { weight, eps, .. } => Some((weight, eps)),
            Prologue::Ordered(ordered) => ordered.norm,
            Prologue::Plain(_) | Prologue::Scaled { .. } => None,
        }
    }
}
