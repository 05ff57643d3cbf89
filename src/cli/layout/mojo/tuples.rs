//! Mojo's cases of tuples, of layouts as functions of coordinates, of texts, and of shared-memory
//! layouts.

use serde_json::{Value as Json, json};
use tilewright_layout::ops::Order;
use tilewright_layout::picture::TextGrid;
use tilewright_layout::swizzle::canonical::{CanonicalAtom, Major, SwizzleWidth};
use tilewright_layout::view::TensorView;
use tilewright_layout::{IntTuple, Layout, LayoutError, Swizzle, analysis};

use super::SkipReason;
use super::case::{CaseOutcome, GoldenCase, Obstacle};
use super::tensor::row_by_row;
use crate::algebra::listed;
use crate::algebra::{ExpressionRefusal, LayoutValue};

/// The result of this algebra for a case; `None` if there is no equivalent function.
pub(super) fn counterpart(case: &GoldenCase<'_>) -> Option<CaseOutcome> {
    of_tuples(case).or_else(|| of_coordinates(case)).or_else(|| of_layouts(case)).or_else(|| written(case))
}

fn of_tuples(case: &GoldenCase<'_>) -> Option<CaseOutcome> {
    Some(match case.name {
        "Coord.flatten" | "RuntimeTuple.flatten" => of_tuple(case, |t| Ok(LayoutValue::from(t.values().to_vec()))),
        "Coord.static_product" | "product" => of_tuple(case, |t| Ok(LayoutValue::Int(t.product()?))),
        "coalesce_nested_tuple (product per top-level mode)" => of_tuple(case, |t| Ok(t.product_each()?.into())),
        "Coord.flat_rank" => of_tuple(case, |t| Ok(LayoutValue::Int(t.values().len() as i64))),
        "len(IntTuple)" => of_tuple(case, |t| Ok(LayoutValue::Int(t.rank() as i64))),
        "depth" => depth(case),
        "IntTuple[i]" | "IntTuple[slice]" => modes(case),
        "prefix_product" => of_tuple(case, |t| Ok(Layout::col_major(t)?.stride().into())),
        "reverse(prefix_product(reverse(t)))" => of_tuple(case, |t| Ok(Layout::row_major(t)?.stride().into())),
        "abs" | "fill_like" | "mul" | "sorted" | "sum" | "tuple_min" | "reverse (deep)" => {
            Err(Obstacle::Differs(SkipReason::Helper))
        }
        "IntTuple.__eq__" => pair(case, |a, b| Ok(LayoutValue::Bool(a == b))),
        "weakly_congruent" => pair(case, |a, b| Ok(LayoutValue::Bool(a.weakly_congruent(b)))),
        "weakly_compatible" => pair(case, |a, b| Ok(LayoutValue::Bool(a.weakly_compatible(b)))),
        "tile.WeaklyCompatible[layout_shape, coord]" => {
            (|| Ok(Json::Bool(case.tuple("coord")?.weakly_congruent(&case.tuple("shape")?))))()
        }
        "shape_div" => quotient(case),
        // One function here: it must give the value of the note.
        "shape_div(RuntimeTuple)==shape_div(IntTuple)" => (|| {
            let value = case.note.strip_prefix("model value ").and_then(|rest| rest.split(';').next());
            let value = value.and_then(|value| serde_json::from_str::<Json>(value).ok());
            let value = value.ok_or(Obstacle::Differs(SkipReason::NoCounterpart))?;
            Ok(Json::Bool(quotient(case)? == value))
        })(),
        _ => return None,
    })
}

fn of_tuple(
    case: &GoldenCase<'_>,
    run: impl FnOnce(&IntTuple) -> Result<LayoutValue, ExpressionRefusal>,
) -> CaseOutcome {
    Ok(run(&case.tuple("t")?)?.to_json())
}

fn pair(
    case: &GoldenCase<'_>,
    run: impl FnOnce(&IntTuple, &IntTuple) -> Result<LayoutValue, ExpressionRefusal>,
) -> CaseOutcome {
    Ok(run(&case.tuple("a")?, &case.tuple("b")?)?.to_json())
}

