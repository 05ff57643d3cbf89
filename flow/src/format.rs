//! The formats that an op takes, as traits: an op on other formats does not compile, and the
//! message explains why.
//!
//! | format | one row for each | where it comes from |
//! |---|---|---|
//! | `Batched` | request and key head | the query, reductions over blocks, ops of `Batched` alone |
//! | `Ragged` | candidate block of a request and key head | every other op |
//! | `Paged` | block of the pool | keys, values, fields |
//! | `Parameter` | – | constants of the model |

use tilewright_layout::tensor::{AnyFormat, Batched, Paged, Parameter, Ragged};

mod sealed {
    pub trait Sealed {}
    impl Sealed for tilewright_layout::tensor::Batched {}
    impl Sealed for tilewright_layout::tensor::Ragged {}
    impl Sealed for tilewright_layout::tensor::Paged {}
    impl Sealed for tilewright_layout::tensor::Parameter {}
    impl Sealed for super::Indexer {}
    impl Sealed for super::Cache {}
}

/// The pass of every decode step, which scores blocks.
#[derive(Clone, Copy, Debug)]
pub struct Indexer;

/// The pass of a block that has just become complete, which summarises it.
#[derive(Clone, Copy, Debug)]
pub struct Cache;

/// A pass of a flow.
pub trait PassKind: sealed::Sealed + Copy + 'static {}
impl PassKind for Indexer {}
impl PassKind for Cache {}

/// The pass that sees many blocks.
#[diagnostic::on_unimplemented(
    message = "the cache pass sees one block and cannot do this",
    label = "an op over the blocks of a row, in the cache pass",
    note = "softmax, normalisation, convolution and reductions over blocks belong in `forward_indexer`"
)]
pub trait ManyBlocks: PassKind {}
impl ManyBlocks for Indexer {}

/// A format that ops compute with.
#[diagnostic::on_unimplemented(
    message = "an op does not compute with a value of format `{Self}`",
    label = "`{Self}` is not an operand of this op",
    note = "a parameter is the second operand of `gemm`, or the weights of `learned_query`, and nothing else"
)]
pub trait ComputeFormat: KnownFormat {}
impl ComputeFormat for Batched {}
impl ComputeFormat for Ragged {}
impl ComputeFormat for Paged {}

/// A format, and the format of what an op of it alone gives. All formats have one, so that only
/// what forbids an op speaks.
pub trait KnownFormat: AnyFormat + sealed::Sealed {
    /// `Batched` stays; what has a row for each block is `Ragged` from then on.
    type Out: KnownFormat;
}
impl KnownFormat for Batched {
    type Out = Batched;
}
impl KnownFormat for Ragged {
    type Out = Ragged;
}
impl KnownFormat for Paged {
    type Out = Ragged;
}
impl KnownFormat for Parameter {
    type Out = Parameter;
}

/// The result format of an op on two formats. All pairs have one; [`Join`] and [`GemmBy`] define
/// which ops accept them.
pub trait FormatPair<R>: KnownFormat {
    /// `Batched` where nothing has a row for each block, else `Ragged`.
    type Out: KnownFormat;
}

/// Two formats that an op of two operands takes together.
#[diagnostic::on_unimplemented(
    message = "an op does not compute with `{Self}` and `{R}` together",
    label = "no op of two operands takes `{Self}` and `{R}`",
    note = "`Batched`, `Ragged` and `Paged` go together; a parameter is the second operand of `gemm` alone"
)]
pub trait Join<R>: ComputeFormat + FormatPair<R> {}

/// Two formats that `gemm` multiplies in a pass.
#[diagnostic::on_unimplemented(
    message = "`gemm` does not multiply `{Self}` by `{R}` in the pass `{P}`",
    label = "`gemm` of `{Self}` by `{R}`",
    note = "in `forward_indexer` a parameter multiplies `Batched` values; what multiplies blocks by a parameter is the same at \
            every step and belongs in `forward_cache`",
    note = "a parameter is the second operand of `gemm`, never the first"
)]
pub trait GemmBy<R, P>: FormatPair<R> {}

macro_rules! pairs {
    ($($l:ident $r:ident -> $out:ident;)*) => {$(
        impl FormatPair<$r> for $l {
            type Out = $out;
        }
    )*};
}

macro_rules! join {
    ($($l:ident $r:ident -> $out:ident;)*) => {
        pairs! { $($l $r -> $out;)* }
        $(
            impl Join<$r> for $l {}
            impl<P: PassKind> GemmBy<$r, P> for $l {}
        )*
    };
}

join! {
    Batched Batched -> Batched;
    Batched Ragged -> Ragged;
    Batched Paged -> Ragged;
    Ragged Batched -> Ragged;
    Ragged Ragged -> Ragged;
    Ragged Paged -> Ragged;
    Paged Batched -> Ragged;
    Paged Ragged -> Ragged;
    Paged Paged -> Ragged;
}

pairs! {
    Batched Parameter -> Batched;
    Ragged Parameter -> Ragged;
    Paged Parameter -> Ragged;
    Parameter Batched -> Batched;
    Parameter Ragged -> Ragged;
    Parameter Paged -> Ragged;
    Parameter Parameter -> Batched;
}

impl GemmBy<Parameter, Indexer> for Batched {}
impl GemmBy<Parameter, Cache> for Paged {}
impl GemmBy<Parameter, Cache> for Ragged {}

/// A value with a row for each candidate block, in order.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a row for each candidate block: this takes `Ragged`",
    label = "expected a `Ragged` value, found `{Self}`",
    note = "a field becomes `Ragged` by `.load()` or by any op; a `Batched` value has one row for all blocks"
)]
pub trait PerBlock: ComputeFormat {}
impl PerBlock for Ragged {}

/// A value that lies in the pool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not lie in the pool: `load` takes `Paged`",
    label = "nothing to load",
    note = "keys, values and fields are `Paged`; a state is loaded by `step.load(state)`"
)]
pub trait InPool: ComputeFormat {}
impl InPool for Paged {}

/// A value with one row for a request and key head.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has rows for blocks: this takes `Batched`",
    label = "expected a `Batched` value, found `{Self}`",
    note = "a learned query is made from the query, once for a row"
)]
pub trait PerRow: ComputeFormat {}
impl PerRow for Batched {}
