//! The ops of a graph with their attributes.
//!
//! An op's fields that are values are its operands, fields that are weights name what the graph
//! declares. The two lists below, of operands and of weights, are what every rewrite and printer
//! reads.

use serde::{Deserialize, Serialize};

use crate::axis::{Axis, Dim};
use crate::ids::{CacheId, RopeId, ValueId, WeightId};
use crate::rows::{Elementwise, FieldId, Num, ProductOp, Rearrange, Reduction, RowOp, Source};

/// An op of a graph.
///
/// ```
/// use tilewright_graph::graph::ValueId;
/// use tilewright_graph::op::Op;
/// let op = Op::Scale { x: ValueId(3), by: 2.0 };
/// assert_eq!(op.name(), "scale");
/// assert_eq!(op.operands(), [("x", ValueId(3))]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// An input that each step gives to the graph.
    Input {
        /// The input.
        input: InputKind,
    },
    /// Rows of a table, times a factor: `[rows]` to `[rows, hidden]`.
    Embed {
        /// Token ids.
        ids: ValueId,
        /// `[vocab, hidden]`.
        table: WeightId,
        /// The factor.
        scale: f32,
    },
    /// Normalisation over trailing axes.
    Norm {
        /// The operand.
        x: ValueId,
        /// A factor for each element of the normalised axes.
        weight: Option<WeightId>,
        /// A summand for each element of the normalised axes.
        bias: Option<WeightId>,
        /// The statistic.
        kind: NormKind,
        /// Added to the mean square or the variance.
        eps: f32,
        /// The normalised axes: the last ones of `x`, in order.
        over: Vec<Axis>,
    },
    /// Product with a weight `[out, in]`: contracts every axis of `x` other than `rows` and
    /// `chosen`.
    Linear {
        /// The activations.
        x: ValueId,
        /// `[product of out, product of the contracted axes]`.
        weight: WeightId,
        /// `[product of out]`.
        bias: Option<WeightId>,
        /// The axes that replace the contracted ones.
        out: Vec<Dim>,
    },
    /// Product of each head with rows of its own of a weight: `[rows, heads, n]` to `[rows, heads, m]`.
    HeadLinear {
        /// The activations.
        x: ValueId,
        /// `[heads * each, columns]`.
        weight: WeightId,
        /// Rows of a head.
        each: u64,
        /// The first of them that is multiplied.
        start: u64,
        /// How many are.
        size: u64,
        /// Whether the sum runs over the rows, so that a result has as many elements as there are
        /// columns; else it runs over the columns.
        transposed: bool,
    },
    /// Rotary position embedding of the last axis.
    Rope {
        /// Queries or keys.
        x: ValueId,
        /// The position of each row.
        at: ValueId,
        /// Frequencies; the first `2 * frequencies` dimensions rotate.
        table: RopeId,
        /// The pairs of dimensions.
        pairs: RopePairs,
    },
    /// Appends the rows of a step to a cache and gives all positions so far: keys, then values, if
    /// the cache has any.
    CacheAppend {
        /// `[rows, kv_heads, head_dim]`.
        k: ValueId,
        /// `[rows, kv_heads, head_dim]`, where the last extent may differ from that of `k`; none
        /// where values are a part of the keys.
        v: Option<ValueId>,
        /// The cache; one op appends to it.
        cache: CacheId,
    },
    /// Attention of each row to the positions of a cache.
    Attention {
        /// `[rows, heads, head_dim]`; `heads` is a multiple of the heads of `k`.
        q: ValueId,
        /// `[positions, kv_heads, head_dim]`.
        k: ValueId,
        /// `[positions, kv_heads, head_dim]`.
        v: ValueId,
        /// The position of each row.
        at: ValueId,
        /// The factor on scores.
        scale: f32,
        /// Scores become `cap * tanh(score / cap)`.
        soft_cap: Option<f32>,
        /// A row at position `p` attends to positions above `p - window`.
        window: Option<u32>,
        /// A score for each head that takes part in the softmax and has no value.
        sinks: Option<WeightId>,
        /// Whether a row attends to no position after its own.
        causal: bool,
    },
    /// The same elements with other axes after `rows`.
    Regroup {
        /// The operand.
        x: ValueId,
        /// The axes, of as many elements.
        out: Vec<Dim>,
    },
    /// Convolution of each element along the rows of a sequence: with the weights `w` of an element,
    /// `y(t)` is the sum of `w(j) · x(t - taps + 1 + j)`, where rows before the first are 0. The last
    /// rows are kept for the next step.
    Convolve {
        /// `[rows, ..]`.
        x: ValueId,
        /// `[elements, 1, taps]`.
        weight: WeightId,
        /// What is kept; one op keeps it.
        cache: CacheId,
    },
    /// The gated delta rule: a recurrent state `[key_dim, value_dim]` for each head of values.
    ///
    /// With keys and queries of length 1 (a norm that adds `eps` to the square of the length), a
    /// decay `d = exp(-exp(a_log) · softplus(a + dt_bias))` and `β = sigmoid(b)`, the state `S` becomes
    /// `S' = d S + k ⊗ β (v - (d S)ᵀ k)`, and the result is `S'ᵀ q / sqrt(key_dim)`. From zeros at the
    /// first row of a sequence.
    DeltaRule {
        /// `[rows, kv_heads, key_dim]`.
        q: ValueId,
        /// `[rows, kv_heads, key_dim]`.
        k: ValueId,
        /// `[rows, kv_heads, n · value_dim]`: each head of keys has `n` heads of values.
        v: ValueId,
        /// `[rows, kv_heads, n]`.
        a: ValueId,
        /// `[rows, kv_heads, n]`.
        b: ValueId,
        /// `[kv_heads · n]`.
        a_log: WeightId,
        /// `[kv_heads · n]`.
        dt_bias: WeightId,
        /// What the norms of keys and queries add.
        eps: f32,
        /// The states; one op keeps them.
        cache: CacheId,
    },
    /// An activation function, elementwise: `f(x)`, or `f(gate) * x`.
    Activation {
        /// The operand; the product's other factor where there is a gate.
        x: ValueId,
        /// The operand of the function, if the activation is gated.
        gate: Option<ValueId>,
        /// The function.
        kind: ActivationKind,
    },
    /// Two values, elementwise. `b` may lack trailing axes of `a`, or have others of extent 1; it is
    /// repeated along those of `a`.
    Binary {
        /// The left operand.
        a: ValueId,
        /// The right operand.
        b: ValueId,
        /// The operation.
        kind: BinaryKind,
    },
    /// A part of the last axis.
    Slice {
        /// The operand.
        x: ValueId,
        /// The first element.
        start: u64,
        /// The number of elements.
        size: u64,
    },
    /// Two values, one after the other along the last axis. An axis of `b` of extent 1 is repeated
    /// to that of `a`.
    Concat {
        /// The first elements.
        a: ValueId,
        /// The last elements.
        b: ValueId,
    },
    /// `x` times a number.
    Scale {
        /// The operand.
        x: ValueId,
        /// The number.
        by: f32,
    },
    /// `cap * tanh(x / cap)`.
    SoftCap {
        /// The operand.
        x: ValueId,
        /// The bound on the result's magnitude.
        cap: f32,
    },
    /// Chooses experts for each row: their ids, then their weights, both `[rows, chosen]`.
    Route {
        /// `[rows, experts]`.
        logits: ValueId,
        /// Experts for each row.
        k: u32,
        /// The function from logits to weights.
        kind: RouteKind,
        /// A summand of each expert's score, `[experts]`, by which experts are chosen: their weights
        /// are without it.
        correction: Option<WeightId>,
    },
    /// [`Op::Linear`] with the weights of the chosen experts: `[rows, ..]` or `[rows, chosen, ..]`
    /// to `[rows, chosen, out]`.
    ExpertLinear {
        /// The activations.
        x: ValueId,
        /// `[experts, product of out, product of the contracted axes]`.
        experts: WeightId,
        /// `[rows, chosen]`.
        ids: ValueId,
        /// `[experts, product of out]`.
        bias: Option<WeightId>,
        /// The axes that replace the contracted ones.
        out: Vec<Dim>,
    },
    /// The sum over `chosen` with a weight for each: `[rows, chosen, ..]` to `[rows, ..]`.
    WeightedSum {
        /// The summands.
        x: ValueId,
        /// `[rows, chosen]`.
        weights: ValueId,
    },
    /// Scores of the vocabulary: `[rows, ..]` to `[rows, vocab]`.
    Logits {
        /// The activations.
        x: ValueId,
        /// `[vocab, product of the contracted axes]`.
        table: WeightId,
    },
    /// The index of the largest logit of each row; the least index on a tie.
    Choose {
        /// `[rows, vocab]`.
        logits: ValueId,
    },
    /// Rows that a graph of [rows](crate::rows) is given.
    Load {
        /// The rows that are read.
        from: Source,
    },
    /// A number for every element, in the shape of a field.
    Fill {
        /// The field.
        field: FieldId,
        /// The number.
        number: Num,
    },
    /// A function of single elements. An extent of 1 broadcasts.
    Elementwise {
        /// The first operand.
        x: ValueId,
        /// The second operand, of functions that have one.
        y: Option<ValueId>,
        /// The function.
        function: Elementwise,
    },
    /// A reduction of each row along an inner axis.
    Reduce {
        /// The operand.
        x: ValueId,
        /// Along which axis, to what.
        reduction: Reduction,
    },
    /// Products of rows.
    Product {
        /// The first operand.
        x: ValueId,
        /// The second operand.
        y: ValueId,
        /// The third operand, of products that have one.
        z: Option<ValueId>,
        /// The kind of product.
        product: ProductOp,
    },
    /// The elements of a row in other places.
    Rearrange {
        /// The operand.
        x: ValueId,
        /// The new arrangement.
        to: Rearrange,
    },
    /// An op over all candidate blocks, for each element.
    OverBlocks {
        /// A row for each block.
        x: ValueId,
        /// The op.
        over: RowOp,
    },
    /// Stores a field or a state, and gives what was stored.
    Store {
        /// The rows.
        x: ValueId,
        /// The field or the state; one op stores it.
        to: Source,
    },
    /// The rank of each candidate block by score: the largest first, equal ones by position, NaN
    /// last. The first blocks are attended to.
    Select {
        /// A number for each block.
        x: ValueId,
    },
}

