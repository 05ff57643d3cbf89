//! Mojo's cases of tensor views: a chain of calls, such as
//! `tile[4,4](i,j).distribute[row_major(2,2)](tid)`, through
//! [`TensorView`](tilewright_layout::view::TensorView).
//!
//! A vector of Mojo's library is an element with a layout of its own; here the lanes are the first
//! modes of the view.

use serde_json::{Value as Json, json};
use tilewright_layout::view::ViewError;
use tilewright_layout::{IntTuple, Layout, Swizzle, Swizzled, Tiler};

use super::SkipReason;
use super::case::{CaseOutcome, GoldenCase, Obstacle, between, numbers};
use super::tensor::{LaneOrder, Tensor, element, extents, memory, modes, start, values};

/// The results that a case may ask for at the end of a chain of views.
const WANTED: [&str; 10] = [
    "values",
    "runtime shape",
    "bound_check_required",
    "first scalar of the element",
    "result.layout",
    "layout of the vector tensor",
    "result.element_layout",
    "layout.shape",
    "element_layout.shape",
    "offset of frag[0,0]",
];

/// A view on the way through a chain.
struct Link<'m> {
    view: Tensor<'m>,
    /// The number of leading modes that index the lanes of a vector.
    lanes: usize,
    clipped: bool,
}

/// The result of a chain of views; `None` if a step has no equivalent.
pub(super) fn counterpart(case: &GoldenCase<'_>) -> Option<CaseOutcome> {
    let name = case.name;
    if name.starts_with("offset of .tile[") && name.contains("_nested(") {
        return Some(Err(Obstacle::Differs(SkipReason::NestedTile)));
    }
    let name = name.strip_prefix("dynamic tensor ").or_else(|| name.strip_prefix("dynamic ")).unwrap_or(name);
    let name = name.strip_prefix("TileTensor.").unwrap_or(name);
    let lanes = if name.contains("colexicographic") { LaneOrder::Colexicographic } else { LaneOrder::RowMajor };
    let name = name.split_once(" values (").map_or(name, |(chain, _)| chain);
    let (chain, wanted) = match name.split_once(": ") {
        Some((chain, wanted)) => (chain, wanted.split(" (").next()?),
        None => (name.strip_suffix(" values").unwrap_or(name), "values"),
    };
    let chain = match chain {
        "load_linear[1](c)" | "load_linear[1](c) of data[i]=10*i" | "ptr_at_offset(c)" => "[c]",
        "LayoutTensor rows after arange (logical row-major fill)" => "",
        "distribute of nested layout, 2-wide elements" => "distribute[thread_layout](tid)",
        other => other,
    };
    let chain = chain.strip_suffix(" 1-D").unwrap_or(chain);
    let (chain, at) = chain.strip_suffix("[c]").map_or((chain, false), |chain| (chain, true));
    let steps: Vec<&str> = chain.split(").").filter(|step| !step.is_empty()).collect();
    let known = ["tile[", "distribute[", "vectorize", "transpose"];
    let wanted: Vec<&str> = wanted.split(", ").collect();
    if !steps.iter().all(|step| known.iter().any(|known| step.starts_with(known)))
        || !wanted.iter().all(|wanted| WANTED.contains(wanted))
        || (case.args["fill"].is_null() && wanted.contains(&"values") && !at)
    {
        return None;
    }
    Some(run(case, &steps, &wanted, at, lanes))
}

fn run(case: &GoldenCase<'_>, steps: &[&str], wanted: &[&str], at: bool, order: LaneOrder) -> CaseOutcome {
    let (layout, lanes) = source(case)?;
    let mut memory = memory(case, &layout)?;
    if case.name.ends_with("of data[i]=10*i") {
        memory.iter_mut().for_each(|value| *value *= 10);
    }
    let mut link = Link { view: Tensor::with_layout(&memory, layout)?, lanes, clipped: false };
    let mut coordinate = "coord";
    for step in steps {
        let sizes = numbers(between(step, '[', ']'));
        let next = if step.starts_with("tile[") {
            let literal = numbers(step.rsplit_once('(').map_or("", |(_, place)| place.trim_end_matches(')')));
            let place = if literal.is_empty() { case.indices(coordinate)? } else { literal };
            coordinate = "sub";
            link.tile(&sizes, &place)?
        } else if step.starts_with("distribute[") {
            link.distribute(&threads(case, between(step, '[', ']'))?, axis(step), case.index("tid")?)?
        } else if step.starts_with("vectorize") {
            let sizes = if case.has("vec") { case.indices("vec")? } else { sizes };
            Some(link.vectorize(&sizes)?)
        } else {
            let reversed: Vec<usize> = (0..link.view.rank()).rev().collect();
            Some(Link { view: link.view.permute(&reversed)?, ..link })
        };
        link = match next {
            Some(next) => next,
            // No element is within the bounds; no extent here is 0.
            None if wanted == ["values"] => return Ok(json!([])),
            None => return Err(Obstacle::Differs(SkipReason::Nothing)),
        };
    }
    if at {
        let place = [vec![0; link.lanes], case.indices("c")?].concat();
        return element(&link.view, &place);
    }
    let mut results = wanted.iter().map(|wanted| link.result(wanted, order)).collect::<Result<Vec<_>, _>>()?;
    Ok(if results.len() == 1 { results.remove(0) } else { Json::from(results) })
}

