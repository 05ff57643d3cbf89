//! Types of an op's results, from those of its operands and weights.

use std::cell::RefCell;

use tilewright_layout::tensor::Format;

use crate::axis::{Axis, DType, Dim, Extent, Shape, Type};
use crate::dim::{InnerShape, Need};
use crate::error::Problem;
use crate::ids::{RopeId, ValueId, WeightId};
use crate::op::{ActivationKind, Op, RouteKind};
use crate::parts::{Body, Node, Parts, RopeTable, Weight};
use crate::rows::{Elementwise, ProductOp, Row, RowOp, RowProblem, RowShapes, Source, joined};

/// Largest product of extents: its bytes in f64 stay below 2^51.
pub(crate) const MOST_ELEMENTS: u64 = 1 << 48;

/// The inputs of type inference for an op.
#[derive(Clone, Copy)]
pub(crate) struct InferContext<'g> {
    pub parts: &'g Parts,
    /// Types of the values that earlier ops define.
    pub types: &'g [Type],
    /// The requirements of the ops on the model.
    pub needs: &'g RefCell<Vec<Need>>,
}

/// The weights of a product.
#[derive(Clone, Copy)]
struct ProductWeights {
    weight: WeightId,
    bias: Option<WeightId>,
}

/// The types of an op's results.
pub(crate) fn infer(op: &Op, cx: InferContext<'_>) -> Result<Vec<Type>, Problem> {
    attributes(op)?;
    Ok(match op {
        Op::Input { .. } => vec![Type::ids([Dim::symbol(Axis::Rows)])],
        Op::Embed { ids, table, .. } => vec![cx.embed(*ids, *table)?],
        Op::Norm { x, weight, bias, over, .. } => vec![cx.norm(*x, [*weight, *bias], over)?],
        Op::Linear { x, weight, bias, out } => {
            let x = cx.real("x", *x)?;
            vec![cx.product(x, &[], ProductWeights { weight: *weight, bias: *bias }, out)?]
        }
        Op::HeadLinear { .. } => vec![cx.head_linear(op)?],
        Op::Regroup { x, out } => vec![cx.regroup(*x, out)?],
        Op::Convolve { x, weight, .. } => vec![cx.convolve(*x, *weight)?],
        Op::DeltaRule { .. } => vec![cx.delta_rule(op)?],
        Op::Rope { x, at, table, .. } => vec![cx.rope(*x, *at, *table)?],
        Op::CacheAppend { k, v, .. } => cx.append(*k, *v)?,
        Op::Attention { .. } => vec![cx.attention(op)?],
        Op::Activation { x, gate, .. } => {
            let x = cx.real("x", *x)?;
            if let Some(gate) = gate {
                let gate = cx.real("gate", *gate)?;
                fits("gate", gate, ("`x`", x), gate == x, "a gate has the shape of what it multiplies")?;
            }
            vec![x.clone()]
        }
        Op::Binary { a, b, .. } => {
            let a = cx.real("a", *a)?;
            let b = cx.real("b", *b)?;
            let rule = "its axes are those of `a`, or the first of them, but for last axes of extent 1";
            let single = b.shape.0.iter().rev().take_while(|dim| dim.size() == Some(1)).count();
            let shared = &b.shape.0[..b.shape.0.len() - single];
            let holds = a.shape.0.starts_with(&b.shape.0) || a.shape.0.starts_with(shared);
            fits("b", b, ("`a`", a), holds && !shared.is_empty(), rule)?;
            vec![a.clone()]
        }
        Op::Scale { x, .. } | Op::SoftCap { x, .. } => vec![cx.real("x", *x)?.clone()],
        Op::Slice { x, start, size } => vec![cx.slice(*x, *start, *size)?],
        Op::Concat { a, b } => vec![cx.concat(*a, *b)?],
        Op::Route { .. } => cx.route(op)?,
        Op::ExpertLinear { x, experts, ids, bias, out } => {
            vec![cx.expert(*x, *ids, ProductWeights { weight: *experts, bias: *bias }, out)?]
        }
        Op::WeightedSum { x, weights } => vec![cx.weighted_sum(*x, *weights)?],
        Op::Logits { x, table } => {
            let kind = cx.rows("x", *x)?;
            let vocab = cx.weight("table", *table)?.dims().first().copied().unwrap_or(0);
            vec![cx.product(
                kind,
                &[],
                ProductWeights { weight: *table, bias: None },
                &[Dim::known(Axis::Vocab, vocab)],
            )?]
        }
        Op::Choose { logits } => {
            let kind = cx.rows("logits", *logits)?;
            let rule = "it has the axes rows and vocab, whose extent fits 32 bits";
            match kind.shape.0.as_slice() {
                [rows, vocab] if vocab.size().is_some_and(|size| size <= u64::from(u32::MAX)) => {
                    vec![Type::ids([rows.clone()])]
                }
                _ => return Err(operand("logits", kind, rule)),
            }
        }
        Op::Load { from } => vec![cx.source("from", *from)?.to_type()],
        Op::Fill { field, .. } => vec![cx.source("field", Source::Field(*field))?.to_type()],
        Op::Select { .. } => vec![cx.row_op(op)?.to_ids()],
        Op::Elementwise { .. } | Op::Reduce { .. } | Op::Product { .. } => vec![cx.row_op(op)?.to_type()],
        Op::Rearrange { .. } | Op::OverBlocks { .. } | Op::Store { .. } => vec![cx.row_op(op)?.to_type()],
    })
}

