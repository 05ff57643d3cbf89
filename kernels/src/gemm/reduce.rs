//! Adds up the shares of a split contraction, and finishes the sums.

use super::finish::{EpilogueOperands, GemmOutput, Reach};
use super::store::SUMS;
use crate::epilogue::{CustomEpilogue, Epilogue};
use crate::tile::{Index, LayoutTensor, Modes};
use tilewright_codegen::build::{Builder, Number, Numeric, block};
use tilewright_codegen::ir::LaunchBounds;

/// Threads of the kernel; each makes elements of the result, a grid's stride apart.
pub fn launch() -> LaunchBounds {
    block(256)
}

/// Parameters: partial sums \[splits, m, n\] (2n where gated), c, `c_stride`, m, n, splits; then
/// those of the epilogue. The shares are added in their order, so that the result does not depend
/// on timing.
pub fn reduce<S: Number + Numeric, D: GemmOutput>(k: &Builder, epilogue: Epilogue, custom: Option<CustomEpilogue<'_>>) {
    let partials = k.global_of("partials", &SUMS).cast::<S>();
    let c = k.global::<D>("c");
    let [stride, m, n, splits] = ["c_stride", "m", "n", "splits"].map(|name| k.param::<u32>(name));
    let finish = EpilogueOperands::<D>::parameters(k, epilogue, custom, [m, n]);
    let width = if epilogue.gated { n * 2 } else { n };
    let result = LayoutTensor::new(c, Modes::row_major([m.into(), n.into()], stride));
    let next = k.var(k.block_id() * k.threads() + k.tid());
    k.while_(
        || next.get().lt(m * n),
        || {
            let at = [next.get() / n, next.get() % n];
            let first = partials.at(at[0].mul_wide(width)).at(at[1]);
            let sum = |skip| {
                let sum = k.var(k.lit(0u32).bits::<S>());
                k.for_(0, splits, |split| {
                    let share = first.at((split * m).mul_wide(width)).at(skip);
                    sum.set(sum.get() + share.load());
                });
                sum.get().cast::<f32>()
            };
            let value = finish.apply(|| at, sum(k.lit(0)), epilogue.gated.then(|| sum(n)), Reach::Inside);
            result.at(at.map(Index::any)).store(value.cast::<D>());
            next.set(next.get() + k.blocks() * k.threads());
        },
    );
}