/// Selects one mode, or a range of modes such as `1:-1`. A negative number counts from the end.
fn modes(case: &GoldenCase<'_>) -> CaseOutcome {
    let tuple = case.tuple("t")?;
    let rank = tuple.rank() as i64;
    let from_end = |index: i64| usize::try_from(if index < 0 { index + rank } else { index }).unwrap_or(usize::MAX);
    let Some(range) = case.args["slice"].as_str() else {
        return Ok(LayoutValue::from(tuple.mode(from_end(case.int("i")?))?).to_json());
    };
    let bound = |text: &str, otherwise: i64| if text.is_empty() { Some(otherwise) } else { text.parse().ok() };
    let ends = range.split_once(':').and_then(|(start, end)| Some((bound(start, 0)?, bound(end, rank)?)));
    // A step has no counterpart.
    let (start, end) = ends.ok_or(Obstacle::Differs(SkipReason::NoCounterpart))?;
    let modes = (from_end(start)..from_end(end)).map(|mode| tuple.mode(mode)).collect::<Result<Vec<_>, _>>()?;
    Ok(LayoutValue::from(IntTuple::tuple(&modes)?).to_json())
}

/// The depth. That library adds those of the modes: the same where one mode alone is nested.
fn depth(case: &GoldenCase<'_>) -> CaseOutcome {
    let tuple = case.tuple("t")?;
    let nested = (0..tuple.rank()).filter(|i| tuple.mode(*i).is_ok_and(|mode| !mode.is_int())).count();
    if nested > 1 { Err(Obstacle::Differs(SkipReason::Depth)) } else { Ok(Json::from(tuple.depth())) }
}

/// The quotient, which that library rounds up to 1 where neither number divides the other.
fn quotient(case: &GoldenCase<'_>) -> CaseOutcome {
    match case.tuple("a")?.shape_div(&case.tuple("b")?) {
        Err(LayoutError::Indivisible { value, divisor, .. }) if value % divisor != 0 && divisor % value != 0 => {
            Err(Obstacle::Differs(SkipReason::Rounded))
        }
        quotient => Ok(LayoutValue::from(quotient?).to_json()),
    }
}

fn of_fields(case: &GoldenCase<'_>) -> Result<Layout, Obstacle> {
    Ok(Layout::new(&case.tuple("shape")?, &case.tuple("stride")?)?)
}

type Compact = fn(&IntTuple) -> Result<Layout, LayoutError>;

fn of_coordinates(case: &GoldenCase<'_>) -> Option<CaseOutcome> {
    if let Some(holds) = property(case) {
        return Some(holds.map(Json::Bool));
    }
    Some(match case.name {
        "row_major_nested(shape)(crd)" => offset_in(case, Layout::row_major, false),
        "row_major_nested(shape)(flat crd)" => offset_in(case, Layout::row_major, true),
        "col_major_nested(shape)(crd)" => offset_in(case, Layout::col_major, false),
        "tile.Layout.__call__ (flat coords = flat dot product)" => {
            (|| Ok(Json::from(case.layout("layout")?.flatten().offset(&case.tuple("crd")?)?)))()
        }
        "Layout.row_major.stride.value(i)" => strides(case, Layout::row_major),
        "Layout.col_major.stride.value(i)" => strides(case, Layout::col_major),
        "TileTensor.dim[i]" => (|| Ok(LayoutValue::from(case.tuple("shape")?.product_each()?).to_json()))(),
        "ComposedLayout(B after A): B(offset + A(i))" => (|| {
            let a = case.layout("layout_a_first")?;
            let b = case.layout("layout_b_second")?;
            let index = IntTuple::flat(&[1, case.int("offset")?])?;
            let index = IntTuple::flat(&[a.offset(&IntTuple::int(case.int("i")?))?, 1])?.inner_product(&index)?;
            Ok(Json::from(b.offset(&IntTuple::int(index))?))
        })(),
        "tile.Layout([col_tile,row_tile]) == legacy Layout([col_tile,row_tile])" => grid(case),
        "print_layout grid values" => drawn(case),
        "tile.idx2crd" => {
            (|| Ok(LayoutValue::from(of_fields(case)?.coordinate_of_offset(case.int("idx")?)?).to_json()))()
        }
        // Such as `row_major_nested((2,4),(3,5))(crd)`, the shape in the name.
        name => {
            let (compact, rest): (Compact, &str) = match name.split_once("_major_nested(")? {
                ("row", rest) => (Layout::row_major, rest),
                ("col", rest) => (Layout::col_major, rest),
                _ => return None,
            };
            let shape = IntTuple::parse(&format!("({})", rest.strip_suffix(")(crd)")?)).ok()?;
            (|| Ok(Json::from(compact(&shape)?.offset(&case.tuple("crd")?)?)))()
        }
    })
}

