//! Mojo's cases of tuples, of layouts as functions, and of its identities.

use serde_json::Value as Json;
use tilewright_layout::ops::Order;
use tilewright_layout::swizzle::canonical::{Atom, Major, SwizzleWidth};
use tilewright_layout::{IntTuple, Layout, analysis, laws};

use super::mojo::{Outcome, field};
use super::value::Value;
use super::{Refusal, mojo_views};

/// What this algebra gives for a case, or `None` where it has no counterpart.
pub(super) fn counterpart(name: &str, args: &Json) -> Option<Outcome> {
    if let Some(identity) = name.strip_prefix("property: ") {
        return property(identity, args).map(|holds| Ok(Json::Bool(holds?)));
    }
    Some(match name {
        "Coord.flatten" | "RuntimeTuple.flatten" => of_tuple(args, |t| Ok(Value::from(t.values().to_vec()))),
        "Coord.static_product" | "product" => of_tuple(args, |t| Ok(Value::Int(t.product()))),
        "coalesce_nested_tuple (product per top-level mode)" => of_tuple(args, |t| Ok(t.product_each()?.into())),
        "Coord.flat_rank" => of_tuple(args, |t| Ok(Value::Int(t.values().len() as i64))),
        "len(IntTuple)" => of_tuple(args, |t| Ok(Value::Int(t.rank() as i64))),
        "String(IntTuple)" | "String(RuntimeTuple)" => of_tuple(args, |t| Ok(Value::Word(spaced(t)))),
        "IntTuple.__eq__" => pair(args, |a, b| Ok(Value::Bool(a == b))),
        "weakly_congruent" => pair(args, |a, b| Ok(Value::Bool(a.weakly_congruent(b)))),
        "shape_div" if divides(args)? => pair(args, |a, b| Ok(a.shape_div(b)?.into())),
        "row_major_nested(shape)(crd)" => offset_in(args, Layout::row_major, false),
        "row_major_nested(shape)(flat crd)" => offset_in(args, Layout::row_major, true),
        "col_major_nested(shape)(crd)" => offset_in(args, Layout::col_major, false),
        "tile.Layout.__call__ (flat coords = flat dot product)" => flat_offset(args),
        "Layout.row_major.stride.value(i)" => strides(args, Layout::row_major),
        "Layout.col_major.stride.value(i)" => strides(args, Layout::col_major),
        "TileTensor.dim[i]" => (|| Ok(Value::from(field(args, "shape")?.tuple()?.product_each()?).to_json()))(),
        "tile_layout_k_major == tile_layout_k_major_typed" => k_major(args)?,
        "ComposedLayout(B after A): B(offset + A(i))" => (|| {
            let (a, b) = (field(args, "layout_a_first")?.layout()?, field(args, "layout_b_second")?.layout()?);
            Ok(Json::from(b.at(field(args, "offset")?.int()? + a.at(field(args, "i")?.int()?))))
        })(),
        "tile.Layout([col_tile,row_tile]) == legacy Layout([col_tile,row_tile])" => grid(args),
        "tile.idx2crd" => {
            (|| Ok(Value::from(of_fields(args)?.coordinate_of_offset(number(args, "idx")?)?).to_json()))()
        }
        "iter(Layout)" => (|| {
            let layout = field(args, "layout")?.layout()?;
            (0..layout.rank()).map(|i| Ok(Value::from(layout.mode(i)?).to_json())).collect()
        })(),
        "upcast(upcast)" => (|| {
            let mut layout = field(args, "layout")?.layout()?;
            for factor in field(args, "factors")?.tuple()?.values() {
                layout = layout.upcast(*factor)?;
            }
            Ok(Value::from(layout).to_json())
        })(),
        "make_layout(RuntimeLayout,RuntimeLayout)" => (|| {
            let modes = [field(args, "a")?.layout()?, field(args, "b")?.layout()?];
            Ok(Value::from(Layout::tuple(&modes)?).to_json())
        })(),
        "RuntimeLayout.sublayout" => {
            (|| Ok(Value::from(of_fields(args)?.mode(field(args, "mode")?.index()?)?).to_json()))()
        }
        "TileTensor.reshape (row-major strides)" => {
            (|| Ok(Value::from(Layout::row_major(&field(args, "shape")?.tuple()?)?).to_json()))()
        }
        "Layout.write_to" | "tile.Layout.write_to" => written(field(args, "layout").and_then(|l| l.layout())),
        "String(RuntimeLayout)" => written(of_fields(args)),
        "count_wavefronts().excess (32 banks x 4B, max 16B op)" => excess(args),
        _ => return mojo_views::counterpart(name, args),
    })
}

