//! Scores that are products: sums along a head of terms that are a weight of the row times a number
//! of the block.
//!
//! `Σ_d w·x` is one. So is Quest's bound: `max(w·x, w·y) = w⁺·max(x, y) + w⁻·min(x, y)` for any `x`
//! and `y`, where `w⁺` is the positive part of `w` and `w⁻` the negative one. A tensor core
//! computes them for many blocks together.

use tilewright_graph::Graph;
use tilewright_graph::graph::ValueId;
use tilewright_graph::op::Op;
use tilewright_graph::rows::{Binary, Elementwise, InnerAxis, ProductOp, Reduce, Reduction, Source, Unary};
use tilewright_layout::tensor::Format;

/// The factor of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Factor {
    /// The field.
    Plain,
    /// The larger of both fields; weights are positive parts.
    Larger,
    /// The smaller of both fields; weights are negative parts.
    Smaller,
}

/// The part of a weight that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignPart {
    /// All of it.
    Whole,
    /// `max(w, 0)`.
    Positive,
    /// `min(w, 0)`.
    Negative,
}

/// A value of a block whose elements are sums of products.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LinearValue {
    /// The value: `[N, 1]`, or `[1, N]` if it is a product.
    pub id: ValueId,
    /// The fields, `[1, D]`: one, or the two of a bound.
    pub fields: Vec<ValueId>,
    /// The weights, `[N, D]` or `[1, D]`, the same for all blocks of a row.
    pub weights: ValueId,
    /// Constants along the head that the weights are multiplied with.
    pub masks: Vec<ValueId>,
    /// The terms of the sums.
    pub terms: Vec<(Factor, SignPart)>,
    /// The number of sums: `N`.
    pub count: u32,
    /// Whether the sums are elements of one row, not rows.
    pub is_row: bool,
    /// Whether they are divided by `D`.
    pub is_mean: bool,
}

/// The terms of a sum along a head, before the sum.
struct Terms {
    fields: Vec<ValueId>,
    weights: ValueId,
    masks: Vec<ValueId>,
    terms: Vec<(Factor, SignPart)>,
}

/// Whether values of a format are the same for all blocks of a row.
pub(super) const fn is_of_row(format: Format) -> bool {
    matches!(format, Format::Batched | Format::Parameter)
}

/// A graph with the extents of its values.
pub(super) struct Finder<'a> {
    pub graph: &'a Graph,
    pub extents: &'a [[usize; 2]],
    pub dim: usize,
    /// Whether a field's elements can be operands as they lie in memory.
    pub is_operand: &'a dyn Fn(Source) -> bool,
}

