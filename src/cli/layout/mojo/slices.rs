//! Mojo's cases of slices and splits of a tensor.

use serde_json::{Value as Json, json};
use tilewright_layout::view::{Split, ViewError};
use tilewright_layout::{Coord, IntTuple};

use super::SkipReason;
use super::case::{CaseOutcome, GoldenCase, Obstacle, between, numbers};
use super::tensor::{LaneOrder, Tensor, element, extents, memory, modes, plain, values};

/// The result of a slice or split case.
pub(super) fn counterpart(case: &GoldenCase<'_>) -> Option<CaseOutcome> {
    if case.name.starts_with("slice") {
        return Some(slice(case));
    }
    case.name.starts_with("split[").then(|| split(case))
}

/// The part of a mode that a slice keeps: a range of indices, or one index.
enum ModeSlice {
    Range(Option<usize>, Option<usize>),
    One(usize),
}

/// Parses the slice of a mode: `:`, `1:3`, `:2`, `All`, `(1,3)` or an index.
fn kept(text: &str) -> Option<ModeSlice> {
    let text = text.trim();
    if text == "All" {
        return Some(ModeSlice::Range(None, None));
    }
    let pair = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).and_then(|pair| pair.split_once(','));
    let Some((start, end)) = pair.or_else(|| text.split_once(':')) else {
        return text.parse().ok().map(ModeSlice::One);
    };
    let bound = |text: &str| if text.is_empty() { Some(None) } else { text.trim().parse().ok().map(Some) };
    Some(ModeSlice::Range(bound(start)?, bound(end)?))
}

/// The slice of each mode, from the case's name or its arguments.
fn selection(case: &GoldenCase<'_>) -> Option<Vec<ModeSlice>> {
    if case.has("rows") {
        let bound = |end: &Json| end.as_u64().and_then(|end| usize::try_from(end).ok());
        let range = |range: &Json| ModeSlice::Range(bound(&range[0]), bound(&range[1]));
        return Some(vec![range(&case.args["rows"]), range(&case.args["cols"])]);
    }
    let call = case.name.split(": ").next()?;
    let square = call.split_once('[').filter(|(before, _)| !before.contains('('));
    let text = match square {
        Some((_, rest)) => rest.split_once(']')?.0,
        None => between(call, '(', ')'),
    };
    let mut depth = 0;
    let mut modes = vec![String::new()];
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        match (letter, depth) {
            (',', 0) => modes.push(String::new()),
            _ => modes.last_mut()?.push(letter),
        }
    }
    modes.iter().map(|mode| kept(mode)).collect()
}

fn slice(case: &GoldenCase<'_>) -> CaseOutcome {
    let layout = plain(case.layout("layout")?);
    let memory = memory(case, &layout)?;
    let mut view = Tensor::with_layout(&memory, layout)?;
    let Some(selection) = selection(case) else { return Err(Obstacle::Differs(SkipReason::NoCounterpart)) };
    let mut fixed = Vec::new();
    for (mode, kept) in selection.iter().enumerate() {
        fixed.push(match *kept {
            ModeSlice::One(index) => Coord::of(IntTuple::int(index as i64)),
            ModeSlice::Range(start, end) => {
                view = view.range(mode, start.unwrap_or(0)..end.unwrap_or(view.extent(mode)))?;
                Coord::ALL
            }
        });
    }
    if selection.iter().any(|kept| matches!(kept, ModeSlice::One(_))) {
        view = view.slice(&Coord::tuple(&fixed)?)?;
    }
    if case.has("c") {
        return element(&view, &case.indices("c")?);
    }
    match case.name.split_once(": ") {
        None => values(&view, 0, LaneOrder::RowMajor),
        Some((_, wanted)) => results(&view, wanted),
    }
}

/// The results that a case asks for, such as `shape, [0,0], [0,3]`.
fn results(view: &Tensor<'_>, wanted: &str) -> CaseOutcome {
    let one = |wanted: &str| match wanted {
        "shape" => Ok(extents(view, 0)),
        "layout" | "static layout" => modes(view, 0, view.rank()),
        "values" => values(view, 0, LaneOrder::RowMajor),
        place => element(view, &numbers(place.trim_start_matches("value at ").trim_matches(['[', ']']))),
    };
    let mut results = wanted.split(", ").map(one).collect::<Result<Vec<_>, _>>()?;
    Ok(if results.len() == 1 { results.remove(0) } else { Json::from(results) })
}

fn split(case: &GoldenCase<'_>) -> CaseOutcome {
    let layout = plain(case.layout("layout")?);
    let memory = memory(case, &layout)?;
    let view = Tensor::with_layout(&memory, layout)?;
    let inside = case.name.split_once(']').map_or("", |(call, _)| call);
    let literal = |after: &str| inside.split_once(after).and_then(|(_, rest)| numbers(rest).first().copied());
    let number = |name: &str, otherwise: usize| if case.has(name) { case.index(name) } else { Ok(otherwise) };
    let split = Split {
        mode: number("axis", literal("axis=").unwrap_or(0))?,
        parts: number("count", literal("split[").unwrap_or(1))?,
        multiple: number("alignment", 1)?,
    };
    let part = view.split(split, if case.has("idx") { case.index("idx")? } else { case.index("part")? });
    let part = match part {
        Err(ViewError::NoSuchTile { .. }) => return Err(Obstacle::Differs(SkipReason::Nothing)),
        part => part?,
    };
    if case.has("c") {
        return element(&part, &case.indices("c")?);
    }
    match case.name.split_once(": ") {
        None => values(&part, 0, LaneOrder::RowMajor),
        Some((_, "extent along axis, value at [0,0]")) => {
            Ok(json!([part.extent(split.mode), element(&part, &[0, 0])?]))
        }
        Some((_, wanted)) => results(&part, wanted),
    }
}