fn number(args: &Json, name: &str) -> Result<i64, Refusal> {
    field(args, name)?.int()
}

fn of_fields(args: &Json) -> Result<Layout, Refusal> {
    Ok(Layout::new(&field(args, "shape")?.tuple()?, &field(args, "stride")?.tuple()?)?)
}

fn of_tuple(args: &Json, run: impl FnOnce(&IntTuple) -> Result<Value, Refusal>) -> Outcome {
    Ok(run(&field(args, "t")?.tuple()?)?.to_json())
}

fn pair(args: &Json, run: impl FnOnce(&IntTuple, &IntTuple) -> Result<Value, Refusal>) -> Outcome {
    Ok(run(&field(args, "a")?.tuple()?, &field(args, "b")?.tuple()?)?.to_json())
}

/// Whether the quotient exists here: that library rounds up where neither number divides the other.
fn divides(args: &Json) -> Option<bool> {
    let (a, b) = (field(args, "a").ok()?.tuple().ok()?, field(args, "b").ok()?.tuple().ok()?);
    Some(a.shape_div(&b).is_ok())
}

/// The notation with a blank after a comma, as that library prints it.
fn spaced(text: &impl ToString) -> String {
    text.to_string().replace(',', ", ")
}

/// A layout as that library prints it: in one more pair of parentheses.
fn written(layout: Result<Layout, Refusal>) -> Outcome {
    Ok(Json::from(format!("({})", spaced(&layout?))))
}

type Compact = fn(&IntTuple) -> Result<Layout, tilewright_layout::LayoutError>;

fn offset_in(args: &Json, compact: Compact, flat: bool) -> Outcome {
    let layout = compact(&field(args, "shape")?.tuple()?)?;
    let layout = if flat { layout.flatten() } else { layout };
    Ok(Json::from(layout.offset(&field(args, "crd")?.tuple()?)?))
}

fn flat_offset(args: &Json) -> Outcome {
    let layout = field(args, "layout")?.layout()?.flatten();
    Ok(Json::from(layout.offset(&field(args, "crd")?.tuple()?)?))
}

fn strides(args: &Json, compact: Compact) -> Outcome {
    Ok(Value::from(compact(&field(args, "shape")?.tuple()?)?.stride()).to_json())
}

/// The canonical K-major tile of shared memory, without its swizzle; a type without a counterpart is skipped.
fn k_major(args: &Json) -> Option<Outcome> {
    let bits = match args["dtype"].as_str()? {
        "bfloat16" | "float16" => 16,
        "float32" => 32,
        "float8_e4m3fn" => 8,
        _ => return None,
    };
    let width = match args["swizzle"].as_str()? {
        "SWIZZLE_NONE" => SwizzleWidth::Interleaved,
        "SWIZZLE_32B" => SwizzleWidth::Bytes32,
        "SWIZZLE_64B" => SwizzleWidth::Bytes64,
        "SWIZZLE_128B" => SwizzleWidth::Bytes128,
        _ => return None,
    };
    Some((|| {
        let shape = IntTuple::flat(&[number(args, "BM")?, number(args, "BK")?])?;
        let tile = Atom { major: Major::K, width }.tile_to_shape(bits, &shape, Order::Left)?;
        Ok(Value::from(tile.layout()).to_json())
    })())
}