/// The layout of a case's tensor, and how many of its first modes are lanes.
fn source(case: &GoldenCase<'_>) -> Result<(Swizzled, usize), Obstacle> {
    let layout = if case.has("layout") { case.layout("layout")? } else { Layout::row_major(&case.tuple("shape")?)? };
    let swizzle = if case.has("swizzle") { case.value("swizzle")?.swizzle()? } else { Swizzle::IDENTITY };
    if !case.has("element_layout") {
        return Ok((Swizzled::new(swizzle, 0, layout), 0));
    }
    // Nested modes are divided among nested threads integer by integer: flat, both are what they
    // are here.
    let vectors = layout.flatten().prepend(&case.layout("element_layout")?)?;
    Ok((Swizzled::new(swizzle, 0, vectors), 1))
}

/// The one axis along which threads are spread, where one is named.
fn axis(step: &str) -> Option<usize> {
    between(step, '[', ']').rsplit_once("axis=")?.1.parse().ok()
}

fn threads(case: &GoldenCase<'_>, text: &str) -> Result<Layout, Obstacle> {
    if case.has("thread_layout") {
        let threads = case.layout("thread_layout")?;
        return Ok(if case.has("element_layout") { threads.flatten() } else { threads });
    }
    let shape = text.strip_prefix("row_major(").and_then(|rest| rest.split_once(')')).map_or("", |(shape, _)| shape);
    let extents: Vec<i64> = numbers(shape).into_iter().map(|extent| extent as i64).collect();
    Ok(Layout::row_major(&IntTuple::flat(&extents)?)?)
}

impl<'m> Link<'m> {
    /// The tile at a coordinate, clipped to the bounds; `None` beyond them.
    fn tile(&self, sizes: &[usize], place: &[usize]) -> Result<Option<Link<'m>>, Obstacle> {
        let lanes: Vec<usize> = (0..self.lanes).map(|mode| self.view.extent(mode)).collect();
        let sizes = [&lanes[..], sizes].concat();
        let place = [&vec![0; self.lanes][..], place].concat();
        let whole = sizes.iter().enumerate().all(|(mode, size)| self.view.extent(mode).is_multiple_of(*size));
        let tiles: Vec<Tiler> = sizes.iter().map(|size| Tiler::extent(*size as i64)).collect();
        let tile = if whole {
            self.view.tile_by(&Tiler::by_mode(&tiles)?, &place)
        } else {
            self.view.clipped_tile(&sizes, &place)
        };
        match tile {
            Ok(view) => {
                let clipped = self.clipped || sizes.iter().enumerate().any(|(mode, size)| view.extent(mode) < *size);
                Ok(Some(Link { view, clipped, ..*self }))
            }
            Err(ViewError::NoSuchTile { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The elements of a thread; `None` where it has none.
    fn distribute(&self, threads: &Layout, axis: Option<usize>, thread: usize) -> Result<Option<Link<'m>>, Obstacle> {
        let mut thread = thread;
        let mut by_mode = vec![Layout::ONE; self.lanes];
        for mode in 0..threads.rank() {
            by_mode.push(match axis {
                None => threads.mode(mode)?,
                // Along one axis, the threads that differ in the others share.
                Some(axis) if axis == mode => {
                    let coordinate = threads.coordinate_of_offset(thread as i64)?;
                    let along = threads.mode(mode)?;
                    thread = along.shape().index_of(&coordinate.mode(mode)?)? as usize;
                    Layout::leaf(along.size(), 1)?
                }
                Some(_) => Layout::ONE,
            });
        }
        let threads = Layout::tuple(&by_mode)?;
        let whole =
            (0..threads.rank()).all(|mode| self.view.layout().layout().extent(mode) % threads.extent(mode) == 0);
        let view = if whole {
            Some(self.view.distribute_by(&threads, thread)?)
        } else {
            self.view.distribute_clipped(&threads, thread)?
        };
        Ok(view.map(|view| Link { view, ..*self }))
    }

    fn vectorize(&self, sizes: &[usize]) -> Result<Link<'m>, Obstacle> {
        let tiler: Vec<Tiler> = sizes.iter().map(|size| Tiler::extent(*size as i64)).collect();
        let view = self.view.flat_divide(&Tiler::by_mode(&tiler)?)?;
        Ok(Link { view, lanes: sizes.len(), ..*self })
    }

    fn result(&self, wanted: &str, order: LaneOrder) -> CaseOutcome {
        let view = &self.view;
        let lanes = self.lanes;
        Ok(match wanted {
            "runtime shape" | "layout.shape" => extents(view, lanes),
            "element_layout.shape" => (0..lanes).map(|mode| view.extent(mode)).collect(),
            "result.layout" | "layout of the vector tensor" => modes(view, lanes, view.rank())?,
            "result.element_layout" => modes(view, 0, lanes)?,
            "bound_check_required" => Json::Bool(self.clipped),
            "offset of frag[0,0]" => json!(start(view)),
            _ => values(view, lanes, order)?,
        })
    }
}