fn offset_in(case: &GoldenCase<'_>, compact: Compact, flat: bool) -> CaseOutcome {
    let layout = compact(&case.tuple("shape")?)?;
    let layout = if flat { layout.flatten() } else { layout };
    Ok(Json::from(layout.offset(&case.tuple("crd")?)?))
}

fn strides(case: &GoldenCase<'_>, compact: Compact) -> CaseOutcome {
    Ok(LayoutValue::from(compact(&case.tuple("shape")?)?.stride()).to_json())
}

/// The offsets of a layout of rank 2, row by row.
fn grid(case: &GoldenCase<'_>) -> CaseOutcome {
    let layout = case.layout("layout")?;
    listed("a grid", layout.size())?;
    let row = |i| {
        (0..layout.extent(1))
            .map(|j| Ok(Json::from(layout.offset(&IntTuple::flat(&[i, j])?)?)))
            .collect::<CaseOutcome>()
    };
    (0..layout.extent(0)).map(row).collect()
}

/// The numbers of the picture of a layout.
fn drawn(case: &GoldenCase<'_>) -> CaseOutcome {
    let layout = case.layout("layout")?;
    listed("a picture", layout.size())?;
    let picture = TextGrid::of(&layout).to_string();
    let row = |row: &str| row.split_whitespace().map(|cell| json!(cell.parse::<i64>().ok())).collect::<Json>();
    Ok(picture.lines().map(row).collect())
}

fn property(case: &GoldenCase<'_>) -> Option<Result<bool, Obstacle>> {
    Some(match case.name.strip_prefix("property: ")? {
        "RuntimeLayout(flat crd)==crd2idx(nested crd)" => (|| {
            let layout = case.layout("layout")?;
            let crd = case.tuple("crd")?;
            let flat = IntTuple::flat(crd.values())?;
            Ok(layout.flatten().offset(&flat)? == layout.offset(&crd)?)
        })(),
        "RuntimeLayout(i)==crd2idx(i)" => (|| {
            let layout = case.layout("layout")?;
            let i = case.int("i")?;
            Ok(layout.offset(&IntTuple::int(i))? == layout.offset(&layout.shape().coordinate(i)?)?)
        })(),
        "idx2crd(runtime)==idx2crd(IntTuple)" => (|| {
            let shape = case.tuple("shape")?;
            let i = case.int("idx")?;
            let coordinate = shape.coordinate(i)?;
            Ok(shape.index_of(&coordinate)? == i && Layout::col_major(&shape)?.coordinate_of_offset(i)? == coordinate)
        })(),
        _ => return None,
    })
}

fn of_layouts(case: &GoldenCase<'_>) -> Option<CaseOutcome> {
    Some(match case.name {
        "tile_layout_k_major == tile_layout_k_major_typed" => return k_major(case),
        "iter(Layout)" => (|| {
            let layout = case.layout("layout")?;
            (0..layout.rank()).map(|i| Ok(LayoutValue::from(layout.mode(i)?).to_json())).collect()
        })(),
        "upcast(upcast)" => (|| {
            let mut layout = case.layout("layout")?;
            for factor in case.tuple("factors")?.values() {
                layout = layout.upcast(*factor)?;
            }
            Ok(LayoutValue::from(layout).to_json())
        })(),
        "make_layout(RuntimeLayout,RuntimeLayout)" => {
            (|| Ok(LayoutValue::from(Layout::tuple(&[case.layout("a")?, case.layout("b")?])?).to_json()))()
        }
        "RuntimeLayout.sublayout" => {
            (|| Ok(LayoutValue::from(of_fields(case)?.mode(case.index("mode")?)?).to_json()))()
        }
        "TileTensor.reshape (row-major strides)" => {
            (|| reshaped(&case.layout("from")?, &Layout::row_major(&case.tuple("shape")?)?))()
        }
        "TileTensor.coalesce: layout" => (|| {
            let layout = case.layout("layout")?;
            reshaped(&layout, &Layout::leaf(layout.size(), 1)?)
        })(),
        "count_wavefronts().excess (32 banks x 4B, max 16B op)" => excess(case),
        _ => return None,
    })
}

