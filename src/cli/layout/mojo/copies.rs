//! Mojo's cases that write: copies, and loops that fill tiles or the parts of threads.

use std::cell::Cell;

use serde_json::{Value as Json, json};
use tilewright_layout::view::{Space, TensorView};
use tilewright_layout::{Layout, Swizzled, Tiler};

use super::SkipReason;
use super::case::{CaseOutcome, GoldenCase, Obstacle, between, numbers};
use super::tensor::{LaneOrder, Tensor, memory, nested, plain, row_by_row, values};

/// The result of a case that writes memory.
pub(super) fn counterpart(case: &GoldenCase<'_>) -> Option<CaseOutcome> {
    let name = case.name;
    Some(match name {
        "copy_from (memory of dst in address order)" => copy(case, nested),
        "copy_from into padded layout: memory (initial -1)" => copy(case, |memory, _| Json::from(memory)),
        "dst.vectorize[4,1]().copy_from(src.vectorize[1,4]()) : dst vectorized values" => copy_vectors(case),
        _ if name.starts_with("for each tile[") => fill_tiles(case),
        _ if name.starts_with("for th in 0..") => fill_fragments(case),
        "String(TileTensor f32)" => text(case),
        _ => return None,
    })
}

/// The memory of `dst` after a copy from `src`.
fn copy(case: &GoldenCase<'_>, list: impl FnOnce(Vec<Json>, &[usize]) -> Json) -> CaseOutcome {
    let from = plain(case.layout("src")?);
    let to = plain(case.layout("dst")?);
    let source = if case.has("src_data") { case.tuple("src_data")?.values().to_vec() } else { memory(case, &from)? };
    let mut target = vec![-1; flat_length(case.expected)];
    let source = Tensor::with_layout(&source, from)?;
    let view = TensorView::<_, Swizzled>::with_layout_mut(&mut target, to)?;
    view.copy_from(&source)?;
    let sizes: Vec<usize> = (0..view.rank()).map(|mode| view.extent(mode)).collect();
    Ok(list(target.into_iter().map(Json::from).collect(), &sizes))
}

fn flat_length(list: &Json) -> usize {
    list.as_array().map_or(1, |items| items.iter().map(flat_length).sum())
}

/// A copy between views of other extents: element by element, first mode fastest, lanes before
/// vectors.
fn copy_vectors(case: &GoldenCase<'_>) -> CaseOutcome {
    let from = plain(case.layout("src")?);
    let to = plain(case.layout("dst")?);
    let source = memory(case, &from)?;
    let mut target = vec![-1; source.len()];
    let tiler = |rows, columns| Tiler::by_mode(&[Tiler::extent(rows), Tiler::extent(columns)]);
    let order = Layout::leaf(from.size(), 1)?;
    let vectors = Tensor::with_layout(&source, from)?.flat_divide(&tiler(1, 4)?)?;
    TensorView::<_, Swizzled>::with_layout_mut(&mut target, to)?
        .flat_divide(&tiler(4, 1)?)?
        .compose(&order)?
        .copy_from(&vectors.compose(&order)?)?;
    values(&Tensor::with_layout(&target, to)?.flat_divide(&tiler(4, 1)?)?, 2, LaneOrder::RowMajor)
}

/// Numbers the elements of a view row by row, on from `counter`.
fn number<S: Space>(view: &TensorView<'_, Cell<i64>, Swizzled, S>, counter: &mut i64) -> Result<(), Obstacle> {
    for cell in view.permute(&row_by_row(view.rank()))?.iter() {
        cell.set(*counter);
        *counter += 1;
    }
    Ok(())
}

fn fill_tiles(case: &GoldenCase<'_>) -> CaseOutcome {
    let layout = plain(case.layout("layout")?);
    let mut memory = memory(case, &layout)?;
    let view = TensorView::<_, Swizzled>::with_layout_mut(&mut memory, layout)?;
    let sizes = numbers(between(case.name, '[', ']'));
    let &[rows @ (1..), columns @ (1..)] = &sizes[..] else { return Err(Obstacle::Differs(SkipReason::NoCounterpart)) };
    let tiler = Tiler::by_mode(&[Tiler::extent(rows as i64), Tiler::extent(columns as i64)])?;
    let mut counter = 0;
    for row in 0..view.extent(0) / rows {
        for column in 0..view.extent(1) / columns {
            number(&view.tile_by(&tiler, &[row, column])?, &mut counter)?;
        }
    }
    Ok(json!(memory))
}

fn fill_fragments(case: &GoldenCase<'_>) -> CaseOutcome {
    let layout = plain(case.layout("layout")?);
    let mut memory = memory(case, &layout)?;
    let view = TensorView::<_, Swizzled>::with_layout_mut(&mut memory, layout)?;
    let threads = case.layout("thread_layout")?;
    let mut counter = 0;
    for thread in 0..threads.size() as usize {
        number(&view.distribute_by(&threads, thread)?, &mut counter)?;
    }
    Ok(json!(memory))
}

/// The elements as Rust prints a list of floating-point numbers.
fn text(case: &GoldenCase<'_>) -> CaseOutcome {
    let data: Vec<f32> = case.tuple("data")?.values().iter().map(|value| *value as f32).collect();
    let view = TensorView::<f32, Layout>::with_layout(&data, case.layout("layout")?)?;
    Ok(json!(format!("{:?}", view.iter().collect::<Vec<_>>())))
}
