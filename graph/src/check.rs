//! The validity of a graph. One pass over the declarations, one over the ops.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use crate::axis::Type;
use crate::dim::InnerShape;
use crate::error::{GraphError, GraphErrors, Problem};
use crate::ids::{CacheId, ValueId};
use crate::infer::{InferContext, MOST_ELEMENTS, infer};
use crate::op::Op;
use crate::parts::{Body, EXPERT, Parts, RopeTable, Step, Weight, steps};
use crate::rows::{RowProblem, Source};
use crate::text::OpText;

/// Most experts of a weight that has a tensor for each.
const MOST_EXPERTS: u64 = 1 << 16;

/// Lists all errors of the parts of a graph.
pub(crate) fn check(parts: &Parts) -> Vec<GraphError> {
    let mut errors = Vec::new();
    let mut note = |at: String, result: Result<(), Problem>| {
        if let (Err(problem), true) = (result, errors.len() < GraphErrors::LIMIT) {
            errors.push(GraphError { at, problem });
        }
    };
    for (place, declared) in parts.weights.iter().enumerate() {
        note(format!("weight w{place} `{}`", declared.tensor.escape_debug()), weight(declared));
    }
    for (place, table) in parts.ropes.iter().enumerate() {
        note(format!("table rope{place}"), rope(table));
    }
    let memory = &parts.memory;
    for (noun, shapes) in [("field", &memory.fields), ("state", &memory.states), ("parameter", &memory.parameters)] {
        for (place, shape) in shapes.iter().enumerate() {
            note(format!("{noun} {place}"), declared(*shape));
        }
    }
    for (place, node) in parts.nodes.iter().enumerate() {
        note(format!("node {place}"), counts(&node.body, &node.results));
    }
    if !errors.is_empty() {
        return errors;
    }
    ops(parts)
}

fn attribute(attribute: &'static str, value: String, rule: &'static str) -> Problem {
    Problem::Attribute { attribute, value, rule }
}

fn weight(weight: &Weight) -> Result<(), Problem> {
    let is_numbered = weight.tensor.contains(EXPERT);
    let fits = match weight.experts {
        Some(1) => true,
        experts => is_numbered == experts.is_some(),
    };
    if weight.tensor.is_empty() || !fits {
        let rule = "a tensor's name, with {expert} in it exactly where there is a tensor for each expert";
        return Err(attribute("tensor", format!("`{}`", weight.tensor.escape_debug()), rule));
    }
    if weight.experts.is_some_and(|count| !(1..=MOST_EXPERTS).contains(&count)) {
        return Err(attribute("experts", format!("{:?}", weight.experts), "1 to 65536, or absent"));
    }
    if let Some(part) = weight.rows {
        let extent = weight.shape.get(part.axis);
        if part.step == 0 || part.is_empty() || extent.is_none_or(|extent| part.end > *extent) {
            let value = format!("{part} of {:?}", weight.shape);
            return Err(attribute("rows", value, "a part of one axis that is not empty, with a step of at least 1"));
        }
    }
    if let Some(order) = weight.order {
        let rows = weight.rows.map_or_else(|| weight.shape.first().copied().unwrap_or(0), |part| part.len());
        let is_of_rows = weight.experts.is_none() && weight.rows.is_none_or(|part| part.axis == 0);
        if !(is_of_rows && order.is_valid_for(rows)) {
            let rule = "even numbers, no more that rotate than a head has, of whole heads on the first axis";
            return Err(attribute("order", format!("{order} of {rows} rows"), rule));
        }
    }
    if !weight.factor.is_normal() {
        return Err(attribute("factor", weight.factor.to_string(), "a finite number other than 0"));
    }
    if !weight.offset.is_finite() {
        return Err(attribute("offset", weight.offset.to_string(), "a finite number"));
    }
    let all = weight.shape.iter().chain(&weight.experts);
    let elements = all.clone().try_fold(1u64, |product, extent| product.checked_mul(*extent));
    if weight.shape.is_empty() || elements.is_none_or(|elements| !(1..=MOST_ELEMENTS).contains(&elements)) {
        let rule = "extents of at least 1 with a product of at most 2^48";
        return Err(attribute("shape", format!("{:?}", all.collect::<Vec<_>>()), rule));
    }
    Ok(())
}