/// The inputs that each step gives to a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// Token ids.
    Tokens,
    /// The position of each token in its sequence.
    Positions,
}

/// The statistic of a normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NormKind {
    /// `x / sqrt(mean(x²) + eps)`, times the weight, or 1 more than it (Gemma).
    Rms {
        /// Whether 1 is added to the weight.
        unit_offset: bool,
    },
    /// `(x - mean) / sqrt(variance + eps)`, times the weight.
    Layer,
}

/// The pairs of dimensions of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RopePairs {
    /// `i` with `i + n`, where `2 n` dimensions rotate.
    Halves,
    /// `2 i` with `2 i + 1`.
    Interleaved,
}

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ActivationKind {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU by its approximation with tanh.
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `g * sigmoid(alpha * g) * (u + 1)`, where `g` is the gate, at most `limit`, and `u` is the
    /// other factor, within `±limit` (gpt-oss). It needs a gate.
    ClampedSwiglu {
        /// The factor inside of the sigmoid.
        alpha: f32,
        /// The bound.
        limit: f32,
    },
}

/// An operation on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BinaryKind {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
}

/// The function from a router's logits to its weights. The least id wins a tie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RouteKind {
    /// The softmax over all experts, then the largest.
    SoftmaxThenTopK {
        /// Whether the chosen weights are divided by their sum.
        renormalise: bool,
    },
    /// The largest logits, then the softmax over those.
    TopKThenSoftmax,
    /// The largest logits, with the sigmoid of each as its weight.
    Sigmoid,
    /// The softmax over all experts, then the largest within the groups whose largest are largest.
    SoftmaxInGroups {
        /// Groups of experts of one size.
        groups: u32,
        /// The groups that are kept.
        kept: u32,
    },
    /// The sigmoid of each logit, then the largest within the groups whose two largest have the largest
    /// sum.
    SigmoidInGroups {
        /// Groups of experts of one size.
        groups: u32,
        /// The groups that are kept.
        kept: u32,
        /// Whether the chosen weights are divided by their sum.
        renormalise: bool,
    },
}