impl Parts {
    /// Adds an op with the results that it gives, and tells what it asks of the model.
    ///
    /// ```
    /// use tilewright_graph::{graph::Parts, op::Op, rows::{Elementwise, Source, Unary}};
    /// let mut parts = Parts::default();
    /// let (query, _) = parts.push(Op::Load { from: Source::Query })?;
    /// let function = Elementwise::Unary(Unary::Abs);
    /// let (abs, _) = parts.push(Op::Elementwise { x: query, y: None, function })?;
    /// assert_eq!(parts.nodes[abs.index()].results, parts.nodes[query.index()].results);
    /// # Ok::<(), tilewright_graph::Problem>(())
    /// ```
    ///
    /// # Errors
    /// What the op breaks; nothing is added then.
    pub fn push(&mut self, op: Op) -> Result<(ValueId, Vec<Need>), Problem> {
        let types: Vec<Type> = self.nodes.iter().flat_map(|node| node.results.iter().cloned()).collect();
        let needs = RefCell::default();
        let results = infer(&op, InferContext { parts: self, types: &types, needs: &needs })?;
        self.nodes.push(Node { body: Body::Single(op), results });
        Ok((ValueId::at(types.len()), needs.into_inner()))
    }
}

fn operand(operand: &'static str, found: &Type, rule: &'static str) -> Problem {
    Problem::Operand { operand, found: found.to_string(), rule }
}

fn mismatch(operand: &'static str, found: &Type, other: (&str, String), rule: &'static str) -> Problem {
    let (other, expected) = (other.0.to_owned(), other.1);
    Problem::Mismatch { operand, found: found.to_string(), other, expected, rule }
}

fn fits(
    name: &'static str,
    found: &Type,
    other: (&str, &Type),
    holds: bool,
    rule: &'static str,
) -> Result<(), Problem> {
    if holds { Ok(()) } else { Err(mismatch(name, found, (other.0, other.1.to_string()), rule)) }
}

