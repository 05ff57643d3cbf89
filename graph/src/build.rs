//! The builder that family pages are written with.
//!
//! A [`Builder`] collects ops; a [`Block`] names tensors below a prefix, such as
//! `model.layers.3.`. Methods return values at once, so that ops nest in one expression. An op that
//! does not fit is noted and gives a value without a type; [`Builder::finish`] returns everything
//! that was noted.

use std::cell::RefCell;

use crate::axis::{Axis, Dim, Shape, Type};
use crate::error::{GraphError, GraphErrors};
use crate::graph::{Body, CacheId, Graph, Node, Part, Parts, RopeId, RopeTable, Step, ValueId, Weight, WeightId};
use crate::infer::{InferContext, infer};
use crate::op::{ActivationKind, BinaryKind, InputKind, NormKind, Op, RopePairs, RouteKind};
use crate::parts::steps;
use crate::text::OpText;

/// Extents of the axes that most families have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The residual stream.
    pub hidden: u64,
    /// Query heads.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Dimensions of a head.
    pub head_dim: u64,
    /// The inside of the MLP.
    pub inner: u64,
    /// Tokens of the vocabulary.
    pub vocab: u64,
}

/// A graph while it is built. See the [crate's example](crate).
#[derive(Debug)]
pub struct Builder {
    sizes: Sizes,
    eps: f32,
    inner: RefCell<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    parts: Parts,
    types: Vec<Type>,
    errors: Vec<GraphError>,
    caches: usize,
    /// Tokens, then positions.
    inputs: [Option<ValueId>; 2],
}

/// A value while its graph is built; without an id, if its op does not fit.
#[derive(Clone, Copy, Debug)]
pub struct Value<'b> {
    builder: &'b Builder,
    id: Option<ValueId>,
}

/// Ops whose weights have names below a prefix.
#[derive(Clone, Debug)]
pub struct Block<'b> {
    builder: &'b Builder,
    prefix: String,
}

/// Declares a value whose op takes attributes.
macro_rules! attributed {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<'b>(Value<'b>);

        impl<'b> From<$name<'b>> for Value<'b> {
            fn from(value: $name<'b>) -> Value<'b> {
                value.0
            }
        }
    };
}

attributed!(
    /// The result of a normalisation.
    Normed
);
attributed!(
    /// The result of a linear product.
    Projected
);
attributed!(
    /// The result of attention.
    Attended
);
attributed!(
    /// The embedded tokens.
    Embedded
);

/// The projections of a gated MLP.
#[derive(Clone, Copy, Debug)]
pub struct Gated<'n> {
    /// The module of the gate.
    pub gate: &'n str,
    /// The module of the other factor.
    pub up: &'n str,
    /// Whether both have biases.
    pub bias: bool,
    /// The function of the gate.
    pub kind: ActivationKind,
}

/// The rows of a convolution's weight that a value's elements have.
#[derive(Clone, Copy, Debug)]
pub struct ConvolvedRows {
    /// Rows of the weight.
    pub channels: u64,
    /// The first row of the value.
    pub start: u64,
    /// Rows of a sequence that a result is a sum of.
    pub taps: u64,
}

/// The operands of the gated delta rule ([`Op::DeltaRule`]).
#[derive(Clone, Copy, Debug)]
pub struct DeltaOperands<'b> {
    /// Queries.
    pub q: Value<'b>,
    /// Keys.
    pub k: Value<'b>,
    /// Values.
    pub v: Value<'b>,
    /// From which the decay comes.
    pub a: Value<'b>,
    /// From which the strength of a change comes.
    pub b: Value<'b>,
}

/// The experts that a router chooses for each row.
#[derive(Clone, Copy, Debug)]
pub struct Routed<'b> {
    /// Their ids: `[rows, chosen]`.
    pub ids: Value<'b>,
    /// Their weights: `[rows, chosen]`.
    pub weights: Value<'b>,
}

