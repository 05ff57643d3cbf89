//! The source of activations: unchanged, or normalised.

use tilewright_codegen::build::Val;

use super::ordered::Ordered;
use super::scaled::{Scaled, Squares};
use crate::norm::rms_factor;
use crate::tile::{Array, Float};
use crate::warps::{ConsumerWarps, sum_of_warps};
use crate::weights::Strip;

/// The activations of a linear layer, rows of `k` elements.
#[derive(Clone, Copy)]
pub enum Input<'k> {
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

impl<'k> Input<'k> {
    /// The type that holds the activations without loss.
    pub fn float(self) -> Float {
        match self {
            Input::Plain(x) => x.float(),
            Input::Scaled { x, .. } => x.form.exact(),
            Input::RmsNorm { .. } => Float::F32,
            Input::Ordered(ordered) => ordered.float(),
        }
    }

    /// The input from a column on, a multiple of 32.
    pub fn from(self, column: Val<'k, u32>) -> Input<'k> {
        match self {
            Input::Plain(x) => Input::Plain(x.from(column)),
            Input::RmsNorm { x, weight, eps } => Input::RmsNorm { x: x.from(column), weight: weight.from(column), eps },
            Input::Ordered(ordered) => Input::Ordered(ordered.from(column)),
            Input::Scaled { x, eps } => Input::Scaled { x: x.from(column), eps },
        }
    }

    /// The factor on a row's sums: one over the root of the mean square of a normalised row.
    pub(in crate::gemv) fn scale(
        self,
        team: ConsumerWarps<'k>,
        strip: Strip,
        row: Val<'k, u32>,
        squares: Squares<'k>,
    ) -> Option<Val<'k, f32>> {
        let of_row = squares.at(row * team.warps);
        match self {
            Input::Plain(_) | Input::Ordered(Ordered { norm: None, .. }) | Input::Scaled { eps: None, .. } => None,
            Input::RmsNorm { eps, .. } | Input::Ordered(Ordered { norm: Some((_, eps)), .. }) => {
                Some(rms_factor(sum_of_warps(of_row, team.warps, 1), strip.k(), eps))
            }
            Input::Scaled { eps: Some(_), .. } => Some(of_row.load()),
        }
    }
}

impl<'k> Input<'k> {
    /// The order that it is brought in, if it is not that of its columns.
    pub(in crate::gemv) fn ordered(self) -> Option<Ordered<'k>> {
        match self {
            Input::Ordered(ordered) => Some(ordered),
            Input::Plain(_) | Input::RmsNorm { .. } | Input::Scaled { .. } => None,
        }
    }

    /// The weights of a norm that are multiplied while activations are brought, and what is added
    /// to its mean square.
    pub(in crate::gemv) fn norm(self) -> Option<(Array<'k>, f32)> {
        match self {
            Input::RmsNorm { weight, eps, .. } => Some((weight, eps)),
            Input::Ordered(ordered) => ordered.norm,
            Input::Plain(_) | Input::Scaled { .. } => None,
        }
    }
}