/// Holds numbers of an op against what they may be.
fn attributes(op: &Op) -> Result<(), Problem> {
    let check = |attribute, value: f32, holds: bool, rule| {
        if holds { Ok(()) } else { Err(Problem::Attribute { attribute, value: value.to_string(), rule }) }
    };
    let finite = |attribute, value: f32| check(attribute, value, value.is_finite(), "a finite number");
    let above = |attribute, value: f32| {
        let holds = value.is_finite() && value > 0.0;
        check(attribute, value, holds, "a finite number greater than 0")
    };
    let given = |attribute, is_given: bool, is_wanted: bool, rule| {
        let value = if is_given { "given" } else { "absent" }.to_owned();
        if is_given == is_wanted { Ok(()) } else { Err(Problem::Attribute { attribute, value, rule }) }
    };
    match op {
        Op::Embed { scale, .. } => finite("scale", *scale),
        Op::Scale { by, .. } => finite("by", *by),
        Op::SoftCap { cap, .. } => above("cap", *cap),
        Op::Norm { eps, .. } => above("eps", *eps),
        Op::Attention { scale, soft_cap, window, .. } => {
            finite("scale", *scale)?;
            soft_cap.map_or(Ok(()), |cap| above("soft_cap", cap))?;
            let rule = "at least 1 position, or absent";
            check("window", 0.0, *window != Some(0), rule)
        }
        Op::Activation { kind: ActivationKind::ClampedSwiglu { alpha, limit }, gate, .. } => {
            finite("alpha", *alpha)?;
            above("limit", *limit)?;
            let attribute = "gate";
            let value = "absent".to_owned();
            let rule = "given for clamped_swiglu";
            gate.map_or(Err(Problem::Attribute { attribute, value, rule }), |_| Ok(()))
        }
        Op::Input { .. } | Op::Linear { .. } | Op::Rope { .. } | Op::CacheAppend { .. } => Ok(()),
        Op::HeadLinear { .. } | Op::Regroup { .. } | Op::Convolve { .. } | Op::DeltaRule { .. } => Ok(()),
        Op::Activation { .. } | Op::Binary { .. } | Op::Route { .. } | Op::ExpertLinear { .. } => Ok(()),
        Op::WeightedSum { .. } | Op::Logits { .. } | Op::Choose { .. } | Op::Slice { .. } | Op::Concat { .. } => Ok(()),
        Op::Elementwise { y, function, .. } => {
            let is_wanted = matches!(function, Elementwise::Binary(_));
            given("y", y.is_some(), is_wanted, "given for functions of two operands, and for no other")
        }
        Op::Product { z, product, .. } => {
            let is_wanted = matches!(product, ProductOp::LearnedQuery(_));
            given("z", z.is_some(), is_wanted, "given for learned_query, and for no other product")
        }
        Op::OverBlocks { over: RowOp::Conv1d(taps), .. } => {
            let attribute = "weights";
            let value = taps.to_string();
            let rule = "as many numbers as the product of their extents, and at least 1";
            if taps.is_whole() { Ok(()) } else { Err(Problem::Attribute { attribute, value, rule }) }
        }
        Op::Load { .. } | Op::Fill { .. } | Op::Reduce { .. } | Op::Rearrange { .. } => Ok(()),
        Op::OverBlocks { .. } | Op::Store { .. } | Op::Select { .. } => Ok(()),
    }
}

