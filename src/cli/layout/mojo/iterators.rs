//! Mojo's cases of iterators over tiles, through [`PartIter`](tilewright_layout::view::PartIter).

use serde_json::{Value as Json, json};
use tilewright_layout::view::{Host, PartIter, ViewError};
use tilewright_layout::{Layout, Swizzle, Swizzled};

use super::SkipReason;
use super::case::{CaseOutcome, GoldenCase, Obstacle, numbers};
use super::tensor::{LaneOrder, Tensor, extents, memory, offsets, plain, start, values};
use crate::algebra::listed;

/// An iterator of a case: made anew for each thing that is asked of it.
struct CaseIterator<'m> {
    strip: Tensor<'m>,
    axis: usize,
    extent: usize,
    /// The part at which the case begins.
    first: usize,
    circular: bool,
}

/// The result of an iterator case.
pub(super) fn counterpart(case: &GoldenCase<'_>) -> Option<CaseOutcome> {
    let circular = case.name.strip_prefix("circular ");
    let name = circular.unwrap_or(case.name);
    if let Some(rest) = name.strip_prefix("LayoutTensorIter") {
        return Some(over_memory(case, rest, circular.is_some()));
    }
    let rest = name.strip_prefix("tiled_iterator[")?;
    let (call, rest) = rest.split_once(')')?;
    Some(over_tensor(case, call, rest, circular.is_some()))
}

/// A tile that moves through memory by a stride, up to a bound: the tiles side by side are one more
/// mode of the layout.
fn over_memory(case: &GoldenCase<'_>, rest: &str, circular: bool) -> CaseOutcome {
    let tile = case.layout("layout")?;
    let bound = case.int("bound")?;
    let stride = if case.has("stride") { case.int("stride")? } else { tile.size() };
    let axis = tile.rank().saturating_sub(1);
    let last = tile.mode(axis)?;
    let tiles =
        tile.replace(axis, &Layout::tuple(&[last, Layout::leaf(bound.checked_div(stride).unwrap_or(0), stride)?])?)?;
    let offset = if case.has("offset") { case.int("offset")? } else { 0 };
    let layout = Swizzled::new(Swizzle::IDENTITY, offset, tiles);
    // The memory is a tensor of one mode: its row-major numbers are its offsets.
    let memory = offsets(&layout)?;
    let strip = Tensor::with_layout(&memory, layout)?;
    let extent = usize::try_from(last.size()).map_err(|_| Obstacle::Differs(SkipReason::NoCounterpart))?;
    report(case, &CaseIterator { strip, axis, extent, first: 0, circular }, rest)
}

/// The tiles of a tensor along an axis, from one of them on.
fn over_tensor(case: &GoldenCase<'_>, call: &str, rest: &str, circular: bool) -> CaseOutcome {
    let layout =
        plain(if case.has("layout") { case.layout("layout")? } else { Layout::row_major(&case.tuple("shape")?)? });
    let memory = memory(case, &layout)?;
    let mut strip = Tensor::with_layout(&memory, layout)?;
    let (inside, place) = call.split_once("](").unwrap_or((call, ""));
    let axis = inside.split_once("axis=").and_then(|(_, axis)| axis.parse().ok()).unwrap_or(0);
    let sizes = numbers(inside);
    let place: Vec<usize> = place
        .split(',')
        .map(|index| index.trim().parse().map_or_else(|_| case.index(index.trim()), Ok))
        .collect::<Result<_, _>>()?;
    let (Some(&extent), Some(&first)) = (sizes.get(axis), place.get(axis)) else {
        return Err(Obstacle::Differs(SkipReason::NoCounterpart));
    };
    for (mode, (&size, &index)) in sizes.iter().zip(&place).enumerate() {
        if mode != axis {
            let begin = index.saturating_mul(size);
            let end = strip.extent(mode).min(begin.saturating_add(size));
            strip = match strip.range(mode, begin..end) {
                Err(ViewError::Empty { .. }) => return Err(Obstacle::Differs(SkipReason::Nothing)),
                part => part?,
            };
        }
    }
    report(case, &CaseIterator { strip, axis, extent, first, circular }, rest)
}

/// The results that a case asks for: the tiles in turn, or the state of one tile after a number of
/// steps.
fn report(case: &GoldenCase<'_>, walk: &CaseIterator<'_>, rest: &str) -> CaseOutcome {
    let (steps, wanted) = rest.split_once(": ").unwrap_or(("", rest));
    if wanted == "successive tiles" || wanted.ends_with(" tiles") {
        let count = case.expected.as_array().map_or(0, Vec::len);
        let tiles = walk.parts()?.skip(walk.first).take(count);
        return tiles.map(|tile| values(&tile, 0, LaneOrder::RowMajor)).collect();
    }
    let increments: usize = match steps.split_once("+= ") {
        Some((_, number)) => number.parse().map_err(|_| Obstacle::Differs(SkipReason::NoCounterpart))?,
        None => case.index("i")?,
    };
    // A circular iterator would walk on for as many steps as are asked for.
    listed("an iterator", i64::try_from(increments).unwrap_or(i64::MAX))?;
    listed("an iterator", i64::try_from(walk.first).unwrap_or(i64::MAX))?;
    let part = |index: usize| walk.parts()?.nth(index).ok_or(Obstacle::Differs(SkipReason::Nothing));
    let tile = part(walk.first + increments)?;
    let step = || Ok::<_, Obstacle>(start(&part(1)?) - start(&part(0)?));
    let one = |wanted: &str| {
        Ok(match wanted {
            "bound" => json!(step()? * walk.parts()?.round() as i64),
            "offset" => json!(start(&tile) - start(&part(walk.first)?)),
            "stride" => json!(step()?),
            "runtime shape" => extents(&tile, 0),
            "tile" | "values" => values(&tile, 0, LaneOrder::RowMajor)?,
            _ => return Err(Obstacle::Differs(SkipReason::NoCounterpart)),
        })
    };
    wanted.split(", ").map(one).collect::<Result<Vec<Json>, _>>().map(Json::from)
}

impl<'m> CaseIterator<'m> {
    fn parts(&self) -> Result<PartIter<'m, i64, Host>, Obstacle> {
        let parts = self.strip.parts_along(self.axis, self.extent)?;
        Ok(if self.circular { parts.circular() } else { parts })
    }
}