impl Finder<'_> {
    /// The value as sums of products, if it is.
    pub fn find(&self, id: ValueId) -> Option<LinearValue> {
        let op = self.graph.op(id);
        let operands = self.graph.operands(id);
        let of = |Terms { fields, weights, masks, terms }: Terms, count: usize, is_row, is_mean| {
            let count = count as u32;
            Some(LinearValue { id, fields, weights, masks, terms, count, is_row, is_mean })
        };
        if let Op::Reduce { reduction: Reduction { reduce, axis: InnerAxis::D1, every: None }, .. } = *op {
            let x = operands[0];
            let is_mean = reduce == Reduce::Mean;
            if !is_mean && reduce != Reduce::Sum {
                return None;
            }
            return of(self.terms(x)?, self.extents(x)[0], false, is_mean);
        }
        if let Op::Product { product: ProductOp::Gemm | ProductOp::Gemv, .. } = *op {
            let weights = self.weights(operands[0])?;
            let field = self.field(operands[1])?;
            let terms =
                Terms { fields: vec![field], weights, masks: vec![], terms: vec![(Factor::Plain, SignPart::Whole)] };
            return of(terms, self.extents(weights)[0], true, false);
        }
        None
    }

    fn extents(&self, id: ValueId) -> [usize; 2] {
        self.extents[id.index()]
    }

    /// A field `[1, D]`, after copies.
    fn field(&self, id: ValueId) -> Option<ValueId> {
        let op = self.graph.op(id);
        let operands = self.graph.operands(id);
        if let Op::Elementwise { function: Elementwise::Unary(Unary::Copy), .. } = *op {
            return self.field(operands[0]);
        }
        let Op::Load { from: source } = *op else { return None };
        (self.extents(id) == [1, self.dim] && (self.is_operand)(source)).then_some(id)
    }

    /// A value `[_, D]` that is the same for all blocks.
    fn weights(&self, id: ValueId) -> Option<ValueId> {
        let is_of_row = is_of_row(self.graph.row(id).format);
        (is_of_row && self.extents(id)[1] == self.dim).then_some(id)
    }

    /// A constant `[_, D]`.
    fn mask(&self, id: ValueId) -> Option<ValueId> {
        let is_mask = matches!(
            *self.graph.op(id),
            Op::Elementwise { function: Elementwise::MaskSlice { axis: InnerAxis::D1, .. }, .. }
        );
        (is_mask && self.extents(id)[1] == self.dim).then_some(id)
    }

    /// A weight and a field that are multiplied, in any order.
    fn product(&self, id: ValueId) -> Option<(ValueId, ValueId)> {
        let op = self.graph.op(id);
        let operands = self.graph.operands(id);
        if !matches!(
            op,
            Op::Elementwise { function: Elementwise::Binary(Binary::Multiply), .. }
                | Op::Product { product: ProductOp::Kron([_, false]), .. }
        ) {
            return None;
        }
        let either = |x: ValueId, y: ValueId| Some((self.weights(x)?, self.field(y)?));
        either(operands[0], operands[1]).or_else(|| either(operands[1], operands[0]))
    }

    fn terms(&self, id: ValueId) -> Option<Terms> {
        if let Some((weights, field)) = self.product(id) {
            let terms = vec![(Factor::Plain, SignPart::Whole)];
            return Some(Terms { fields: vec![field], weights, masks: vec![], terms });
        }
        let op = self.graph.op(id);
        let operands = self.graph.operands(id);
        let Op::Elementwise { function: Elementwise::Binary(binary), .. } = op else { return None };
        let [x, y] = [operands[0], operands[1]];
        let (larger, smaller) = match binary {
            Binary::Maximum => (SignPart::Positive, SignPart::Negative),
            Binary::Minimum => (SignPart::Negative, SignPart::Positive),
            Binary::Multiply => {
                let either = |x: ValueId, y: ValueId| Some((self.terms(x)?, self.mask(y)?));
                let (mut terms, mask) = either(x, y).or_else(|| either(y, x))?;
                terms.masks.push(mask);
                return Some(terms);
            }
            Binary::Add(..) | Binary::Where(_) => return None,
        };
        let (weights, first) = self.product(x)?;
        let (same, second) = self.product(y)?;
        let terms = vec![(Factor::Larger, larger), (Factor::Smaller, smaller)];
        (weights == same).then(|| Terms { fields: vec![first, second], weights, masks: vec![], terms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use crate::{ModelShape, Traced, algorithms, trace};

    /// The linear values found in an indexer, for groups of six heads of 32 dimensions.
    fn found(traced: &Traced) -> Vec<String> {
        let model = ModelShape { kv_heads: 2, group: 6, head_dim: 32, block_tokens: 16 };
        let extents = traced.extents(&model).expect("a model that fits");
        let is_operand = |source| matches!(source, Source::Field(_));
        let finder = Finder { graph: &traced.indexer, extents: &extents.indexer, dim: 32, is_operand: &is_operand };
        let view = |linear: LinearValue| {
            let terms: Vec<String> = linear.terms.iter().map(|(of, part)| format!("{part:?} {of:?}")).collect();
            let masked = if linear.masks.is_empty() { "" } else { ", masked" };
            let way = if linear.is_row { "a row" } else { "rows" };
            format!("{} as {way}: {}{masked}", linear.count, terms.join(" + "))
        };
        traced.indexer.ids().filter_map(|id| finder.find(id)).map(view).collect()
    }

    #[test]
    fn scores_that_are_products_are_found_in_the_algorithms() {
        let of = |name: &str| found(&algorithms::named(name).expect("a flow").trace().expect("a flow without errors"));
        for name in ["quest", "lserve"] {
            assert_eq!(of(name), ["6 as rows: Positive Larger + Negative Smaller"], "{name}");
        }
        assert_eq!(of("masked-quest"), ["6 as rows: Positive Larger + Negative Smaller, masked"]);
        assert_eq!(of("block-sparse"), ["1 as a row: Whole Plain"]);
        assert_eq!(of("gqa-block-sparse"), ["6 as a row: Whole Plain"]);
        // Channels in place of a head's dimensions; no queries.
        for name in ["double-sparsity", "knorm", "streaming-llm"] {
            assert_eq!(of(name), [""; 0], "{name}");
        }
    }

    /// An indexer over two fields of a head's dimensions.
    struct Scored(for<'t> fn(&Step<'t>, [Value<'t, Paged>; 2]) -> Value<'t, Ragged>);

    impl Flow for Scored {
        type Fields = [Field; 2];
        type State = ();

        fn name(&self) -> &str {
            "scored"
        }
        fn fields(&self, declare: &mut Declare) -> [Field; 2] {
            ["a", "b"].map(|name| declare.field(name, [Dim::ONE, Dim::HEAD_DIM]))
        }
        fn state(&self, _: &mut DeclareState) {}

        fn forward_cache(&self, block: &Block<'_>, [a, b]: &[Field; 2]) {
            block.store(*a, block.keys().max(D0));
            block.store(*b, block.keys().min(D0));
        }
        fn forward_indexer<'t>(&self, step: Step<'t>, fields: &[Field; 2], (): ()) -> Done<'t> {
            let score = (self.0)(&step, fields.map(|field| step.field(field)));
            step.select(score)
        }
    }

    #[test]
    fn what_is_nearly_a_sum_of_products_is_not_taken_for_one() {
        let of = |scored: Scored| found(&trace(&scored).expect("a flow without errors"));
        let lesser = Scored(|step, [a, b]| (a * step.query()).minimum(step.query() * b).sum(D1).max(D0));
        assert_eq!(of(lesser), ["6 as rows: Negative Larger + Positive Smaller"]);
        let mean = Scored(|step, [a, _]| (step.query() * a).mean(D1).max(D0));
        assert_eq!(of(mean), ["6 as rows: Whole Plain"]);
        let others = [
            // Other weights in each product; no product; fields alone.
            Scored(|step, [a, b]| (step.query() * a).maximum(step.query().abs() * b).sum(D1).max(D0)),
            Scored(|step, [a, b]| (step.query() * a).maximum(b.load()).sum(D1).max(D0)),
            Scored(|_, [a, b]| (a * b).sum(D1)),
            // Not a sum, not along a head, not of larger and smaller ones.
            Scored(|step, [a, _]| (step.query() * a).max(D1).max(D0)),
            Scored(|step, [a, _]| (step.query() * a).sum(D0).sum(D1)),
            Scored(|step, [a, b]| (step.query() * a).mix(1.0, step.query() * b, 1.0).sum(D1).max(D0)),
        ];
        for (at, scored) in others.into_iter().enumerate() {
            assert_eq!(of(scored), [""; 0], "{at}");
        }
    }
}