impl<'g> InferContext<'g> {
    fn value(self, operand: &'static str, id: ValueId) -> Result<&'g Type, Problem> {
        self.types.get(id.index()).ok_or_else(|| Problem::Undefined { operand, value: id.to_string() })
    }

    fn real(self, name: &'static str, id: ValueId) -> Result<&'g Type, Problem> {
        let found = self.value(name, id)?;
        if found.dtype == DType::F32 { Ok(found) } else { Err(operand(name, found, "it must be of real numbers")) }
    }

    /// A value of real numbers whose first axis is `rows`.
    fn rows(self, name: &'static str, id: ValueId) -> Result<&'g Type, Problem> {
        let found = self.real(name, id)?;
        let is_rows = found.shape.0.first().is_some_and(|dim| dim.axis == Axis::Rows);
        if is_rows { Ok(found) } else { Err(operand(name, found, "its first axis must be rows")) }
    }

    /// Ids with one number for each row of `x`.
    fn row_ids(self, name: &'static str, id: ValueId, x: (&str, &Type)) -> Result<(), Problem> {
        let found = self.value(name, id)?;
        let is_ids = found.dtype == DType::U32 && found.shape.0.len() == 1;
        let holds = is_ids && found.shape.0.first() == x.1.shape.0.first();
        fits(name, found, x, holds, "it must have one id for each row")
    }

    fn weight(self, role: &'static str, id: WeightId) -> Result<&'g Weight, Problem> {
        let weights = &self.parts.weights;
        weights.get(id.index()).ok_or_else(|| Problem::Undeclared { role, index: id.to_string(), count: weights.len() })
    }

    /// A weight whose shape follows from an operand.
    fn fitting(
        self,
        role: &'static str,
        id: WeightId,
        x: (&'static str, &Type),
        expected: &[Option<u64>],
        rule: &'static str,
    ) -> Result<(), Problem> {
        let weight = self.weight(role, id)?;
        let dims = weight.dims();
        let same = |(dim, expected): (&u64, &Option<u64>)| *expected == Some(*dim);
        if dims.len() == expected.len() && dims.iter().zip(expected).all(same) {
            return Ok(());
        }
        let other = format!("{role} `{}`", weight.tensor.escape_debug());
        Err(mismatch(x.0, x.1, (&other, format!("{dims:?}")), rule))
    }

    /// The rows of a source.
    fn source(self, role: &'static str, source: Source) -> Result<Row, Problem> {
        let memory = &self.parts.memory;
        let count = memory.fields.len() + memory.states.len() + memory.parameters.len();
        let undeclared = || Problem::Undeclared { role, index: format!("{source:?}"), count };
        memory.row(source).ok_or_else(undeclared)
    }

    /// The rows that an op on rows gives.
    fn row_op(self, op: &Op) -> Result<Row, Problem> {
        let mut rows = Vec::new();
        for (name, id) in op.operands() {
            let kind = self.real(name, id)?;
            rows.push(Row::of(kind).ok_or_else(|| operand(name, kind, "it must have rows [d0, d1]"))?);
        }
        let takes = |holds: &dyn Fn(Format) -> bool, rule| {
            let first = rows.first().map(|row| row.format);
            if first.is_some_and(holds) { Ok(()) } else { Err(operand("x", &rows[0].to_type(), rule)) }
        };
        let shapes: Vec<InnerShape> = rows.iter().map(|row| row.shape).collect();
        let shapes = RowShapes { operands: &shapes, needs: self.needs };
        let mut format = joined(rows.iter().map(|row| row.format));
        let shape = match op {
            Op::Elementwise { function, .. } => shapes.elementwise(*function)?,
            Op::Reduce { reduction, .. } => shapes.reduction(*reduction)?,
            Op::Product { product, .. } => shapes.product(*product)?,
            Op::Rearrange { to, .. } => shapes.rearrange(*to)?,
            Op::OverBlocks { over, .. } => {
                takes(&|format| format == Format::Ragged, "it must have a row for each candidate block")?;
                format = if matches!(over, RowOp::Reduce(_)) { Format::Batched } else { Format::Ragged };
                shapes.row(over)?
            }
            Op::Select { .. } => {
                takes(&|format| format == Format::Ragged, "it must have a row for each candidate block")?;
                shapes.exactly(InnerShape::SCORE, "a selection takes one number a block; reduce D0 and D1")?
            }
            Op::Store { to, .. } => {
                let declared = self.source("to", *to)?;
                let rule = match to {
                    Source::State(_) => "a state is saved in its declared shape",
                    Source::Field(_) => "a field is stored in its declared shape",
                    Source::Query | Source::Keys | Source::Values | Source::Positions | Source::Parameter(_) => {
                        let value = to.name().to_owned();
                        return Err(Problem::Attribute { attribute: "to", value, rule: "a field or a state" });
                    }
                };
                let is_state = declared.format == Format::Ragged;
                let fits = |format| format == Format::Ragged || (!is_state && format != Format::Parameter);
                takes(&fits, "it must have a row for each block")?;
                format = declared.format;
                shapes.exactly(declared.shape, rule)?
            }
            // Not ops on rows.
            _ => InnerShape::SCORE,
        };
        if shape.0.iter().all(|dim| dim.is_valid()) && shape.elements().is_valid() {
            Ok(Row { format, shape })
        } else {
            Err(RowProblem::Extent { shape }.into())
        }
    }

    fn embed(self, ids: ValueId, table: WeightId) -> Result<Type, Problem> {
        let found = self.value("ids", ids)?;
        let dims = self.weight("table", table)?.dims();
        match (found.shape.0.as_slice(), found.dtype, dims.as_slice()) {
            ([rows], DType::U32, [_, hidden]) => Ok(Type::real([rows.clone(), Dim::known(Axis::Hidden, *hidden)])),
            _ => Err(mismatch("ids", found, ("table", format!("{dims:?}")), "ids have one axis, a table has two")),
        }
    }

    fn norm(self, x: ValueId, weights: [Option<WeightId>; 2], over: &[Axis]) -> Result<Type, Problem> {
        let kind = self.real("x", x)?;
        let dims = &kind.shape.0;
        let start = dims.len().saturating_sub(over.len());
        if over.is_empty() || start == 0 || !dims[start..].iter().map(|dim| &dim.axis).eq(over) {
            return Err(operand(
                "x",
                kind,
                "the normalised axes must be its last ones, and others must be before them",
            ));
        }
        let size = sized("x", kind, &dims[start..])?;
        let rule = "the weight must have one element for each of the normalised axes";
        for (role, weight) in ["weight", "bias"].into_iter().zip(weights) {
            weight.map_or(Ok(()), |weight| self.fitting(role, weight, ("x", kind), &[Some(size)], rule))?;
        }
        Ok(kind.clone())
    }

    /// The product of `x` with a weight whose leading axes are `leading`.
    fn product(self, x: &Type, leading: &[u64], weights: ProductWeights, out: &[Dim]) -> Result<Type, Problem> {
        let ProductWeights { weight, bias } = weights;
        let dims = &x.shape.0;
        let kept = x.shape.kept();
        let invalid = |dim: &Dim| dim.axis.is_kept() || dim.axis == Axis::Positions || dim.size().is_none();
        let produced = Shape::elements(out).filter(|size| (1..=MOST_ELEMENTS).contains(size));
        let Some(produced) = produced.filter(|_| !out.is_empty() && !out.iter().any(invalid)) else {
            let rule = "axes of known extents, none of them rows, positions or chosen";
            let attribute = "out";
            let value = Shape(out.to_vec()).to_string();
            return Err(Problem::Attribute { attribute, value, rule });
        };
        if kept == 0 || kept == dims.len() {
            return Err(operand("x", x, "it must have rows and an axis that the product contracts"));
        }
        let contracted = sized("x", x, &dims[kept..])?;
        let mut expected: Vec<Option<u64>> = leading.iter().map(|size| Some(*size)).collect();
        expected.push(Some(produced));
        if let Some(bias) = bias {
            self.fitting("bias", bias, ("x", x), &expected, "a bias has one element for each output")?;
        }
        expected.push(Some(contracted));
        let rule = "a weight is outputs by contracted elements of `x`";
        self.fitting("weight", weight, ("x", x), &expected, rule)?;
        Ok(Type::real(dims[..kept].iter().chain(out).cloned()))
    }

    fn rope(self, x: ValueId, at: ValueId, table: RopeId) -> Result<Type, Problem> {
        let kind = self.rows("x", x)?;
        self.row_ids("at", at, ("`x`", kind))?;
        let ropes = &self.parts.ropes;
        let index = table.to_string();
        let count = ropes.len();
        let table: &RopeTable = ropes.get(table.index()).ok_or(Problem::Undeclared { role: "table", index, count })?;
        let last = kind.shape.0.last().filter(|_| kind.shape.0.len() > 1).and_then(Dim::size).unwrap_or(0);
        if last < table.rotated() as u64 {
            let expected = format!("that rotates {} dimensions", table.rotated());
            return Err(mismatch("x", kind, ("table", expected), "the last axis must have as many dimensions"));
        }
        Ok(kind.clone())
    }

    fn append(self, k: ValueId, v: Option<ValueId>) -> Result<Vec<Type>, Problem> {
        let keys = self.rows("k", k)?;
        let values = v.map(|v| self.rows("v", v)).transpose()?;
        let rule = "it has the axes rows, heads, dimensions, the last two of known extents";
        let mut all = Vec::new();
        for (name, kind) in [("k", Some(keys)), ("v", values)] {
            let Some(kind) = kind else { continue };
            let [_, heads, dims] = kind.shape.0.as_slice() else { return Err(operand(name, kind, rule)) };
            if heads.size().is_none() || dims.size().is_none() {
                return Err(operand(name, kind, rule));
            }
            let rest = [heads, dims].into_iter().cloned();
            all.push(Type::real(std::iter::once(Dim::symbol(Axis::Positions)).chain(rest)));
        }
        if let Some(values) = values {
            let same = keys.shape.0[..2] == values.shape.0[..2];
            fits("v", values, ("`k`", keys), same, "keys and values have equal rows and heads")?;
        }
        Ok(all)
    }

    fn regroup(self, x: ValueId, out: &[Dim]) -> Result<Type, Problem> {
        let kind = self.rows("x", x)?;
        let elements = sized("x", kind, &kind.shape.0[1..])?;
        let invalid = |dim: &Dim| dim.axis.is_kept() || dim.axis == Axis::Positions || dim.size().is_none();
        if out.is_empty() || out.iter().any(invalid) || Shape::elements(out) != Some(elements) {
            let rule = "axes of known extents with as many elements, none of them rows, positions or chosen";
            return Err(Problem::Attribute { attribute: "out", value: Shape(out.to_vec()).to_string(), rule });
        }
        Ok(Type::real(std::iter::once(&kind.shape.0[0]).chain(out).cloned()))
    }

    fn convolve(self, x: ValueId, weight: WeightId) -> Result<Type, Problem> {
        let kind = self.rows("x", x)?;
        let elements = sized("x", kind, &kind.shape.0[1..])?;
        let taps = match self.weight("weight", weight)?.dims()[..] {
            [_, _, taps] => Some(taps),
            _ => None,
        };
        let rule = "a weight is elements of a row, by 1, by taps";
        self.fitting("weight", weight, ("x", kind), &[Some(elements), Some(1), taps], rule)?;
        Ok(kind.clone())
    }

    fn delta_rule(self, op: &Op) -> Result<Type, Problem> {
        let &Op::DeltaRule { q, k, v, a, b, a_log, dt_bias, .. } = op else { return Ok(Type::real([])) };
        let rule = "it has the axes rows, heads, dimensions, the last two of known extents";
        let heads = |name: &'static str, id: ValueId| -> Result<(&'g Type, [u64; 2]), Problem> {
            let kind = self.rows(name, id)?;
            let [_, heads, dims] = kind.shape.0.as_slice() else { return Err(operand(name, kind, rule)) };
            match (heads.size(), dims.size()) {
                (Some(heads), Some(dims)) if heads > 0 && dims > 0 => Ok((kind, [heads, dims])),
                _ => Err(operand(name, kind, rule)),
            }
        };
        let (queries, _) = heads("q", q)?;
        let (keys, [count, _]) = heads("k", k)?;
        fits("k", keys, ("`q`", queries), keys == queries, "keys have the shape of queries")?;
        let (values, [of_values, dims]) = heads("v", v)?;
        let (rates, [of_rates, each]) = heads("a", a)?;
        let (gates, _) = heads("b", b)?;
        fits("b", gates, ("`a`", rates), gates == rates, "both have a number for each head of values")?;
        let alike = values.shape.0[0] == keys.shape.0[0] && rates.shape.0[0] == keys.shape.0[0];
        let holds = alike && of_values == count && of_rates == count && dims.is_multiple_of(each);
        fits(
            "v",
            values,
            ("`k`", keys),
            holds,
            "each head of keys has whole heads of values, as many as `a` has numbers",
        )?;
        for (role, weight) in [("a_log", a_log), ("dt_bias", dt_bias)] {
            let all = count.checked_mul(each);
            self.fitting(role, weight, ("a", rates), &[all], "a weight has a number for each head of values")?;
        }
        Ok(values.clone())
    }

    fn head_linear(self, op: &Op) -> Result<Type, Problem> {
        let &Op::HeadLinear { x, weight, each, start, size, transposed } = op else { return Ok(Type::real([])) };
        let kind = self.rows("x", x)?;
        let rule = "it has the axes rows, heads, dimensions, the last two of known extents";
        let [rows, heads, dims] = kind.shape.0.as_slice() else { return Err(operand("x", kind, rule)) };
        let (Some(count), Some(own)) = (heads.size(), dims.size()) else { return Err(operand("x", kind, rule)) };
        let end = start.checked_add(size).filter(|end| size > 0 && *end <= each);
        let Some(all) = end.and_then(|_| count.checked_mul(each)) else {
            let value = format!("{start}..{}", start.saturating_add(size));
            return Err(Problem::Attribute { attribute: "start", value, rule: "a part of the rows of a head" });
        };
        let columns = match (&self.weight("weight", weight)?.dims()[..], transposed) {
            (&[_, columns], true) => columns,
            (_, _) => own,
        };
        let rule = "a weight is the rows of all heads by columns";
        self.fitting("weight", weight, ("x", kind), &[Some(all), Some(columns)], rule)?;
        if transposed && own != size {
            return Err(operand("x", kind, "it has an element for each row that the sum runs over"));
        }
        let made = Dim::known(dims.axis.clone(), if transposed { columns } else { size });
        Ok(Type::real([rows.clone(), heads.clone(), made]))
    }

    fn attention(self, op: &Op) -> Result<Type, Problem> {
        let Op::Attention { q, k, v, at, sinks, .. } = op else { return Ok(Type::real([])) };
        let queries = self.rows("q", *q)?;
        let keys = self.real("k", *k)?;
        let values = self.real("v", *v)?;
        self.row_ids("at", *at, ("`q`", queries))?;
        let rule = "it has the axes positions, heads, dimensions, the last two of known extents";
        let cached = |name, kind: &Type| match kind.shape.0.as_slice() {
            [Dim { axis: Axis::Positions, extent: Extent::Symbol(_) }, heads, dims] => {
                heads.size().zip(dims.size()).ok_or_else(|| operand(name, kind, rule))
            }
            _ => Err(operand(name, kind, rule)),
        };
        let ((groups, key_dims), _) = (cached("k", keys)?, cached("v", values)?);
        let same = keys.shape.0[..2] == values.shape.0[..2];
        fits("v", values, ("`k`", keys), same, "keys and values have equal positions and heads")?;
        let rule = "queries have the dimensions of keys, and a multiple of their heads";
        let [rows, heads, dims] = queries.shape.0.as_slice() else {
            return Err(mismatch("q", queries, ("`k`", keys.to_string()), rule));
        };
        let shared = heads.size().is_some_and(|heads| heads > 0 && groups > 0 && heads.is_multiple_of(groups));
        fits("q", queries, ("`k`", keys), shared && dims.size() == Some(key_dims), rule)?;
        if let Some(sinks) = sinks {
            self.fitting("sinks", *sinks, ("q", queries), &[heads.size()], "a sink is one score for each head")?;
        }
        Ok(Type::real([rows.clone(), heads.clone(), values.shape.0[2].clone()]))
    }

    fn route(self, op: &Op) -> Result<Vec<Type>, Problem> {
        let &Op::Route { logits, k, kind: route, correction } = op else { return Ok(Vec::new()) };
        let kind = self.rows("logits", logits)?;
        let rule = "it has the axes rows and experts, and at least as many experts as are chosen";
        let (rows, experts) = match kind.shape.0.as_slice() {
            [rows, Dim { axis: Axis::Experts, extent: Extent::Known(experts) }]
                if (1..=*experts).contains(&k.into()) =>
            {
                (rows, *experts)
            }
            _ => return Err(operand("logits", kind, rule)),
        };
        if let Some(correction) = correction {
            if !matches!(route, RouteKind::SigmoidInGroups { .. }) {
                let value = correction.to_string();
                let rule = "absent but for sigmoid_in_groups";
                return Err(Problem::Attribute { attribute: "correction", value, rule });
            }
            let rule = "a correction has a number for each expert";
            self.fitting("correction", correction, ("logits", kind), &[Some(experts)], rule)?;
        }
        if let RouteKind::SoftmaxInGroups { groups, kept } | RouteKind::SigmoidInGroups { groups, kept, .. } = route {
            let (count, left) = (u64::from(groups), u64::from(kept));
            let each = experts.checked_div(count).unwrap_or(0);
            let is_whole = each > 0 && experts.is_multiple_of(count);
            if !is_whole || !(1..=count).contains(&left) || each * left < u64::from(k) {
                let value = format!("{groups} of which {kept} are kept");
                let rule = "groups of one size, of which as many are kept as have the chosen experts";
                return Err(Problem::Attribute { attribute: "groups", value, rule });
            }
        }
        let chosen = [rows.clone(), Dim::known(Axis::Chosen, k.into())];
        Ok(vec![Type::ids(chosen.clone()), Type::real(chosen)])
    }

    fn slice(self, x: ValueId, start: u64, size: u64) -> Result<Type, Problem> {
        let kind = self.real("x", x)?;
        let rule = "its last axis, of known extent, has the part";
        let Some((last, before)) = kind.shape.0.split_last().filter(|(_, before)| !before.is_empty()) else {
            return Err(operand("x", kind, rule));
        };
        let end = start.checked_add(size);
        if size == 0 || last.size().is_none_or(|extent| end.is_none_or(|end| end > extent)) {
            return Err(operand("x", kind, rule));
        }
        let dims = before.iter().cloned().chain([Dim::known(last.axis.clone(), size)]);
        Ok(Type::real(dims.collect::<Vec<Dim>>()))
    }

    fn concat(self, a: ValueId, b: ValueId) -> Result<Type, Problem> {
        let a = self.rows("a", a)?;
        let b = self.rows("b", b)?;
        let rule = "its axes are those of `a`, of one extent or 1, and their last ones have known extents";
        let (Some((last, before)), Some((other, others))) = (a.shape.0.split_last(), b.shape.0.split_last()) else {
            return Err(mismatch("b", b, ("`a`", a.to_string()), rule));
        };
        let fits_axis = |(a, b): (&Dim, &Dim)| a == b || (a.axis == b.axis && b.size() == Some(1));
        let holds = before.len() == others.len()
            && !before.is_empty()
            && before.iter().zip(others).all(fits_axis)
            && last.axis == other.axis;
        match (last.size(), other.size()) {
            (Some(first), Some(second)) if holds => {
                let size = first.checked_add(second).filter(|size| *size <= MOST_ELEMENTS);
                let size = size.ok_or_else(|| mismatch("b", b, ("`a`", a.to_string()), rule))?;
                let dims = before.iter().cloned().chain([Dim::known(last.axis.clone(), size)]);
                Ok(Type::real(dims.collect::<Vec<Dim>>()))
            }
            _ => Err(mismatch("b", b, ("`a`", a.to_string()), rule)),
        }
    }

    fn expert(self, x: ValueId, ids: ValueId, weights: ProductWeights, out: &[Dim]) -> Result<Type, Problem> {
        let kind = self.rows("x", x)?;
        let chosen = self.value("ids", ids)?;
        let is_chosen = chosen.dtype == DType::U32
            && matches!(chosen.shape.0.as_slice(), [_, Dim { axis: Axis::Chosen, extent: Extent::Known(_) }]);
        let rule = "ids have the axes rows and chosen, and `x` has equal ones where it has them";
        let kept = kind.shape.kept();
        let holds = is_chosen && kept <= 2 && chosen.shape.0[..kept.min(2)] == kind.shape.0[..kept];
        fits("ids", chosen, ("`x`", kind), holds, rule)?;
        let experts = self.weight("experts", weights.weight)?.dims().first().copied().unwrap_or(0);
        let product = self.product(kind, &[experts], weights, out)?;
        Ok(Type::real(chosen.shape.0.iter().cloned().chain(product.shape.0.into_iter().skip(kept))))
    }

    fn weighted_sum(self, x: ValueId, weights: ValueId) -> Result<Type, Problem> {
        let kind = self.rows("x", x)?;
        let weights = self.rows("weights", weights)?;
        let is_chosen = weights.shape.0.len() == 2 && weights.shape.0[1].axis == Axis::Chosen;
        let holds = is_chosen && kind.shape.0.len() > 2 && kind.shape.0.starts_with(&weights.shape.0);
        fits("weights", weights, ("`x`", kind), holds, "weights are rows by chosen, the first axes of `x`")?;
        let rows = kind.shape.0[0].clone();
        let rest = kind.shape.0[2..].iter().cloned();
        Ok(Type::real(std::iter::once(rows).chain(rest)))
    }
}

/// The product of known extents.
fn sized(name: &'static str, kind: &Type, dims: &[Dim]) -> Result<u64, Problem> {
    let size = Shape::elements(dims).filter(|size| (1..=MOST_ELEMENTS).contains(size));
    size.ok_or_else(|| operand(name, kind, "the product of these extents must be known, and 1 to 2^48"))
}