/// The weights of all experts for one product.
#[derive(Clone, Copy, Debug)]
pub struct ExpertWeights {
    /// `[experts, outputs, inputs]`.
    pub weight: WeightId,
    /// `[experts, outputs]`.
    pub bias: Option<WeightId>,
}

/// A mixture of experts with gated MLPs. In the experts' names, `{expert}` stands for the number; the
/// name of a single expert may lack it.
#[derive(Clone, Copy, Debug)]
pub struct Mixture<'n> {
    /// The module of the router.
    pub router: &'n str,
    /// The module of each expert's gate.
    pub gate: &'n str,
    /// The module of each expert's other factor.
    pub up: &'n str,
    /// The module of each expert's product back to `hidden`.
    pub down: &'n str,
    /// The number of experts.
    pub experts: u64,
    /// The number of experts chosen for each row.
    pub chosen: u32,
    /// The inside of an expert.
    pub inner: u64,
    /// The function from the router's logits to weights.
    pub route: RouteKind,
    /// The tensor of what is added to experts' scores where they are chosen, if there is one.
    pub correction: Option<&'n str>,
    /// The factor of the router's weights.
    pub scale: f32,
    /// The function of the gate.
    pub kind: ActivationKind,
    /// Whether the router and the products of experts have biases.
    pub bias: bool,
}

impl Builder {
    /// An empty graph; `eps` is that of its normalisations.
    pub fn new(name: impl Into<String>, sizes: Sizes, eps: f32) -> Builder {
        let parts = Parts { name: name.into(), ..Parts::default() };
        Builder { sizes, eps, inner: RefCell::new(Inner { parts, ..Inner::default() }) }
    }

    /// Ops whose weights have full names.
    pub fn root(&self) -> Block<'_> {
        self.within("")
    }

    /// Ops whose weights have names below a prefix.
    pub fn within(&self, prefix: impl Into<String>) -> Block<'_> {
        Block { builder: self, prefix: prefix.into() }
    }

    /// The token ids of a step.
    pub fn tokens(&self) -> Value<'_> {
        self.input(0, InputKind::Tokens)
    }

    /// The position of each token.
    pub fn positions(&self) -> Value<'_> {
        self.input(1, InputKind::Positions)
    }

    fn input(&self, place: usize, input: InputKind) -> Value<'_> {
        let known = self.inner.borrow().inputs[place];
        let id = known.or_else(|| self.push(Op::Input { input }).first().and_then(|value| value.id));
        self.inner.borrow_mut().inputs[place] = id;
        Value { builder: self, id }
    }

    /// Declares rotary frequencies; equal ones are declared once.
    pub fn rope_table(&self, table: &RopeTable) -> RopeId {
        let ropes = &mut self.inner.borrow_mut().parts.ropes;
        RopeId::at(ropes.iter().position(|known| known == table).unwrap_or_else(|| {
            ropes.push(table.clone());
            ropes.len() - 1
        }))
    }

    /// Checks the ops and makes the graph that computes `outputs`.
    ///
    /// # Errors
    /// Ops that do not fit, as [`Graph::check`] reports them.
    pub fn finish<'b>(&'b self, outputs: &[Value<'b>]) -> Result<Graph, GraphErrors> {
        let inner = self.inner.borrow();
        if !inner.errors.is_empty() {
            return Err(GraphErrors { graph: inner.parts.name.clone(), errors: inner.errors.clone() });
        }
        let outputs = outputs.iter().filter_map(|value| value.id).collect();
        Graph::check(Parts { outputs, ..inner.parts.clone() })
    }

    /// Declares a weight; equal ones are declared once.
    fn weight(&self, weight: Weight) -> WeightId {
        let weights = &mut self.inner.borrow_mut().parts.weights;
        WeightId::at(weights.iter().position(|known| *known == weight).unwrap_or_else(|| {
            weights.push(weight);
            weights.len() - 1
        }))
    }

    /// Adds an op, and gives its results.
    fn push(&self, op: Op) -> Vec<Value<'_>> {
        let mut inner = self.inner.borrow_mut();
        let first = ValueId::at(inner.types.len());
        let needs = RefCell::default();
        let results = infer(&op, InferContext { parts: &inner.parts, types: &inner.types, needs: &needs });
        match results {
            Ok(results) => {
                inner.types.extend_from_slice(&results);
                let ids = (0..results.len()).map(|place| Some(ValueId::at(first.index() + place)));
                let values = ids.map(|id| Value { builder: self, id }).collect();
                inner.parts.nodes.push(Node { body: Body::Single(op), results });
                values
            }
            Err(problem) => {
                let count = op.results();
                let step = Step { op: &op, first, results: &[], node: inner.parts.nodes.len() };
                let at = OpText::new(&inner.parts, &step).to_string();
                if inner.errors.len() < GraphErrors::LIMIT {
                    inner.errors.push(GraphError { at, problem });
                }
                vec![Value { builder: self, id: None }; count]
            }
        }
    }
}