/// Applies `$each(name, field)` to the operands of an op, by reference or mutable reference.
macro_rules! each_operand {
    ($op:expr, $each:expr) => {
        match $op {
            Op::Input { .. } => {}
            Op::Embed { ids, .. } => $each("ids", ids),
            Op::Norm { x, .. } | Op::Linear { x, .. } | Op::Scale { x, .. } | Op::SoftCap { x, .. } => $each("x", x),
            Op::Slice { x, .. } | Op::HeadLinear { x, .. } => $each("x", x),
            Op::Regroup { x, .. } | Op::Convolve { x, .. } => $each("x", x),
            Op::DeltaRule { q, k, v, a, b, .. } => {
                $each("q", q);
                $each("k", k);
                $each("v", v);
                $each("a", a);
                $each("b", b);
            }
            Op::Logits { x, .. } => $each("x", x),
            Op::Rope { x, at, .. } => {
                $each("x", x);
                $each("at", at);
            }
            Op::CacheAppend { k, v, .. } => {
                $each("k", k);
                if let Some(v) = v {
                    $each("v", v);
                }
            }
            Op::Attention { q, k, v, at, .. } => {
                $each("q", q);
                $each("k", k);
                $each("v", v);
                $each("at", at);
            }
            Op::Activation { x, gate, .. } => {
                $each("x", x);
                if let Some(gate) = gate {
                    $each("gate", gate);
                }
            }
            Op::Binary { a, b, .. } | Op::Concat { a, b } => {
                $each("a", a);
                $each("b", b);
            }
            Op::Route { logits, .. } | Op::Choose { logits } => $each("logits", logits),
            Op::ExpertLinear { x, ids, .. } => {
                $each("x", x);
                $each("ids", ids);
            }
            Op::WeightedSum { x, weights } => {
                $each("x", x);
                $each("weights", weights);
            }
            Op::Load { .. } | Op::Fill { .. } => {}
            Op::Reduce { x, .. } | Op::Rearrange { x, .. } | Op::OverBlocks { x, .. } => $each("x", x),
            Op::Store { x, .. } | Op::Select { x } => $each("x", x),
            Op::Elementwise { x, y, .. } => {
                $each("x", x);
                if let Some(y) = y {
                    $each("y", y);
                }
            }
            Op::Product { x, y, z, .. } => {
                $each("x", x);
                $each("y", y);
                if let Some(z) = z {
                    $each("z", z);
                }
            }
        }
    };
}