/// The offsets of a layout of rank 2, row by row.
fn grid(args: &Json) -> Outcome {
    let layout = field(args, "layout")?.layout()?;
    let row = |i| {
        (0..layout.extent(1)).map(|j| Ok(Json::from(layout.offset(&IntTuple::flat(&[i, j])?)?))).collect::<Outcome>()
    };
    (0..layout.extent(0)).map(row).collect()
}

fn property(identity: &str, args: &Json) -> Option<Result<bool, Refusal>> {
    let layout = || field(args, "layout")?.layout();
    let transposed = |layout: &Layout| {
        let modes: Vec<usize> = (0..layout.rank()).rev().collect();
        layout.select(&modes)
    };
    Some(match identity {
        "RuntimeLayout(flat crd)==crd2idx(nested crd)" => (|| {
            let (layout, crd) = (layout()?, field(args, "crd")?.tuple()?);
            let flat = IntTuple::flat(crd.values())?;
            Ok(layout.flatten().offset(&flat)? == layout.offset(&crd)?)
        })(),
        "RuntimeLayout(i)==crd2idx(i)" => (|| {
            let (layout, i) = (layout()?, number(args, "i")?);
            Ok(layout.at(i) == layout.offset(&layout.shape().coordinate(i)?)?)
        })(),
        "idx2crd(runtime)==idx2crd(IntTuple)" => (|| {
            let (shape, i) = (field(args, "shape")?.tuple()?, number(args, "idx")?);
            let coordinate = shape.coordinate(i)?;
            Ok(shape.index_of(&coordinate)? == i && Layout::col_major(&shape)?.coordinate_of_offset(i)? == coordinate)
        })(),
        "transpose(transpose(L))==L and sizes equal" => (|| {
            let layout = layout()?;
            let once = transposed(&layout)?;
            Ok(transposed(&once)? == layout && once.size() == layout.size())
        })(),
        "cosize(transpose(L))==cosize(L)" => (|| {
            let layout = layout()?;
            Ok(transposed(&layout)?.cosize() == layout.cosize())
        })(),
        "row_major(3,4)((i,j)) == transposed((j,i))" => (|| {
            let layout = layout()?;
            let other = transposed(&layout)?;
            for i in 0..layout.extent(0) {
                for j in 0..layout.extent(1) {
                    if layout.offset(&IntTuple::flat(&[i, j])?)? != other.offset(&IntTuple::flat(&[j, i])?)? {
                        return Ok(false);
                    }
                }
            }
            Ok(true)
        })(),
        _ if identity.starts_with("images of L and complement(L)") => (|| {
            let layout = layout()?;
            let complement = layout.complement_self()?;
            Ok(laws::complement(&layout, 1, &complement, false).is_ok())
        })(),
        _ => return None,
    })
}

/// The reads that bank conflicts cost when threads, warp by warp, read the vectors of a tensor in turns.
fn excess(args: &Json) -> Outcome {
    let (data, threads) = (field(args, "data_layout")?.layout()?, field(args, "thread_layout")?.layout()?);
    let (vector, bytes) = (field(args, "vec")?.tuple()?, number(args, "type_bytes")?);
    let swizzle = field(args, "swizzle")?.swizzle()?;
    let turns: Vec<i64> = (0..2).map(|m| data.extent(m) / vector.values()[m] / threads.extent(m)).collect();
    let mut excess = 0;
    for row in 0..turns[0] {
        for column in 0..turns[1] {
            let start = data.offset(&IntTuple::flat(&[
                row * threads.extent(0) * vector.values()[0],
                column * threads.extent(1) * vector.values()[1],
            ])?)?;
            let modes: Vec<Layout> = (0..2)
                .map(|m| data.mode(m)?.composition(&Layout::leaf(threads.extent(m), vector.values()[m])?))
                .collect::<Result<_, _>>()?;
            let order = threads.right_inverse();
            let access = Layout::tuple(&modes)?.composition(&order)?;
            let access = tilewright_layout::Composed::new(swizzle, start, access);
            excess += analysis::wavefronts(&access, bytes, bytes * vector.product())?.excess();
        }
    }
    Ok(Json::from(excess))
}