/// A tensor reshaped in row-major order: at `c` stands element `order(c)`, counted row by row.
fn reshaped(from: &Layout, order: &Layout) -> CaseOutcome {
    listed("a tensor", from.cosize())?;
    let memory = vec![(); usize::try_from(from.cosize()).unwrap_or_default()];
    let tensor = TensorView::<(), Layout>::with_layout(&memory, *from)?;
    let reshaped = tensor.permute(&row_by_row(tensor.rank()))?.compose(order)?;
    Ok(LayoutValue::from(reshaped.layout().layout()).to_json())
}

/// The canonical K-major tile of shared memory. That library has the layout and its swizzle apart:
/// the swizzle of the tile must be the one that it uses, and the layout is compared. A type without
/// a counterpart is skipped.
fn k_major(case: &GoldenCase<'_>) -> Option<CaseOutcome> {
    let bits = match case.args["dtype"].as_str()? {
        "bfloat16" | "float16" => 16,
        "float32" => 32,
        "float8_e4m3fn" | "float8_e5m2" => 8,
        _ => return None,
    };
    let (width, mixed) = match case.args["swizzle"].as_str()? {
        "SWIZZLE_NONE" => (SwizzleWidth::Interleaved, 0),
        "SWIZZLE_32B" => (SwizzleWidth::Bytes32, 1),
        "SWIZZLE_64B" => (SwizzleWidth::Bytes64, 2),
        "SWIZZLE_128B" => (SwizzleWidth::Bytes128, 3),
        _ => return None,
    };
    Some((|| {
        let shape = IntTuple::flat(&[case.int("BM")?, case.int("BK")?])?;
        let tile = CanonicalAtom { major: Major::K, width }.tile_to_shape(bits, &shape, Order::Left)?;
        // Vectors of 16 bytes stay whole, and 8 of them are a row of banks.
        let theirs = Swizzle::new(mixed, i64::from((128 / bits).ilog2()), 3)?;
        listed("a tile", tile.size())?;
        if (0..tile.size()).any(|offset| tile.swizzle().apply(offset) != theirs.apply(offset)) {
            return Ok(LayoutValue::from(tile).to_json());
        }
        Ok(LayoutValue::from(tile.layout()).to_json())
    })())
}

fn written(case: &GoldenCase<'_>) -> Option<CaseOutcome> {
    Some(match case.name {
        "String(IntTuple)" | "String(RuntimeTuple)" => of_tuple(case, |t| Ok(LayoutValue::Word(spaced(t)))),
        // In one more pair of parentheses.
        "Layout.write_to" | "tile.Layout.write_to" => {
            (|| Ok(Json::from(format!("({})", spaced(&case.layout("layout")?)))))()
        }
        "String(RuntimeLayout)" => (|| Ok(Json::from(format!("({})", spaced(&of_fields(case)?)))))(),
        "format_layout" => Err(Obstacle::Differs(SkipReason::Drawing)),
        _ => return None,
    })
}

/// The notation with a blank after a comma, as that library prints it.
fn spaced(text: &impl ToString) -> String {
    text.to_string().replace(',', ", ")
}

/// The reads that bank conflicts cost when threads, warp by warp, read the vectors of a tensor in
/// turns.
fn excess(case: &GoldenCase<'_>) -> CaseOutcome {
    let data = case.layout("data_layout")?;
    let threads = case.layout("thread_layout")?;
    let vector = case.tuple("vec")?;
    let bytes = case.int("type_bytes")?;
    let swizzle = case.value("swizzle")?.swizzle()?;
    listed("an access", data.size())?;
    let &[rows @ (1..), columns @ (1..)] = vector.values() else {
        return Err(ExpressionRefusal::Kind { expected: "the two extents of a vector", found: "another tuple" }.into());
    };
    let lanes = [rows, columns];
    let turns = [0, 1].map(|m| data.extent(m) / lanes[m] / threads.extent(m));
    let mut excess = 0;
    for row in 0..turns[0] {
        for column in 0..turns[1] {
            let start = data.offset(&IntTuple::flat(&[
                row * threads.extent(0) * lanes[0],
                column * threads.extent(1) * lanes[1],
            ])?)?;
            let modes: Vec<Layout> = (0..2)
                .map(|m| data.mode(m)?.composition(&Layout::leaf(threads.extent(m), lanes[m])?))
                .collect::<Result<_, LayoutError>>()?;
            let access = Layout::tuple(&modes)?.composition(&threads.right_inverse())?;
            let access = tilewright_layout::Composed::new(swizzle, start, access);
            excess += analysis::wavefronts(&access, bytes, bytes.saturating_mul(vector.product()?))?.excess();
        }
    }
    Ok(Json::from(excess))
}