fn rope(table: &RopeTable) -> Result<(), Problem> {
    let numbers = table.frequencies.iter().chain([&table.scale]);
    match numbers.clone().find(|number| !number.is_finite()) {
        Some(number) => Err(attribute("frequencies", number.to_string(), "finite numbers")),
        None => Ok(()),
    }
}

fn declared(shape: InnerShape) -> Result<(), Problem> {
    let is_reduced = shape.0.iter().all(|dim| dim.is_reduced()) && shape.elements().is_valid();
    if is_reduced { Ok(()) } else { Err(RowProblem::Extent { shape }.into()) }
}

/// A node states a type for each result.
fn counts(body: &Body, results: &[Type]) -> Result<(), Problem> {
    let expected: usize = body.ops().map(Op::results).sum();
    if results.len() == expected {
        return Ok(());
    }
    Err(Problem::Results { found: format!("{} values", results.len()), expected: format!("{expected}") })
}

/// The state of the check: the ops so far.
struct Ops<'g> {
    parts: &'g Parts,
    types: Vec<Type>,
    /// The node of each value.
    nodes: Vec<usize>,
    appended: HashSet<CacheId>,
    stored: HashSet<Source>,
    /// Outputs of the groups, by node.
    outputs: HashMap<usize, &'g [ValueId]>,
}

fn ops(parts: &Parts) -> Vec<GraphError> {
    let fused = parts.nodes.iter().enumerate().filter_map(|(place, node)| match &node.body {
        Body::Fused(fused) => Some((place, fused.outputs.as_slice())),
        Body::Single(_) => None,
    });
    let mut state = Ops {
        parts,
        types: Vec::new(),
        nodes: Vec::new(),
        appended: HashSet::new(),
        stored: HashSet::new(),
        outputs: fused.collect(),
    };
    let mut errors = Vec::new();
    for step in steps(parts) {
        if let Err(problem) = state.step(&step) {
            errors.push(GraphError { at: OpText::new(parts, &step).to_string(), problem });
        }
        state.types.extend_from_slice(step.results);
        state.nodes.resize(state.types.len(), step.node);
        if errors.len() >= GraphErrors::LIMIT {
            return errors;
        }
    }
    let groups = state.outputs.iter().flat_map(|(&node, outputs)| outputs.iter().map(move |id| (Some(node), *id)));
    for (node, id) in groups.chain(parts.outputs.iter().map(|id| (None, *id))) {
        if let Err(problem) = state.output(node, id) {
            let at = node.map_or("outputs".to_owned(), |node| format!("outputs of node {node}"));
            errors.push(GraphError { at, problem });
        }
    }
    errors.truncate(GraphErrors::LIMIT);
    errors
}

impl Ops<'_> {
    fn step(&mut self, step: &Step<'_>) -> Result<(), Problem> {
        let needs = RefCell::default();
        let expected = infer(step.op, InferContext { parts: self.parts, types: &self.types, needs: &needs })?;
        if expected != step.results {
            let text = |types: &[Type]| types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
            return Err(Problem::Results { found: text(step.results), expected: text(&expected) });
        }
        for (operand, id) in step.op.operands() {
            if self.is_inside(Some(step.node), id) {
                return Err(Problem::Inside { operand, value: id.to_string() });
            }
        }
        match step.op {
            Op::CacheAppend { cache, .. } | Op::Convolve { cache, .. } | Op::DeltaRule { cache, .. }
                if !self.appended.insert(*cache) =>
            {
                Err(Problem::Appended { cache: cache.to_string() })
            }
            Op::Store { to, .. } if !self.stored.insert(*to) => Err(Problem::Stored { target: format!("{to:?}") }),
            _ => Ok(()),
        }
    }

    /// Whether a value is inside of another group than that of `reader`.
    fn is_inside(&self, reader: Option<usize>, id: ValueId) -> bool {
        let Some(&node) = self.nodes.get(id.index()) else { return false };
        reader != Some(node) && self.outputs.get(&node).is_some_and(|outputs| !outputs.contains(&id))
    }

    /// An output of the graph, or of the group of a node.
    fn output(&self, node: Option<usize>, id: ValueId) -> Result<(), Problem> {
        let operand = "output";
        let value = id.to_string();
        match (self.nodes.get(id.index()), node) {
            (None, _) => Err(Problem::Undefined { operand, value }),
            (Some(home), Some(node)) if *home != node => Err(Problem::Foreign { value }),
            (Some(_), None) if self.is_inside(None, id) => Err(Problem::Inside { operand, value }),
            _ => Ok(()),
        }
    }
}