/// Applies `$each(name, field)` to the weights of an op, by reference or mutable reference.
macro_rules! each_weight {
    ($op:expr, $each:expr) => {
        match $op {
            Op::Embed { table, .. } | Op::Logits { table, .. } => $each("table", table),
            Op::Norm { weight, bias, .. } => {
                if let Some(weight) = weight {
                    $each("weight", weight);
                }
                if let Some(bias) = bias {
                    $each("bias", bias);
                }
            }
            Op::HeadLinear { weight, .. } | Op::Convolve { weight, .. } => $each("weight", weight),
            Op::DeltaRule { a_log, dt_bias, .. } => {
                $each("a_log", a_log);
                $each("dt_bias", dt_bias);
            }
            Op::Regroup { .. } => {}
            Op::Linear { weight, bias, .. } | Op::ExpertLinear { experts: weight, bias, .. } => {
                $each("weight", weight);
                if let Some(bias) = bias {
                    $each("bias", bias);
                }
            }
            Op::Attention { sinks, .. } => {
                if let Some(sinks) = sinks {
                    $each("sinks", sinks);
                }
            }
            Op::Input { .. } | Op::Rope { .. } | Op::CacheAppend { .. } | Op::Activation { .. } => {}
            Op::Route { correction, .. } => {
                if let Some(correction) = correction {
                    $each("correction", correction);
                }
            }
            Op::Binary { .. } | Op::Scale { .. } | Op::SoftCap { .. } | Op::Slice { .. } | Op::Concat { .. } => {}
            Op::WeightedSum { .. } | Op::Choose { .. } => {}
            Op::Load { .. } | Op::Fill { .. } | Op::Elementwise { .. } | Op::Reduce { .. } | Op::Product { .. } => {}
            Op::Rearrange { .. } | Op::OverBlocks { .. } | Op::Store { .. } | Op::Select { .. } => {}
        }
    };
}

impl Op {
    /// Whether it multiplies activations with a weight: those of all rows, or of chosen experts.
    ///
    /// ```
    /// use tilewright_graph::graph::ValueId;
    /// use tilewright_graph::op::Op;
    /// assert!(!Op::Choose { logits: ValueId(3) }.is_product());
    /// ```
    pub const fn is_product(&self) -> bool {
        matches!(self, Op::Linear { .. } | Op::HeadLinear { .. } | Op::ExpertLinear { .. } | Op::Logits { .. })
    }