impl<'b> Value<'b> {
    /// Its index, if its op fits.
    pub fn id(self) -> Option<ValueId> {
        self.id
    }

    /// Its type, if its op fits.
    pub fn kind(self) -> Option<Type> {
        self.id.and_then(|id| self.builder.inner.borrow().types.get(id.index()).cloned())
    }

    /// Changes attributes of the op that defines it.
    fn edit(self, change: impl FnOnce(&mut Op)) {
        let Some(id) = self.id else { return };
        let mut first = 0;
        for node in &mut self.builder.inner.borrow_mut().parts.nodes {
            if let (true, Body::Single(op)) = (first == id.index(), &mut node.body) {
                return change(op);
            }
            first += node.results.len();
        }
    }
}

impl<'b> Normed<'b> {
    /// Sets what is added to the mean square.
    pub fn eps(self, by: f32) -> Normed<'b> {
        self.0.edit(|op| {
            if let Op::Norm { eps, .. } = op {
                *eps = by;
            }
        });
        self
    }

    /// Adds 1 to the weight, as Gemma's norms do.
    pub fn unit_offset(self) -> Value<'b> {
        self.0.edit(|op| {
            if let Op::Norm { kind, .. } = op {
                *kind = NormKind::Rms { unit_offset: true };
            }
        });
        self.0
    }
}

impl<'b> Projected<'b> {
    /// Adds a bias, if the module has one: the tensor named like its weight.
    pub fn bias(self, has_bias: bool) -> Value<'b> {
        if !has_bias {
            return self.0;
        }
        let inner = self.0.builder.inner.borrow();
        let mut id = None;
        let node = self.0.id.and_then(|id| steps(&inner.parts).find(|step| step.first == id));
        if let Some(Op::Linear { weight, .. }) = node.map(|step| step.op)
            && let Some(weight) = inner.parts.weights.get(weight.index())
        {
            let name = weight.tensor.strip_suffix("weight").unwrap_or(&weight.tensor);
            let rows = weight.shape.first().copied().unwrap_or(0);
            id = Some(Weight { rows: weight.rows, ..Weight::new(format!("{name}bias"), [rows]) });
        }
        drop(inner);
        let id = id.map(|weight| self.0.builder.weight(weight));
        self.0.edit(|op| {
            if let Op::Linear { bias, .. } = op {
                *bias = id;
            }
        });
        self.0
    }
}

impl<'b> Attended<'b> {
    /// Sets the factor on scores, which is `head_dim^-0.5` otherwise.
    pub fn scale(self, by: f32) -> Attended<'b> {
        self.set(|op| {
            if let Op::Attention { scale, .. } = op {
                *scale = by;
            }
        })
    }

    /// Bounds scores softly.
    pub fn soft_cap(self, cap: Option<f32>) -> Attended<'b> {
        self.set(|op| {
            if let Op::Attention { soft_cap, .. } = op {
                *soft_cap = cap;
            }
        })
    }

    /// Limits attention to the last `positions` positions.
    pub fn window(self, positions: Option<u32>) -> Attended<'b> {
        self.set(|op| {
            if let Op::Attention { window, .. } = op {
                *window = positions;
            }
        })
    }

    /// Adds a score without a value for each head, from a tensor with a full name.
    pub fn sinks(self, tensor: &str) -> Attended<'b> {
        let heads = self.0.kind().and_then(|kind| kind.shape.0.get(1).and_then(Dim::size)).unwrap_or(0);
        let weight = self.0.builder.weight(Weight::new(tensor, [heads]));
        self.set(|op| {
            if let Op::Attention { sinks, .. } = op {
                *sinks = Some(weight);
            }
        })
    }

    fn set(self, change: impl FnOnce(&mut Op)) -> Attended<'b> {
        self.0.edit(change);
        self
    }
}

