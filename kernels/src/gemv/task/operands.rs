//! Operands of an epilogue besides the sums.

use tilewright_codegen::build::{Val, Var};

use crate::epilogue::{GateSums, ResultOperands};

/// Operands of an output that were loaded before the products.
pub(super) struct VarOperands<'k> {
    /// The factor of its sums.
    pub scale: Option<Val<'k, f32>>,
    /// The biases of its sums.
    pub bias: [Option<Var<'k, f32>>; 2],
    /// The residual, added to the result.
    pub residual: Option<Var<'k, f32>>,
}

impl<'k> ResultOperands<'k, 1> for VarOperands<'k> {
    fn scale(&self) -> Option<Val<'k, f32>> {
        self.scale
    }

    #[track_caller]
    fn bias(&self, of: GateSums) -> Option<[Val<'k, f32>; 1]> {
        self.bias[of as usize].map(|bias| [bias.get()])
    }

    #[track_caller]
    fn residual(&self) -> Option<[Val<'k, f32>; 1]> {
        self.residual.map(|residual| [residual.get()])
    }
}