    /// The name, as text and JSON have it; of an op on rows, that of its function.
    pub const fn name(&self) -> &'static str {
        match self {
            Op::Input { .. } => "input",
            Op::Embed { .. } => "embed",
            Op::Norm { .. } => "norm",
            Op::Linear { .. } => "linear",
            Op::HeadLinear { .. } => "head_linear",
            Op::Regroup { .. } => "regroup",
            Op::Convolve { .. } => "convolve",
            Op::DeltaRule { .. } => "delta_rule",
            Op::Rope { .. } => "rope",
            Op::CacheAppend { .. } => "cache_append",
            Op::Attention { .. } => "attention",
            Op::Activation { .. } => "activation",
            Op::Binary { .. } => "binary",
            Op::Slice { .. } => "slice",
            Op::Concat { .. } => "concat",
            Op::Scale { .. } => "scale",
            Op::SoftCap { .. } => "soft_cap",
            Op::Route { .. } => "route",
            Op::ExpertLinear { .. } => "expert_linear",
            Op::WeightedSum { .. } => "weighted_sum",
            Op::Logits { .. } => "logits",
            Op::Choose { .. } => "choose",
            Op::Load { from } => from.name(),
            Op::Fill { .. } => "fill",
            Op::Elementwise { function, .. } => function.name(),
            Op::Reduce { reduction, .. } => reduction.reduce.name(),
            Op::Product { product, .. } => product.name(),
            Op::Rearrange { to: Rearrange::Transpose, .. } => "transpose",
            Op::Rearrange { to: Rearrange::Reshape(_), .. } => "reshape",
            Op::OverBlocks { over, .. } => over.name(),
            Op::Store { to: Source::State(_), .. } => "save",
            Op::Store { .. } => "store",
            Op::Select { .. } => "select",
        }
    }

    /// The number of values that the op defines.
    pub const fn results(&self) -> usize {
        match self {
            Op::CacheAppend { v: None, .. } | Op::HeadLinear { .. } => 1,
            Op::Regroup { .. } | Op::Convolve { .. } | Op::DeltaRule { .. } => 1,
            Op::CacheAppend { v: Some(_), .. } | Op::Route { .. } => 2,
            Op::Input { .. } | Op::Embed { .. } | Op::Norm { .. } | Op::Linear { .. } | Op::Rope { .. } => 1,
            Op::Attention { .. } | Op::Activation { .. } | Op::Binary { .. } | Op::Scale { .. } => 1,
            Op::SoftCap { .. } | Op::ExpertLinear { .. } | Op::WeightedSum { .. } => 1,
            Op::Logits { .. } | Op::Choose { .. } | Op::Slice { .. } | Op::Concat { .. } => 1,
            Op::Load { .. } | Op::Fill { .. } | Op::Elementwise { .. } | Op::Reduce { .. } | Op::Product { .. } => 1,
            Op::Rearrange { .. } | Op::OverBlocks { .. } | Op::Store { .. } | Op::Select { .. } => 1,
        }
    }

    /// Whether it is an op on [rows](crate::rows).
    pub const fn is_of_rows(&self) -> bool {
        let moves = matches!(self, Op::Load { .. } | Op::Fill { .. } | Op::Store { .. } | Op::Rearrange { .. });
        moves
            || matches!(self, Op::Elementwise { .. } | Op::Reduce { .. } | Op::Product { .. })
            || matches!(self, Op::OverBlocks { .. } | Op::Select { .. })
    }

    /// Whether it gives what the graph is given.
    pub const fn is_source(&self) -> bool {
        matches!(self, Op::Input { .. } | Op::Load { .. } | Op::Fill { .. })
    }

    /// Whether it has an effect besides its values: a graph keeps every occurrence of it.
    ///
    /// ```
    /// use tilewright_graph::{graph::ValueId, op::Op};
    /// let op = Op::Select { x: ValueId(3) };
    /// assert!(op.is_effect() && !op.is_source() && !op.is_commutative());
    /// ```
    pub const fn is_effect(&self) -> bool {
        let keeps = matches!(self, Op::CacheAppend { .. } | Op::Convolve { .. } | Op::DeltaRule { .. });
        keeps || matches!(self, Op::Store { .. } | Op::Select { .. })
    }

    /// Whether exchanging its two operands changes nothing.
    pub fn is_commutative(&self) -> bool {
        matches!(self, Op::Elementwise { function: Elementwise::Binary(binary), .. } if binary.is_commutative())
    }

    /// The operands with their names.
    pub fn operands(&self) -> Vec<(&'static str, ValueId)> {
        let mut found = Vec::new();
        let mut each = |name, id: &ValueId| found.push((name, *id));
        each_operand!(self, each);
        found
    }

    /// Replaces each operand.
    pub fn map_operands(&mut self, mut map: impl FnMut(ValueId) -> ValueId) {
        let mut each = |_: &'static str, id: &mut ValueId| *id = map(*id);
        each_operand!(self, each);
    }

    /// The weights with the names of their roles.
    pub fn weights(&self) -> Vec<(&'static str, WeightId)> {
        let mut found = Vec::new();
        let mut each = |name, id: &WeightId| found.push((name, *id));
        each_weight!(self, each);
        found
    }

    /// Replaces each weight.
    pub fn map_weights(&mut self, mut map: impl FnMut(WeightId) -> WeightId) {
        let mut each = |_: &'static str, id: &mut WeightId| *id = map(*id);
        each_weight!(self, each);
    }
}
