//! Random graphs and random weights, for property tests.
//!
//! Types guide the generator: each drawn op takes operands of those values that fit it, so that
//! every drawn graph is valid and most have long paths.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::axis::{Axis, Dim, Shape, Type};
use crate::build::{Block, Builder, Mixture, Sizes, Value};
use crate::graph::{Graph, RopeTable, Weight};
use crate::interpret::CheckpointTensor;
use crate::op::{ActivationKind, BinaryKind, NormKind, Op, RopePairs, RouteKind};

/// The random numbers from which one op is drawn.
#[derive(Clone, Debug)]
struct OpDraw {
    kind: u8,
    operands: [Index; 3],
    number: f32,
    variant: u8,
    has_bias: bool,
    is_output: bool,
}

fn draw() -> impl Strategy<Value = OpDraw> {
    let number = prop_oneof![
        Just(1.0f32),
        Just(0.5),
        Just(2.0),
        Just(-4.0),
        (1u8..=40).prop_map(|tenths| f32::from(tenths) / 10.0)
    ];
    (0u8..12, any::<[Index; 3]>(), number, any::<u8>(), any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        |(kind, operands, number, variant, has_bias, is_output)| OpDraw {
            kind,
            operands,
            number,
            variant,
            has_bias,
            is_output,
        },
    )
}

/// Valid graphs of up to about 60 ops, whose first value is an embedding of the tokens.
///
/// ```
/// use proptest::strategy::{Strategy, ValueTree};
/// use proptest::test_runner::TestRunner;
/// let graph = tilewright_graph::testing::graphs().new_tree(&mut TestRunner::deterministic())?.current();
/// assert!(!graph.parts().outputs.is_empty());
/// # Ok::<(), proptest::test_runner::Reason>(())
/// ```
pub fn graphs() -> impl Strategy<Value = Graph> {
    let sizes = (1u64..=9, 1u64..=2, 1u64..=3, 1u64..=3, 1u64..=6, 2u64..=9).prop_map(
        |(hidden, kv_heads, group, half, inner, vocab)| Sizes {
            hidden,
            heads: kv_heads * group,
            kv_heads,
            head_dim: 2 * half,
            inner,
            vocab,
        },
    );
    (sizes, prop::collection::vec(draw(), 1..16)).prop_map(|(sizes, draws)| graph(sizes, &draws))
}

/// The graph of some draws.
fn graph(sizes: Sizes, draws: &[OpDraw]) -> Graph {
    let builder = Builder::new("random", sizes, 1e-5);
    let x = builder.root().embed(builder.tokens(), "embed").scale(1.5);
    let mut growth = Growth { builder: &builder, sizes, values: vec![x], ids: vec![builder.tokens()] };
    let mut outputs = Vec::new();
    for (place, draw) in draws.iter().enumerate() {
        let block = builder.within(format!("op{place}."));
        if let Some(value) = growth.op(&block, draw) {
            outputs.extend(Some(value).filter(|_| draw.is_output));
        }
    }
    outputs.extend(growth.values.last().copied());
    builder.finish(&outputs).unwrap_or_else(|error| panic!("the generator made an invalid graph: {error}"))
}

/// Values so far.
struct Growth<'b> {
    builder: &'b Builder,
    sizes: Sizes,
    /// Real numbers with rows and another axis.
    values: Vec<Value<'b>>,
    /// Token ids.
    ids: Vec<Value<'b>>,
}

