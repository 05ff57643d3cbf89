//! The operands of an epilogue, loaded where a result needs them.

use std::rc::Rc;

use half::{bf16, f16};
use tilewright_codegen::build::{Builder, Global, Ptr, Val};

use crate::epilogue::{
    CustomEpilogue, Epilogue, GateFunction, GateSums, ResultFunction, ResultFunctions, ResultOperands, ResultPlace,
    SumScale,
};
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

/// The operands of an [`Epilogue`] in a kernel.
#[derive(Clone)]
pub struct EpilogueOperands<'k, D> {
    k: &'k Builder,
    scale: Option<OperandScale<'k>>,
    bias: Option<Ptr<'k, Global, D>>,
    residual: Option<LayoutTensor<'k, D, Modes<'k, 2>, Global>>,
    /// Rows and columns of the result.
    extents: [Val<'k, u32>; 2],
    gated: bool,
    functions: ResultFunctions,
    gate: Option<Rc<GateFunction<'k>>>,
    custom: Option<Rc<ResultFunction<'k>>>,
}

/// The scales of A and B.
#[derive(Clone, Copy)]
enum OperandScale<'k> {
    /// The product of both.
    One(Val<'k, f32>),
    /// Where those of rows of A and of B begin.
    Rows([Ptr<'k, Global, f32>; 2]),
}

/// Where a kernel's result may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Inside the matrix.
    Inside,
    /// Inside or past its edges.
    Anywhere,
}

/// A result: where its operands lie.
struct GemmResult<'o, 'k, D> {
    operands: &'o EpilogueOperands<'k, D>,
    row: Val<'k, u32>,
    /// The column of B, of how many.
    column: Val<'k, u32>,
    columns: Val<'k, u32>,
    reach: Reach,
}

impl<'k, D: GemmOutput> EpilogueOperands<'k, D> {
    /// Declares the parameters that the epilogue needs: `a_scale` and `b_scale`, then `bias`, then
    /// `residual` and its `residual_stride`, then those of the custom epilogue.
    #[track_caller]
    pub fn parameters(
        k: &'k Builder,
        epilogue: Epilogue,
        custom: Option<CustomEpilogue<'_>>,
        extents: [Val<'k, u32>; 2],
    ) -> EpilogueOperands<'k, D> {
        let scales = ["a_scale", "b_scale"];
        let scale = match epilogue.scale {
            Some(SumScale::Operands) => {
                let [a, b] = scales.map(|name| k.global::<f32>(name).load());
                Some(OperandScale::One(a * b))
            }
            Some(SumScale::Rows) => Some(OperandScale::Rows(scales.map(|name| k.global::<f32>(name)))),
            Some(SumScale::Norm) | None => None,
        };
        let bias = epilogue.bias.then(|| k.global::<D>("bias"));
        let residual = epilogue.residual.then(|| {
            let base = k.global::<D>("residual");
            LayoutTensor::new(base, Modes::row_major(extents.map(Index::any), k.param::<u32>("residual_stride")))
        });
        let Epilogue { gated, functions, .. } = epilogue;
        let custom = custom.map(|CustomEpilogue(declare)| Rc::new(declare(k, extents)));
        EpilogueOperands { k, scale, bias, residual, extents, gated, functions, gate: None, custom }
    }

    /// The operands with a gate of one's own.
    pub(super) fn gate(self, gate: GateFunction<'k>) -> EpilogueOperands<'k, D> {
        EpilogueOperands { gate: Some(Rc::new(gate)), ..self }
    }

    /// The operands with a last step of one's own.
    pub(super) fn custom(self, custom: ResultFunction<'k>) -> EpilogueOperands<'k, D> {
        EpilogueOperands { custom: Some(Rc::new(custom)), ..self }
    }

    /// The operands for results of group `group` alone, whose rows end at `end`: a bias has a row for
    /// each group.
    #[track_caller]
    pub(super) fn of_group(&self, group: Val<'k, u32>, end: Val<'k, u32>) -> EpilogueOperands<'k, D> {
        let [_, n] = self.extents;
        let bias = self.bias.map(|bias| bias.at(group.mul_wide(if self.gated { n * 2 } else { n })));
        EpilogueOperands { bias, extents: [end, n], ..self.clone() }
    }

    /// Whether B has gates.
    pub fn gated(&self) -> bool {
        self.gated
    }

    /// Whether a result depends on its place.
    pub fn needs_place(&self) -> bool {
        let has_row_scales = matches!(self.scale, Some(OperandScale::Rows(_)));
        self.bias.is_some() || self.residual.is_some() || self.custom.is_some() || has_row_scales
    }

    /// The result at (row, column) `at`, from its sum and, where it is gated, the sum of what the
    /// gate is multiplied with.
    #[track_caller]
    pub fn apply(
        &self,
        at: impl FnOnce() -> [Val<'k, u32>; 2],
        sum: Val<'k, f32>,
        other: Option<Val<'k, f32>>,
        reach: Reach,
    ) -> Val<'k, f32> {
        // Most results need no place.
        let [row, column] = if self.needs_place() { at() } else { [self.k.lit(0u32); 2] };
        let [_, n] = self.extents;
        let result = GemmResult { operands: self, row, column, columns: n, reach };
        let y = result.affine(GateSums::Gate, [sum]);
        let up = other.map(|other| {
            move |_: usize| {
                let up = GemmResult { operands: self, row, column: column + n, columns: n * 2, reach };
                up.affine(GateSums::Up, [other])[0]
            }
        });
        let [value] = match (&self.gate, &up) {
            (Some(gate), Some(up)) => self.functions.apply([gate(y[0], up(0))], None, &result),
            _ => self.functions.apply(y, up.as_ref().map(|up| up as _), &result),
        };
        let Some(custom) = &self.custom else { return value };
        if reach == Reach::Inside {
            return custom(ResultPlace { row, column }, value);
        }
        let stored = self.k.var(value);
        let inside = row.lt(self.extents[0]) & column.lt(n);
        self.k.when(inside, || stored.set(custom(ResultPlace { row, column }, value)));
        stored.get()
    }
}

impl<'k, D: GemmOutput> GemmResult<'_, 'k, D> {
    /// A number from memory where the place is inside, and 0 elsewhere.
    #[track_caller]
    fn loaded(&self, inside: impl FnOnce() -> Val<'k, bool>, load: impl FnOnce() -> Val<'k, f32>) -> Val<'k, f32> {
        if self.reach == Reach::Inside {
            return load();
        }
        let k = self.operands.k;
        let value = k.var(0.0f32);
        k.moving().when(inside(), || value.set(load()));
        value.get()
    }
}

