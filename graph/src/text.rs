//! The text form: one line for each op, with the axes of its results.

use std::fmt;

use serde_json::Value;

use crate::graph::{Body, Graph, Parts, Step};
use crate::op::Op;

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
        let words: Vec<&str> = match op {
            // Its kind is its name.
            Op::Binary { .. } => attributes.iter().map(String::as_str).collect(),
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
                    write!(f, " {role} {}", weight.tensor.escape_debug())?;
                    if let Some([start, end]) = weight.rows {
                        write!(f, "[{start}..{end}]")?;
                    }
                    if weight.offset != 0.0 {
                        write!(f, " + {}", weight.offset)?;
                    }
                }
                None => write!(f, " {role} {id}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts();
        writeln!(f, "graph {}", parts.name.escape_debug())?;
        let mut node = None;
        for step in self.steps() {
            let group = match &parts.nodes[step.node].body {
                Body::Fused(fused) => Some(fused),
                Body::Single(_) => None,
            };
            if let (Some(fused), true) = (group, node != Some(step.node)) {
                let outputs: Vec<String> = fused.outputs.iter().map(ToString::to_string).collect();
                writeln!(f, "fused, outputs {}:", outputs.join(" "))?;
            }
            node = Some(step.node);
            writeln!(f, "{}{}", if group.is_some() { "  " } else { "" }, OpText::new(parts, &step))?;
        }
        let outputs: Vec<String> = parts.outputs.iter().map(ToString::to_string).collect();
        writeln!(f, "outputs {}", outputs.join(" "))
    }
}