impl<'b> Growth<'b> {
    /// A value that fits a condition.
    fn pick(&self, index: Index, fits: impl Fn(&Type) -> bool) -> Option<Value<'b>> {
        let found: Vec<Value<'b>> =
            self.values.iter().copied().filter(|value| value.kind().is_some_and(|kind| fits(&kind))).collect();
        if found.is_empty() { None } else { Some(*index.get(&found)) }
    }

    /// A value with the axes `rows` and `out`: an existing value, or a product of another.
    fn shaped(&self, b: &Block<'b>, index: Index, module: &str, out: &[Dim]) -> Option<Value<'b>> {
        let found = self.pick(index, |kind| kind.shape.0.get(1..) == Some(out));
        found.or_else(|| Some(b.project(self.pick(index, |_| true)?, module, out).into()))
    }

    fn hidden(&self) -> Dim {
        Dim::known(Axis::Hidden, self.sizes.hidden)
    }

    /// Adds an op, and keeps its result.
    fn op(&mut self, b: &Block<'b>, draw: &OpDraw) -> Option<Value<'b>> {
        let [first, second, third] = draw.operands;
        let x = self.pick(first, |_| true)?;
        let value = match draw.kind {
            0 | 1 => self.norm(b, draw, x)?,
            2 | 3 => self.linear(b, draw, x),
            4 => {
                let kind = x.kind()?;
                let gate = self.pick(second, |other| *other == kind).filter(|_| draw.variant.is_multiple_of(2));
                b.activation(activation(draw, gate.is_some()), x, gate)
            }
            5 => {
                let kind = x.kind()?;
                let other = self.pick(second, |other| kind.shape.0.starts_with(&other.shape.0))?;
                let kinds = [BinaryKind::Add, BinaryKind::Sub, BinaryKind::Mul];
                b.binary(kinds[usize::from(draw.variant) % 3], x, other)
            }
            6 => b.scale(x, draw.number),
            7 => b.soft_cap(x, Some(draw.number.abs())),
            8 | 9 => self.attention(b, draw)?,
            10 => {
                let x = self.shaped(b, first, "to_hidden", &[self.hidden()])?;
                b.mixture(x, mixture(draw))
            }
            _ => {
                let x = self.shaped(b, third, "to_hidden", &[self.hidden()])?;
                let id = b.choose(b.logits(x, "logits"));
                self.ids.push(id);
                b.embed(*second.get(&self.ids), "embed").scale(draw.number)
            }
        };
        self.values.push(value);
        Some(value)
    }

    fn norm(&self, b: &Block<'b>, draw: &OpDraw, x: Value<'b>) -> Option<Value<'b>> {
        let dims = x.kind()?.shape.0;
        let over = if draw.variant.is_multiple_of(2) { &dims[dims.len() - 1..] } else { &dims[1..] };
        let size = Shape::elements(over)?;
        let kind = match draw.variant % 5 {
            0 | 1 => NormKind::Layer,
            2 => NormKind::Rms { unit_offset: true },
            _ => NormKind::Rms { unit_offset: false },
        };
        let weight = (!draw.variant.is_multiple_of(3)).then(|| b.weight("weight", [size]));
        let bias = draw.has_bias.then(|| b.weight("bias", [size]));
        let over = over.iter().map(|dim| dim.axis.clone()).collect();
        b.op(Op::Norm { x: x.id()?, weight, bias, kind, eps: 1e-3, over }).first().copied()
    }

    fn linear(&self, b: &Block<'b>, draw: &OpDraw, x: Value<'b>) -> Value<'b> {
        let Sizes { heads, kv_heads, head_dim, inner, .. } = self.sizes;
        let out = match draw.variant % 4 {
            0 => vec![self.hidden()],
            1 => vec![Dim::known(Axis::Inner, inner)],
            2 => vec![Dim::known(Axis::Heads, heads), Dim::known(Axis::HeadDim, head_dim)],
            _ => vec![Dim::known(Axis::KvHeads, kv_heads), Dim::known(Axis::HeadDim, head_dim)],
        };
        b.project(x, "linear", out).bias(draw.has_bias)
    }

    fn attention(&self, b: &Block<'b>, draw: &OpDraw) -> Option<Value<'b>> {
        let Sizes { heads, kv_heads, head_dim, .. } = self.sizes;
        let last = Dim::known(Axis::HeadDim, head_dim);
        let shared = [Dim::known(Axis::KvHeads, kv_heads), last.clone()];
        let [first, second, third] = draw.operands;
        let mut q = self.shaped(b, first, "q", &[Dim::known(Axis::Heads, heads), last])?;
        let mut k = self.shaped(b, second, "k", &shared)?;
        let v = self.shaped(b, third, "v", &shared)?;
        if !draw.variant.is_multiple_of(3) {
            let pairs = if draw.has_bias { RopePairs::Halves } else { RopePairs::Interleaved };
            let rotated = 1 + usize::from(draw.variant) % (head_dim as usize / 2);
            let frequencies = (0..rotated).map(|pair| 0.7f32.powi(pair as i32)).collect();
            let (table, at) =
                (self.builder.rope_table(&RopeTable { frequencies, scale: 1.25 }), self.builder.positions());
            let rotate = |x: Value<'b>| b.op(Op::Rope { x: x.id()?, at: at.id()?, table, pairs }).first().copied();
            (q, k) = (rotate(q)?, rotate(k)?);
        }
        let cap = (draw.variant % 4 == 1).then_some(draw.number.abs());
        let window = (draw.variant % 5 < 2).then_some(1 + u32::from(draw.variant % 3));
        let attended = b.attention(q, k, v).scale(draw.number).soft_cap(cap).window(window);
        Some(if draw.has_bias { attended.sinks("sinks").into() } else { attended.into() })
    }
}