impl<'k, D: GemmOutput> ResultOperands<'k, 1> for GemmResult<'_, 'k, D> {
    #[track_caller]
    fn scale(&self) -> Option<Val<'k, f32>> {
        self.operands.scale.map(|scale| match scale {
            OperandScale::One(scale) => scale,
            OperandScale::Rows([a, b]) => {
                let inside = || self.row.lt(self.operands.extents[0]) & self.column.lt(self.columns);
                self.loaded(inside, || a.at(self.row).load() * b.at(self.column).load())
            }
        })
    }

    #[track_caller]
    fn bias(&self, _: GateSums) -> Option<[Val<'k, f32>; 1]> {
        let load = |bias: Ptr<'k, Global, D>| {
            self.loaded(|| self.column.lt(self.columns), || bias.at(self.column).load().cast())
        };
        self.operands.bias.map(|bias| [load(bias)])
    }

    #[track_caller]
    fn residual(&self) -> Option<[Val<'k, f32>; 1]> {
        let at = [self.row, self.column].map(Index::any);
        let load = |residual: LayoutTensor<'k, D, Modes<'k, 2>, Global>| {
            self.loaded(|| residual.mask(at).get(), || residual.at(at).load().cast())
        };
        self.operands.residual.map(|residual| [load(residual)])
    }
}