impl<'b> Embedded<'b> {
    /// Multiplies the rows of the table.
    pub fn scale(self, by: f32) -> Value<'b> {
        self.0.edit(|op| {
            if let Op::Embed { scale, .. } = op {
                *scale = by;
            }
        });
        self.0
    }
}

impl<'b> Block<'b> {
    /// The full name of a tensor.
    fn name(&self, tensor: &str) -> String {
        format!("{}{tensor}", self.prefix)
    }

    fn one(&self, op: Option<Op>) -> Value<'b> {
        let values = op.map(|op| self.builder.push(op)).unwrap_or_default();
        values.first().copied().unwrap_or(Value { builder: self.builder, id: None })
    }

    /// Declares a weight of the block.
    ///
    /// ```
    /// use tilewright_graph::{build::{Builder, Sizes}, graph::{Weight, WeightId}};
    /// let sizes = Sizes { hidden: 64, heads: 4, kv_heads: 2, head_dim: 16, inner: 96, vocab: 600 };
    /// let builder = Builder::new("one", sizes, 1e-6);
    /// let block = builder.within("layers.0.");
    /// assert_eq!(block.weight("sinks", [4]), WeightId(0));
    /// ```
    pub fn weight(&self, tensor: &str, shape: impl Into<Vec<u64>>) -> WeightId {
        self.builder.weight(Weight::new(self.name(tensor), shape))
    }

    /// Adds any op, for ops without a method of the builder.
    pub fn op(&self, op: Op) -> Vec<Value<'b>> {
        self.builder.push(op)
    }

    /// Embeds tokens by the table of a module.
    pub fn embed(&self, ids: impl Into<Value<'b>>, module: &str) -> Embedded<'b> {
        let Sizes { vocab, hidden, .. } = self.builder.sizes;
        let table = self.weight(&format!("{module}.weight"), [vocab, hidden]);
        Embedded(self.one(ids.into().id.map(|ids| Op::Embed { ids, table, scale: 1.0 })))
    }

    /// Root mean square normalisation of the last axis.
    pub fn rms_norm(&self, x: impl Into<Value<'b>>, module: &str) -> Normed<'b> {
        let x = x.into();
        let kind = NormKind::Rms { unit_offset: false };
        Normed(self.norm(x, module, kind, false))
    }

    /// Layer normalisation of the last axis.
    pub fn layer_norm(&self, x: impl Into<Value<'b>>, module: &str, has_bias: bool) -> Normed<'b> {
        Normed(self.norm(x.into(), module, NormKind::Layer, has_bias))
    }

    /// Root mean square normalisation of all axes but the first: one mean for all heads of a row.
    pub fn rms_norm_of_rows(&self, x: impl Into<Value<'b>>, module: &str) -> Normed<'b> {
        let x = x.into();
        let dims = x.kind().map(|kind| kind.shape.0.into_iter().skip(1).collect()).unwrap_or_default();
        Normed(self.norm_over(x, dims, module, NormKind::Rms { unit_offset: false }, false))
    }

    fn norm(&self, x: Value<'b>, module: &str, kind: NormKind, has_bias: bool) -> Value<'b> {
        let last = x.kind().and_then(|kind| kind.shape.0.last().cloned());
        self.norm_over(x, last.into_iter().collect(), module, kind, has_bias)
    }

    fn norm_over(&self, x: Value<'b>, dims: Vec<Dim>, module: &str, kind: NormKind, has_bias: bool) -> Value<'b> {
        let size = Shape::elements(&dims).unwrap_or(0);
        let weight = Some(self.weight(&format!("{module}.weight"), [size]));
        let bias = has_bias.then(|| self.weight(&format!("{module}.bias"), [size]));
        let over = dims.into_iter().map(|dim| dim.axis).collect();
        self.one(x.id.map(|x| Op::Norm { x, weight, bias, kind, eps: self.builder.eps, over }))
    }

    /// Product with a module's weight, to given axes.
    pub fn project(&self, x: impl Into<Value<'b>>, module: &str, out: impl Into<Vec<Dim>>) -> Projected<'b> {
        let x = x.into();
        let out = out.into();
        let contracted = x.kind().and_then(|kind| Shape::elements(&kind.shape.0[kind.shape.kept()..]));
        let rows = Shape::elements(&out).unwrap_or(0);
        let weight = self.weight(&format!("{module}.weight"), [rows, contracted.unwrap_or(0)]);
        Projected(self.one(x.id.map(|x| Op::Linear { x, weight, bias: None, out })))
    }

    /// Product with a module's weight, to `hidden`.
    pub fn linear(&self, x: impl Into<Value<'b>>, module: &str) -> Projected<'b> {
        self.project(x, module, [Dim::known(Axis::Hidden, self.builder.sizes.hidden)])
    }

    /// Products with consecutive parts of one module's weight, to given axes each.
    ///
    /// ```
    /// use tilewright_graph::{axis::{Axis, Dim}, build::{Builder, Sizes, Value}};
    /// let sizes = Sizes { hidden: 64, heads: 4, kv_heads: 2, head_dim: 16, inner: 96, vocab: 600 };
    /// let builder = Builder::new("gated", sizes, 1e-6);
    /// let b = builder.root();
    /// let x = b.embed(builder.tokens(), "embed");
    /// let [gate, up] = b.project_parts(x, "gate_up", [Axis::Inner, Axis::Inner].map(|axis| vec![Dim::known(axis, 96)]));
    /// let graph = builder.finish(&[gate.into(), up.into()])?;
    /// assert!(graph.to_string().contains("linear(x v1) weight gate_up.weight[96..192]"));
    /// # Ok::<(), tilewright_graph::GraphErrors>(())
    /// ```
    pub fn project_parts<const N: usize>(
        &self,
        x: impl Into<Value<'b>>,
        module: &str,
        outs: [Vec<Dim>; N],
    ) -> [Projected<'b>; N] {
        let x = x.into();
        let contracted = x.kind().and_then(|kind| Shape::elements(&kind.shape.0[kind.shape.kept()..])).unwrap_or(0);
        let rows = outs.iter().map(|out| Shape::elements(out).unwrap_or(0)).fold(0, u64::saturating_add);
        let all = Weight::new(self.name(&format!("{module}.weight")), [rows, contracted]);
        let mut end = 0u64;
        outs.map(|out| {
            let start = end;
            end = start.saturating_add(Shape::elements(&out).unwrap_or(0));
            let rows = Some(Part::first(start..end));
            let weight = self.builder.weight(Weight { rows, ..all.clone() });
            Projected(self.one(x.id.map(|x| Op::Linear { x, weight, bias: None, out })))
        })
    }

    /// The axes of queries, keys and values.
    fn head_axes(&self) -> [Vec<Dim>; 3] {
        let Sizes { heads, kv_heads, head_dim, .. } = self.builder.sizes;
        let shared = Dim::known(Axis::KvHeads, kv_heads);
        [Dim::known(Axis::Heads, heads), shared.clone(), shared]
            .map(|heads| vec![heads, Dim::known(Axis::HeadDim, head_dim)])
    }

    /// Queries, keys and values of one activation, by three modules.
    pub fn linear_split(&self, x: impl Into<Value<'b>>, modules: [&str; 3]) -> [Projected<'b>; 3] {
        let x = x.into();
        let mut modules = modules.into_iter();
        self.head_axes().map(|out| self.project(x, modules.next().unwrap_or_default(), out))
    }

    /// Queries, keys and values of one activation, by one module that has the rows of all three.
    pub fn linear_fused(&self, x: impl Into<Value<'b>>, module: &str) -> [Projected<'b>; 3] {
        self.project_parts(x, module, self.head_axes())
    }

    /// Rotates queries and keys by the positions of their rows, in pairs of half a rotation apart.
    pub fn rope(&self, q: impl Into<Value<'b>>, k: impl Into<Value<'b>>, table: RopeId) -> [Value<'b>; 2] {
        self.rope_pairs(q, k, table, RopePairs::Halves)
    }

    /// Rotates queries and keys by the positions of their rows.
    pub fn rope_pairs(
        &self,
        q: impl Into<Value<'b>>,
        k: impl Into<Value<'b>>,
        table: RopeId,
        pairs: RopePairs,
    ) -> [Value<'b>; 2] {
        let at = self.builder.positions();
        [q.into(), k.into()].map(|x| self.one(x.id.zip(at.id).map(|(x, at)| Op::Rope { x, at, table, pairs })))
    }

    /// Appends keys and values to a new cache, and attends to it causally.
    pub fn attention(&self, q: impl Into<Value<'b>>, k: impl Into<Value<'b>>, v: impl Into<Value<'b>>) -> Attended<'b> {
        let q = q.into();
        let k = k.into();
        let v = v.into();
        let at = self.builder.positions();
        let cache = self.cache();
        let cached = k.id.zip(v.id).map(|(k, v)| self.op(Op::CacheAppend { k, v: Some(v), cache }));
        let Some([k, v]) = cached.as_deref() else { return Attended(self.one(None)) };
        let scale = (self.builder.sizes.head_dim as f64).powf(-0.5) as f32;
        Attended(self.one(q.id.zip(at.id).zip(k.id.zip(v.id)).map(|((q, at), (k, v))| Op::Attention {
            q,
            k,
            v,
            at,
            scale,
            soft_cap: None,
            window: None,
            sinks: None,
            causal: true,
        })))
    }

    /// A new cache.
    fn cache(&self) -> CacheId {
        let mut inner = self.builder.inner.borrow_mut();
        inner.caches += 1;
        CacheId::at(inner.caches - 1)
    }

    /// The same elements with other axes after `rows`.
    pub fn regroup(&self, x: impl Into<Value<'b>>, out: impl Into<Vec<Dim>>) -> Value<'b> {
        let out = out.into();
        self.one(x.into().id.map(|x| Op::Regroup { x, out }))
    }

    /// Convolution along the rows of a sequence, with a new cache of the last ones, by rows of a
    /// module's weight of `channels` elements from `start` on.
    pub fn convolve(&self, x: impl Into<Value<'b>>, module: &str, rows: ConvolvedRows) -> Value<'b> {
        let x = x.into();
        let ConvolvedRows { channels, start, taps } = rows;
        let size = x.kind().and_then(|kind| Shape::elements(&kind.shape.0[1..])).unwrap_or(0);
        let part = Part::first(start..start.saturating_add(size));
        let weight = self.weight_part(&format!("{module}.weight"), [channels, 1, taps], part);
        let cache = self.cache();
        self.one(x.id.map(|x| Op::Convolve { x, weight, cache }))
    }

    /// The gated delta rule with new states, whose decay has the weights `A_log` and `dt_bias` of a
    /// module.
    pub fn delta_rule(&self, operands: DeltaOperands<'b>, module: &str, eps: f32) -> Value<'b> {
        let DeltaOperands { q, k, v, a, b } = operands;
        let count = a.kind().and_then(|kind| Shape::elements(&kind.shape.0[1..])).unwrap_or(0);
        let [a_log, dt_bias] = ["A_log", "dt_bias"].map(|name| self.weight(&format!("{module}.{name}"), [count]));
        let cache = self.cache();
        let ids = q.id.zip(k.id).zip(v.id.zip(a.id).zip(b.id));
        self.one(ids.map(|((q, k), ((v, a), b))| Op::DeltaRule { q, k, v, a, b, a_log, dt_bias, eps, cache }))
    }

    /// An activation function, with or without a gate.
    pub fn activation(&self, kind: ActivationKind, x: impl Into<Value<'b>>, gate: Option<Value<'b>>) -> Value<'b> {
        let missing = gate.is_some_and(|gate| gate.id.is_none());
        let gate = gate.and_then(|gate| gate.id);
        self.one(x.into().id.filter(|_| !missing).map(|x| Op::Activation { x, gate, kind }))
    }

    /// The inside of a gated MLP: `f(gate(x)) * up(x)`.
    pub fn gated(&self, x: impl Into<Value<'b>>, modules: Gated<'_>) -> Value<'b> {
        self.gated_of(x, modules, self.builder.sizes.inner)
    }

    /// The inside of a gated MLP of a width of its own.
    pub fn gated_of(&self, x: impl Into<Value<'b>>, modules: Gated<'_>, inner: u64) -> Value<'b> {
        let x = x.into();
        let inner = Dim::known(Axis::Inner, inner);
        let [gate, up] =
            [modules.gate, modules.up].map(|module| self.project(x, module, [inner.clone()]).bias(modules.bias));
        self.activation(modules.kind, up, Some(gate))
    }

    /// The inside of a gated MLP whose module has the rows of the gate, then those of the other
    /// factor.
    pub fn gated_fused(&self, x: impl Into<Value<'b>>, module: &str, kind: ActivationKind) -> Value<'b> {
        let inner = || vec![Dim::known(Axis::Inner, self.builder.sizes.inner)];
        let [gate, up] = self.project_parts(x, module, [inner(), inner()]).map(Value::from);
        self.activation(kind, up, Some(gate))
    }

    /// A mixture of experts: the weighted sum of the chosen experts' gated MLPs.
    pub fn mixture(&self, x: impl Into<Value<'b>>, mixture: Mixture<'_>) -> Value<'b> {
        let x = x.into();
        let Mixture { experts, chosen, inner, .. } = mixture;
        let logits = self.project(x, mixture.router, [Dim::known(Axis::Experts, experts)]).bias(mixture.bias);
        let correction = mixture.correction.map(|tensor| self.weight(tensor, [experts]));
        let mut routed = self.route_by(logits, chosen, mixture.route, correction);
        if mixture.scale != 1.0 {
            routed.weights = self.scale(routed.weights, mixture.scale);
        }
        let out = Dim::known(Axis::Inner, inner);
        let linear = |x: Value<'b>, module: &str, out: Dim| {
            let contracted = x.kind().and_then(|kind| Shape::elements(&kind.shape.0[kind.shape.kept()..]));
            let shape = [out.size().unwrap_or(0), contracted.unwrap_or(0)];
            let weight = Weight::new(self.name(&format!("{module}.weight")), shape);
            let weight = self.builder.weight(Weight { experts: Some(experts), ..weight });
            let bias = mixture.bias.then(|| {
                let bias = Weight::new(self.name(&format!("{module}.bias")), [out.size().unwrap_or(0)]);
                self.builder.weight(Weight { experts: Some(experts), ..bias })
            });
            self.expert_linear(x, routed, ExpertWeights { weight, bias }, out)
        };
        let gate = linear(x, mixture.gate, out.clone());
        let up = linear(x, mixture.up, out);
        let active = self.activation(mixture.kind, up, Some(gate));
        let hidden = Dim::known(Axis::Hidden, self.builder.sizes.hidden);
        self.weighted_sum(linear(active, mixture.down, hidden), routed)
    }

    /// Chooses `k` experts for each row by a router's logits.
    pub fn route(&self, logits: impl Into<Value<'b>>, k: u32, kind: RouteKind) -> Routed<'b> {
        self.route_by(logits, k, kind, None)
    }

    fn route_by(
        &self,
        logits: impl Into<Value<'b>>,
        k: u32,
        kind: RouteKind,
        correction: Option<WeightId>,
    ) -> Routed<'b> {
        let values = logits.into().id.map(|logits| self.op(Op::Route { logits, k, kind, correction }));
        match values.as_deref() {
            Some(&[ids, weights]) => Routed { ids, weights },
            _ => Routed { ids: self.one(None), weights: self.one(None) },
        }
    }

    /// The product of each row with a weight and a bias of its chosen experts.
    pub fn expert_linear(
        &self,
        x: impl Into<Value<'b>>,
        routed: Routed<'b>,
        weights: ExpertWeights,
        out: Dim,
    ) -> Value<'b> {
        let ExpertWeights { weight: experts, bias } = weights;
        let operands = x.into().id.zip(routed.ids.id);
        self.one(operands.map(|(x, ids)| Op::ExpertLinear { x, experts, ids, bias, out: vec![out] }))
    }

    /// The sum of the chosen experts' results by the weights of the router.
    pub fn weighted_sum(&self, x: impl Into<Value<'b>>, routed: Routed<'b>) -> Value<'b> {
        self.one(x.into().id.zip(routed.weights.id).map(|(x, weights)| Op::WeightedSum { x, weights }))
    }

    /// Declares the part of a tensor of the block.
    pub fn weight_part(&self, tensor: &str, shape: impl Into<Vec<u64>>, part: Part) -> WeightId {
        self.builder.weight(Weight { rows: Some(part), ..Weight::new(self.name(tensor), shape) })
    }

    /// `a + b`.
    pub fn add(&self, a: impl Into<Value<'b>>, b: impl Into<Value<'b>>) -> Value<'b> {
        self.binary(BinaryKind::Add, a, b)
    }

    /// Adds an elementwise op on two values.
    pub fn binary(&self, kind: BinaryKind, a: impl Into<Value<'b>>, b: impl Into<Value<'b>>) -> Value<'b> {
        self.one(a.into().id.zip(b.into().id).map(|(a, b)| Op::Binary { a, b, kind }))
    }

    /// Parts of the last axis, one after the other.
    pub fn split<const N: usize>(&self, x: impl Into<Value<'b>>, sizes: [u64; N]) -> [Value<'b>; N] {
        let x = x.into();
        let mut end = 0u64;
        sizes.map(|size| {
            let start = end;
            end = start.saturating_add(size);
            self.one(x.id.map(|x| Op::Slice { x, start, size }))
        })
    }

    /// Two values along the last axis; an axis of `b` of extent 1 is repeated.
    pub fn concat(&self, a: impl Into<Value<'b>>, b: impl Into<Value<'b>>) -> Value<'b> {
        self.one(a.into().id.zip(b.into().id).map(|(a, b)| Op::Concat { a, b }))
    }

    /// `x` times a number.
    pub fn scale(&self, x: impl Into<Value<'b>>, by: f32) -> Value<'b> {
        self.one(x.into().id.map(|x| Op::Scale { x, by }))
    }

    /// `cap * tanh(x / cap)`, or `x` without a cap.
    pub fn soft_cap(&self, x: impl Into<Value<'b>>, cap: Option<f32>) -> Value<'b> {
        let x = x.into();
        match cap {
            Some(cap) => self.one(x.id.map(|x| Op::SoftCap { x, cap })),
            None => x,
        }
    }

    /// Scores of the vocabulary by the table of a module.
    pub fn logits(&self, x: impl Into<Value<'b>>, module: &str) -> Value<'b> {
        let Sizes { vocab, hidden, .. } = self.builder.sizes;
        let table = self.weight(&format!("{module}.weight"), [vocab, hidden]);
        self.one(x.into().id.map(|x| Op::Logits { x, table }))
    }

    /// The token with the largest score in each row.
    pub fn choose(&self, logits: impl Into<Value<'b>>) -> Value<'b> {
        self.one(logits.into().id.map(|logits| Op::Choose { logits }))
    }
}