fn activation(draw: &OpDraw, has_gate: bool) -> ActivationKind {
    let clamped = ActivationKind::ClampedSwiglu { alpha: 1.7, limit: 0.5 };
    let kinds = [
        ActivationKind::Silu,
        ActivationKind::GeluTanh,
        ActivationKind::Relu,
        ActivationKind::Sigmoid,
        if has_gate { clamped } else { ActivationKind::Silu },
    ];
    kinds[usize::from(draw.variant / 2) % kinds.len()]
}

fn mixture(draw: &OpDraw) -> Mixture<'static> {
    let experts = 2 + u64::from(draw.variant % 3);
    let chosen = 1 + u32::from(draw.variant / 3) % 2;
    let halves = (2, 1 + u32::from(chosen == 2 || draw.has_bias));
    let route = match draw.variant % 5 {
        0 => RouteKind::TopKThenSoftmax,
        1 => RouteKind::Sigmoid,
        2 if experts.is_multiple_of(2) => RouteKind::SoftmaxInGroups { groups: halves.0, kept: halves.1 },
        3 if experts.is_multiple_of(2) => {
            RouteKind::SigmoidInGroups { groups: halves.0, kept: halves.1, renormalise: draw.has_bias }
        }
        _ => RouteKind::SoftmaxThenTopK { renormalise: draw.has_bias },
    };
    let [gate, up, down] = ["experts.{expert}.gate", "experts.{expert}.up", "experts.{expert}.down"];
    Mixture {
        router: "router",
        gate,
        up,
        down,
        experts,
        chosen,
        inner: 3,
        route,
        correction: None,
        scale: 1.0,
        kind: ActivationKind::Silu,
        bias: draw.has_bias,
    }
}

/// Weights for a graph: numbers in -1 to 1 that follow from the seed and the tensor's name.
///
/// ```
/// use tilewright_graph::graph::Weight;
/// use tilewright_graph::testing::tensor;
/// let weight = Weight::new("norm.weight", [4]);
/// assert_eq!(tensor(&weight, "norm.weight", 1), tensor(&weight, "norm.weight", 1));
/// assert_ne!(tensor(&weight, "norm.weight", 1), tensor(&weight, "norm.weight", 2));
/// ```
pub fn tensor(weight: &Weight, name: &str, seed: u64) -> CheckpointTensor {
    let shape: Vec<usize> = weight.shape.iter().map(|extent| *extent as usize).collect();
    let mut state = name.bytes().fold(seed, |state, byte| mixed(state ^ u64::from(byte)));
    let mut number = || {
        state = mixed(state);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    CheckpointTensor { data: (0..shape.iter().product()).map(|_| number()).collect(), shape }
}

/// A step of splitmix64.
fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// The weights of a graph by name, from a seed.
pub fn weights(graph: &Graph, seed: u64) -> impl Fn(&str) -> Option<CheckpointTensor> {
    let named =
        graph.parts().weights.iter().flat_map(|weight| weight.names().into_iter().map(move |name| (name, weight)));
    let all: std::collections::HashMap<String, CheckpointTensor> =
        named.map(|(name, weight)| (name.clone(), tensor(weight, &name, seed))).collect();
    move |name| all.get(name).cloned()
}
