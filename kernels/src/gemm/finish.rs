//! What is done to the sums before they are stored: bias, gate, residual.

use half::{bf16, f16};
use tilewright_codegen::build::{Builder, Global, Ptr, Val};

use crate::activation::{Activation, SoftCap};
use crate::mma::OutputType;
use crate::tile::{Index, LayoutTensor, Modes};

/// A type of results.
pub trait GemmOutput: OutputType {
    /// Its name.
    const NAME: &'static str;
}

macro_rules! outputs {
    ($($D:ty: $name:literal;)+) => { $(
        impl GemmOutput for $D {
            const NAME: &'static str = $name;
        }
    )+ };
}

outputs! {
    bf16: "bf16";
    f16: "f16";
    f32: "f32";
}

/// The epilogue of a product: `x = s·(A·B) + bias`, then `activation(x₀)·x₁` where it is
/// gated, then a soft cap, then `+ residual`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// The sums are multiplied by the product of two numbers in device memory, A's scale and B's:
    /// what operands of 8 bits were divided by.
    pub scaled: bool,
    /// A number per column is added to the sums.
    pub bias: bool,
    /// B has twice the columns: gates, which go through this function, then what they are
    /// multiplied with.
    pub gated: Option<Activation>,
    /// A soft cap of what is there so far: of logits.
    pub soft_cap: Option<SoftCap>,
    /// A matrix of the result's extents is added last.
    pub residual: bool,
}

/// The operands of an [`Epilogue`] in a kernel.
#[derive(Clone, Copy)]
pub struct EpilogueOperands<'k, D> {
    k: &'k Builder,
    scale: Option<Val<'k, f32>>,
    bias: Option<Ptr<'k, Global, D>>,
    residual: Option<LayoutTensor<'k, D, Modes<'k, 2>, Global>>,
    /// Rows and columns of the result.
    extents: [Val<'k, u32>; 2],
    gated: Option<Activation>,
    soft_cap: Option<SoftCap>,
}

impl<'k, D: GemmOutput> EpilogueOperands<'k, D> {
    /// Declares the parameters that the epilogue needs: `a_scale` and `b_scale`, then `bias`, then
    /// `residual` and its `residual_stride`.
    #[track_caller]
    pub fn parameters(k: &'k Builder, epilogue: Epilogue, extents: [Val<'k, u32>; 2]) -> EpilogueOperands<'k, D> {
        let scale = epilogue.scaled.then(|| {
            let [a, b] = ["a_scale", "b_scale"].map(|name| k.global::<f32>(name).load());
            a * b
        });
        let bias = epilogue.bias.then(|| k.global::<D>("bias"));
        let residual = epilogue.residual.then(|| {
            let base = k.global::<D>("residual");
            LayoutTensor::new(base, Modes::row_major(extents.map(Index::any), k.param::<u32>("residual_stride")))
        });
        let Epilogue { gated, soft_cap, .. } = epilogue;
        EpilogueOperands { k, scale, bias, residual, extents, gated, soft_cap }
    }

    /// Whether B has gates.
    pub fn gated(&self) -> bool {
        self.gated.is_some()
    }

    /// The result at (row, column) `at`, from its sum and, where it is gated, the sum of what the
    /// gate is multiplied with.
    #[track_caller]
    pub fn apply(
        &self,
        at: impl FnOnce() -> [Val<'k, u32>; 2],
        sum: Val<'k, f32>,
        other: Option<Val<'k, f32>>,
    ) -> Val<'k, f32> {
        // Most results need no place.
        let needed = self.bias.is_some() || self.residual.is_some();
        let [row, column] = if needed { at() } else { [self.k.lit(0u32); 2] };
        let mut x = self.biased(column, self.extents[1], sum);
        if let (Some(activation), Some(other)) = (self.gated, other) {
            x = activation.apply(x) * self.biased(column + self.extents[1], self.extents[1] * 2, other);
        }
        if let Some(cap) = self.soft_cap {
            x = cap.apply(x);
        }
        match self.residual {
            None => x,
            Some(residual) => {
                let at = [row, column].map(Index::any);
                x + self.if_inside(residual.mask(at).get(), || residual.at(at).load())
            }
        }
    }

    #[track_caller]
    fn biased(&self, column: Val<'k, u32>, columns: Val<'k, u32>, sum: Val<'k, f32>) -> Val<'k, f32> {
        let sum = self.scale.map_or(sum, |scale| sum * scale);
        match self.bias {
            None => sum,
            Some(bias) => sum + self.if_inside(column.lt(columns), || bias.at(column).load()),
        }
    }

    /// A number from memory where the place is inside, and 0 elsewhere.
    #[track_caller]
    fn if_inside(&self, inside: Val<'k, bool>, load: impl FnOnce() -> Val<'k, D>) -> Val<'k, f32> {
        let value = self.k.var(0.0f32);
        self.k.moving().when(inside, || value.set(load().cast::<f32>()));
        value.get()
    }
}
