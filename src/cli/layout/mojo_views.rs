//! Mojo's cases of tensor views: a chain of calls, such as `tile[4,4](i,j).distribute[row_major(2,2)](tid)`.
//!
//! A view is a run-time layout and an offset; a step of the chain composes every mode with the part of it that is kept.

use serde_json::{Value as Json, json};
use tilewright_layout::{IntTuple, Layout};

use super::Refusal;
use super::mojo::{Outcome, field};
use super::value::Value;

/// A tensor view: one mode per dimension, and the elements that a vector holds.
struct View {
    modes: Vec<Layout>,
    offset: i64,
    vector: Vec<Layout>,
    clipped: bool,
}

/// What a chain of views gives, or `None` where a step has no counterpart.
pub(super) fn counterpart(name: &str, args: &Json) -> Option<Outcome> {
    let name = name.strip_prefix("dynamic tensor ").or_else(|| name.strip_prefix("dynamic ")).unwrap_or(name);
    let name = name.strip_prefix("TileTensor.").unwrap_or(name);
    // The lanes of a vector of rank 2 are compared where they are row-major.
    if name.contains("colexicographic") {
        return None;
    }
    let name = name.split_once(" values (").map_or(name, |(chain, _)| chain);
    let (chain, wanted) = match name.split_once(": ") {
        Some((chain, wanted)) => (chain, wanted.split(" (").next()?),
        None => (name.strip_suffix(" values").unwrap_or(name), "values"),
    };
    let chain = match chain {
        "load_linear[1](c)" | "ptr_at_offset(c)" => "[c]",
        other => other,
    };
    let chain = chain.strip_suffix(" 1-D").unwrap_or(chain);
    let (chain, at) = chain.strip_suffix("[c]").map_or((chain, false), |chain| (chain, true));
    let steps: Vec<&str> = chain.split(").").filter(|step| !step.is_empty()).collect();
    if !steps.iter().all(|step| ["tile[", "distribute[", "vectorize", "transpose"].iter().any(|s| step.starts_with(s)))
    {
        return None;
    }
    let wanted: Vec<&str> = wanted.split(", ").collect();
    let known = [
        "values",
        "runtime shape",
        "bound_check_required",
        "first scalar of the element",
        "result.layout",
        "layout of the vector tensor",
        "result.element_layout",
    ];
    if !wanted.iter().all(|wanted| known.contains(wanted)) || args.get("swizzle").is_some() {
        return None;
    }
    let filled = args["fill"].as_str();
    if filled.is_none() && wanted.contains(&"values") {
        return None;
    }
    run(&steps, &wanted, at, args).transpose()
}

fn run(steps: &[&str], wanted: &[&str], at: bool, args: &Json) -> Result<Option<Json>, Refusal> {
    let base = match args.get("layout") {
        Some(_) => field(args, "layout")?.layout()?,
        None => Layout::row_major(&field(args, "shape")?.tuple()?)?,
    };
    let memory = fill(&base, args["fill"].as_str() == Some("arange"))?;
    let mut view = Some(View { modes: modes_of(&base)?, offset: 0, vector: Vec::new(), clipped: false });
    let mut coordinate = "coord";
    for step in steps {
        let Some(current) = view else { break };
        view = if step.starts_with("tile[") {
            let sizes = numbers(between(step));
            let at = field(args, coordinate)?.tuple()?;
            coordinate = "sub";
            current.tile(&sizes, at.values())?
        } else if step.starts_with("distribute[") {
            current.distribute(&threads(between(step), args)?, axis(between(step)), field(args, "tid")?.int()?)?
        } else if step.starts_with("vectorize") {
            let sizes = match args.get("vec") {
                Some(_) => field(args, "vec")?.tuple()?.values().to_vec(),
                None => numbers(between(step)),
            };
            Some(current.vectorize(&sizes)?)
        } else {
            Some(View { modes: current.modes.into_iter().rev().collect(), ..current })
        };
    }
    // No element is within the bounds; what the shape would be has no counterpart, as no extent here is 0.
    let Some(view) = view else { return Ok((wanted == ["values"]).then(|| json!([]))) };
    if at {
        let place = field(args, "c")?.tuple()?;
        let offset = Layout::tuple(&view.modes)?.offset(&place)? + view.offset;
        return Ok(Some(json!(usize::try_from(offset).ok().and_then(|at| memory.get(at)))));
    }
    let mut results: Vec<Json> = wanted
        .iter()
        .map(|wanted| {
            Ok(match *wanted {
                "runtime shape" => view.modes.iter().map(Layout::size).collect(),
                "result.layout" | "layout of the vector tensor" => layout_json(&view.modes)?,
                "result.element_layout" => layout_json(&view.vector)?,
                "bound_check_required" => Json::Bool(view.clipped),
                _ => view.values(&memory, 0, view.offset),
            })
        })
        .collect::<Result<_, Refusal>>()?;
    Ok(Some(if results.len() == 1 { results.remove(0) } else { Json::Array(results) }))
}

