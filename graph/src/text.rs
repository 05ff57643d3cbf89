//! The text form of an op: one line, with the axes of its results.

use std::fmt;

use serde_json::Value;

use crate::op::Op;
use crate::parts::{Parts, Step};
use crate::rows::{InnerAxis, ProductOp, Rearrange, Reduction, RowOp, Source};

/// An op as a line: results, name, attributes, operands, weights.
pub(crate) struct OpText<'g> {
    parts: &'g Parts,
    step: &'g Step<'g>,
}

impl<'g> OpText<'g> {
    pub fn new(parts: &'g Parts, step: &'g Step<'g>) -> OpText<'g> {
        OpText { parts, step }
    }

    /// Attributes other than operands and weights: `scale 0.25`, `causal`.
    fn attributes(&self) -> Vec<String> {
        let Ok(Value::Object(fields)) = serde_json::to_value(self.step.op) else { return Vec::new() };
        let named = |key: &str| {
            let weights = self.step.op.weights();
            let is_experts = key == "experts";
            is_experts
                || self.step.op.operands().iter().any(|(name, _)| *name == key)
                || weights.iter().any(|(name, _)| *name == key)
        };
        let mut fields: Vec<_> =
            fields.iter().filter(|(key, _)| *key != "op" && *key != "out" && !named(key)).collect();
        // The order of a map depends on features of serde_json that other crates turn on.
        fields.sort_by_key(|(key, _)| *key);
        let mut found = Vec::new();
        for (key, value) in fields {
            match value {
                Value::Null | Value::Bool(false) => {}
                Value::Bool(true) => found.push(key.clone()),
                _ if key == "kind" || key == "input" => found.push(inline(value)),
                _ if key == "table" => found.push(format!("rope{value}")),
                _ if key == "cache" => found.push(format!("kv{value}")),
                _ => found.push(format!("{key} {}", inline(value))),
            }
        }
        found
    }
}

/// A value of an attribute without the marks of JSON.
fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().map_or(number.to_string(), |wide| (wide as f32).to_string()),
        Value::Array(list) => list.iter().map(inline).collect::<Vec<_>>().join(" "),
        Value::Object(map) => {
            let mut words = Vec::new();
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            for (key, value) in fields {
                match value {
                    Value::Bool(false) | Value::Null => {}
                    Value::Bool(true) => words.push(key.clone()),
                    Value::Object(inner) if inner.values().all(|value| *value == Value::Bool(false)) => {
                        words.push(key.clone());
                    }
                    _ => words.push(format!("{key} {}", inline(value))),
                }
            }
            words.join(" ")
        }
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

impl Op {
    /// The name, for an op on rows with its constants.
    ///
    /// ```
    /// use tilewright_graph::{graph::ValueId, op::Op, rows::{InnerAxis, Reduce, Reduction}};
    /// let reduction = Reduction { reduce: Reduce::Mean, axis: InnerAxis::D0, every: Some(4) };
    /// assert_eq!(Op::Reduce { x: ValueId(0), reduction }.described(), "mean D0 by 4");
    /// ```
    pub fn described(&self) -> String {
        let axis = |axis: InnerAxis| match axis {
            InnerAxis::D0 => "D0",
            InnerAxis::D1 => "D1",
        };
        match self {
            Op::Elementwise { function, .. } => function.to_string(),
            Op::Reduce { reduction: Reduction { reduce, axis: along, every }, .. } => {
                let every = every.map(|every| format!(" by {every}")).unwrap_or_default();
                format!("{} {}{every}", reduce.name(), axis(*along))
            }
            Op::Product { product: ProductOp::LearnedQuery(scale), .. } => format!("learned_query × {scale}"),
            Op::Product { product: ProductOp::Kron(axes), .. } => {
                let along = [InnerAxis::D0, InnerAxis::D1].into_iter().filter(|a| axes[a.index()]).map(axis);
                format!("kron {}", along.collect::<Vec<_>>().join(" "))
            }
            Op::Rearrange { to: Rearrange::Reshape(shape), .. } => format!("reshape {shape}"),
            Op::OverBlocks { over: RowOp::Softmax(scale), .. } => format!("softmax × {scale}"),
            Op::OverBlocks { over: RowOp::Conv1d(taps), .. } => format!("conv1d {taps}"),
            op => op.name().to_owned(),
        }
    }

    /// The number of the field, state or parameter that the op loads or stores, or the number that
    /// it fills with.
    fn place(&self) -> Option<String> {
        match self {
            Op::Load { from: source } | Op::Store { to: source, .. } => match source {
                Source::Field(id) => Some(id.0.to_string()),
                Source::State(id) => Some(id.0.to_string()),
                Source::Parameter(id) => Some(id.0.to_string()),
                Source::Query | Source::Keys | Source::Values | Source::Positions => None,
            },
            Op::Fill { number, .. } => Some(number.to_string()),
            _ => None,
        }
    }
}

impl fmt::Display for OpText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { op, first, results, .. } = self.step;
        for (place, kind) in results.iter().enumerate() {
            let id = first.index() + place;
            write!(f, "{}v{id}: {kind}", if place == 0 { "" } else { ", " })?;
        }
        if !results.is_empty() {
            f.write_str(" = ")?;
        }
        let attributes = self.attributes();
        let described = op.described() + &op.place().map(|place| format!(" {place}")).unwrap_or_default();
        let words: Vec<&str> = match op {
            // Its kind is its name.
            Op::Binary { .. } => attributes.iter().map(String::as_str).collect(),
            op if op.is_of_rows() => vec![described.as_str()],
            _ => std::iter::once(op.name()).chain(attributes.iter().map(String::as_str)).collect(),
        };
        f.write_str(&words.join(" "))?;
        let operands = op.operands();
        if !operands.is_empty() {
            let words: Vec<String> = operands.iter().map(|(name, id)| format!("{name} {id}")).collect();
            write!(f, "({})", words.join(", "))?;
        }
        for (role, id) in op.weights() {
            match self.parts.weights.get(id.index()) {
                Some(weight) => {
                    write!(f, " {role} {}", weight.label().escape_debug())?;
                    if weight.offset != 0.0 {
                        write!(f, " + {}", weight.offset)?;
                    }
                    if weight.factor != 1.0 {
                        write!(f, " times {}", weight.factor)?;
                    }
                }
                None => write!(f, " {role} {id}")?,
            }
        }
        Ok(())
    }
}