/// The memory behind a tensor: the offsets themselves, or the row-major number of the element at each.
fn fill(layout: &Layout, arange: bool) -> Result<Vec<i64>, Refusal> {
    let mut memory: Vec<i64> = (0..layout.cosize()).collect();
    if arange {
        let sizes = IntTuple::flat(&modes_of(layout)?.iter().map(Layout::size).collect::<Vec<_>>())?;
        let order = Layout::row_major(&sizes)?;
        for i in 0..layout.size() {
            if let Some(slot) = usize::try_from(layout.at(i)).ok().and_then(|at| memory.get_mut(at)) {
                *slot = order.at(i);
            }
        }
    }
    Ok(memory)
}

fn layout_json(modes: &[Layout]) -> Outcome {
    Ok(Value::from(Layout::tuple(modes)?).to_json())
}

fn modes_of(layout: &Layout) -> Result<Vec<Layout>, Refusal> {
    Ok((0..layout.rank()).map(|i| layout.mode(i)).collect::<Result<Vec<_>, _>>()?)
}

/// What stands between the first bracket and the last.
fn between(step: &str) -> &str {
    let inner = step.split_once('[').map_or("", |(_, rest)| rest);
    inner.rsplit_once(']').map_or("", |(inner, _)| inner)
}

fn numbers(text: &str) -> Vec<i64> {
    text.split(',').filter_map(|number| number.trim().parse().ok()).collect()
}

/// The one axis along which threads are spread, where one is named.
fn axis(text: &str) -> Option<usize> {
    text.rsplit_once("axis=")?.1.parse().ok()
}

fn threads(text: &str, args: &Json) -> Result<Layout, Refusal> {
    if args.get("thread_layout").is_some() {
        return field(args, "thread_layout")?.layout();
    }
    let shape = text.strip_prefix("row_major(").and_then(|rest| rest.split_once(')')).map_or("", |(shape, _)| shape);
    Ok(Layout::row_major(&IntTuple::flat(&numbers(shape))?)?)
}

impl View {
    /// The tile at a coordinate, clipped to the bounds.
    fn tile(mut self, sizes: &[i64], at: &[i64]) -> Result<Option<View>, Refusal> {
        for ((mode, size), at) in self.modes.iter_mut().zip(sizes).zip(at) {
            let kept = (mode.size() - at * size).min(*size);
            if kept < 1 {
                return Ok(None);
            }
            self.clipped |= kept < *size;
            self.offset += mode.at(at * size);
            *mode = mode.composition(&Layout::leaf(kept, 1)?)?;
        }
        Ok(Some(self))
    }

    /// The elements of a thread: every `n`-th along a mode that `n` threads share.
    fn distribute(mut self, threads: &Layout, axis: Option<usize>, id: i64) -> Result<Option<View>, Refusal> {
        let coordinate = threads.coordinate_of_offset(id)?;
        for (i, mode) in self.modes.iter_mut().enumerate() {
            if axis.is_some_and(|axis| axis != i) {
                continue;
            }
            let count = threads.mode(i)?.size();
            let at = threads.mode(i)?.shape().index_of(&coordinate.mode(i)?)?;
            if at >= mode.size() {
                return Ok(None);
            }
            self.offset += mode.at(at);
            *mode = every(mode, count, (mode.size() - at + count - 1) / count)?;
        }
        Ok(Some(self))
    }

    fn vectorize(mut self, sizes: &[i64]) -> Result<View, Refusal> {
        for (mode, size) in self.modes.iter_mut().zip(sizes) {
            self.vector.push(mode.composition(&Layout::leaf(*size, 1)?)?);
            *mode = every(mode, *size, mode.size() / size)?;
        }
        Ok(self)
    }

    /// The elements, nested row-major; those of a vector in a row, row-major.
    fn values(&self, memory: &[i64], mode: usize, offset: i64) -> Json {
        if let Some(outer) = self.modes.get(mode) {
            return (0..outer.size()).map(|i| self.values(memory, mode + 1, offset + outer.at(i))).collect();
        }
        let mut offsets = vec![offset];
        for lanes in &self.vector {
            offsets = offsets.iter().flat_map(|start| (0..lanes.size()).map(move |i| start + lanes.at(i))).collect();
        }
        let value = |offset: &i64| usize::try_from(*offset).ok().and_then(|at| memory.get(at)).copied();
        if self.vector.is_empty() { json!(value(&offset)) } else { offsets.iter().map(value).collect() }
    }
}

/// Every `step`-th element of a mode.
fn every(mode: &Layout, step: i64, count: i64) -> Result<Layout, Refusal> {
    // One element has no stride to compose with.
    if count == 1 {
        return Ok(Layout::leaf(1, 0)?);
    }
    Ok(mode.composition(&Layout::leaf(count, step)?)?)
}
