//! Mojo's cases of the layout algebra: construction, division, product, composition, swizzles.

use serde_json::Value as Json;
use tilewright_layout::{IntTuple, Layout, LayoutError, Profile, Swizzle, Swizzled, Tiler, laws};

use super::case::{CaseOutcome, GoldenCase, Obstacle};
use crate::algebra::listed;
use crate::algebra::{LayoutValue, apply};

/// The result of the equivalent operation; `None` if there is none here.
pub(super) fn counterpart(case: &GoldenCase<'_>) -> Option<CaseOutcome> {
    let name = case.name;
    let (operation, fields): (&str, &[&str]) = match name {
        "logical_divide(layout,tiler_list)" | "zipped_divide(layout,tiler_list)" => {
            (name.split_once('(')?.0, &["A", "tiler"])
        }
        "tile.zipped_divide" => ("zipped_divide", &["layout", "tile"]),
        "logical_product" => (name, &["A", "B"]),
        "logical_product(layout,tiler_list)" => ("logical_product", &["A", "tiler"]),
        "tile_to_shape" if case.has("order") => (name, &["tile", "target", "order"]),
        "tile_to_shape" => (name, &["tile", "target"]),
        "complement" => (name, &["layout", "size"]),
        "coalesce" if !case.has("keep_rank") => (name, &["layout"]),
        "sublayout" => ("select", &["layout", "modes"]),
        "RuntimeLayout.size" | "tile.Layout.product" | "tile.Layout.static_product" if case.has("layout") => {
            ("size", &["layout"])
        }
        "tile.Layout.cosize" => ("cosize", &["layout"]),
        "upcast" | "tile.upcast" => ("upcast", &["layout", "factor"]),
        "Layout.idx2crd" => ("get_hier_coord", &["layout", "idx"]),
        "idx2crd" if case.has("stride") => (name, &["idx", "shape", "stride"]),
        "idx2crd" => (name, &["idx", "shape"]),
        "crd2idx" | "crd2idx(RuntimeTuple)" if !case.has("stride") => ("crd2idx", &["crd", "shape"]),
        "inner_product" => (name, &["a", "b"]),
        "expand_modes_alike" => (name, &["A", "B"]),
        "tile.Layout.__call__"
        | "tile.Layout.__call__ (exact)"
        | "tile.Layout.__call__ (rank match; scalar is colexicographic inside mode)"
        | "tile.Layout.__call__ (scalar, colexicographic)"
        | "tile offset of crd (exact)"
        | "RuntimeLayout (int64 linear index)" => ("crd2idx", &["crd", "layout"]),
        _ => return special(case).or_else(|| law(case).map(|holds| Ok(Json::Bool(holds?)))),
    };
    Some((|| {
        let values = fields.iter().map(|name| case.value(name)).collect::<Result<Vec<_>, _>>()?;
        Ok(apply(operation, &values)?.to_json())
    })())
}

fn json(layout: Layout) -> CaseOutcome {
    Ok(LayoutValue::from(layout).to_json())
}

fn special(case: &GoldenCase<'_>) -> Option<CaseOutcome> {
    Some(match case.name {
        "Layout.row_major" | "tile.row_major" | "row_major_nested" => compact(case, Layout::row_major),
        "Layout.col_major" | "Layout.col_major[rank]" | "tile.col_major" | "col_major_nested" => {
            compact(case, Layout::col_major)
        }
        "compact_order" => {
            (|| Ok(LayoutValue::from(Layout::ordered(&case.tuple("shape")?, &case.tuple("order")?)?.stride()).to_json()))(
            )
        }
        "crd2idx" | "crd2idx(RuntimeTuple)" => (|| {
            let layout = Layout::new(&case.tuple("shape")?, &case.tuple("stride")?)?;
            Ok(Json::from(layout.offset(&case.tuple("crd")?)?))
        })(),
        "zipped_divide" => (|| {
            let layout = case.layout("A")?;
            let tile = case.layout("B")?.shape();
            json(layout.zipped_divide(&extents_of(&layout.shape(), &tile)?)?)
        })(),
        "blocked_product" | "tile.blocked_product" | "tile.blocked_product(coalesce_output)" => (|| {
            let product = case.layout("block")?.blocked_product(&case.layout("tiler")?)?;
            let merged = case.name.ends_with("(coalesce_output)") || case.args["coalesce_output"] == true;
            json(if merged { by_mode(&product)? } else { product })
        })(),
        "coalesce" => (|| {
            let layout = case.layout("layout")?;
            json(if case.args["keep_rank"] == true { by_mode(&layout)? } else { layout.coalesce() })
        })(),
        "coalesce(RuntimeLayout with unknown statics)" => {
            (|| json(Layout::new(&case.tuple("shape")?, &case.tuple("stride")?)?.coalesce()))()
        }
        "RuntimeLayout.size" => (|| {
            let strides = case.layout("static_layout").map(|layout| layout.stride());
            let strides =
                strides.or_else(|_| LayoutValue::from_json(&case.args["static_layout"]["stride"])?.tuple())?;
            Ok(Json::from(Layout::new(&case.tuple("runtime_shape")?, &strides)?.size()))
        })(),
        "Layout.transpose" | "tile.Layout.transpose" | "tile.Layout.reverse" => {
            (|| json(transposed(&case.layout("layout")?)?))()
        }
        "is_row_major[rank]" => (|| {
            let layout = case.layout("layout")?;
            Ok(Json::Bool(layout == Layout::row_major(&layout.shape())?))
        })(),
        "Swizzle(bits,base,shift) over a range" => (|| {
            let swizzle = Swizzle::new(case.int("bits")?, case.int("base")?, case.int("shift")?)?;
            let start = case.int("start")?;
            let count = case.int("count")?;
            listed("a swizzle", count)?;
            Ok((start..start.saturating_add(count)).map(|i| swizzle.apply(i)).collect())
        })(),
        "ComposedLayout(Swizzle after Layout)" => (|| {
            let swizzle = case.value("swizzle")?.swizzle()?;
            let layout = case.layout("layout")?;
            let swizzled = Swizzled::new(swizzle, case.int("offset")?, layout);
            Ok(Json::from(swizzled.offset(&IntTuple::int(case.int("i")?))?))
        })(),
        _ => return None,
    })
}

fn compact(case: &GoldenCase<'_>, build: fn(&IntTuple) -> Result<Layout, LayoutError>) -> CaseOutcome {
    json(build(&case.tuple("shape")?)?)
}

/// Converts a tile to extents: Mojo divides by the shape of a tile alone and ignores its strides. A
/// nested extent of an integer mode is a compact tile.
fn extents_of(shape: &IntTuple, tile: &IntTuple) -> Result<Tiler, LayoutError> {
    if tile.is_int() {
        return Ok(Tiler::extent(tile.product()?));
    }
    if shape.is_int() {
        return Ok(Tiler::layout(&Layout::col_major(tile)?));
    }
    let modes = (0..tile.rank()).map(|i| extents_of(&shape.mode(i)?, &tile.mode(i)?));
    Tiler::by_mode(&modes.collect::<Result<Vec<_>, _>>()?)
}

/// The layout coalesced mode by mode.
fn by_mode(layout: &Layout) -> Result<Layout, LayoutError> {
    let profile: Profile = IntTuple::flat(&vec![0; layout.rank()])?.profile();
    layout.coalesce_modes(&profile)
}

fn transposed(layout: &Layout) -> Result<Layout, LayoutError> {
    let modes: Vec<usize> = (0..layout.rank()).rev().collect();
    layout.select(&modes)
}

/// Whether an identity holds that a case states.
fn law(case: &GoldenCase<'_>) -> Option<Result<bool, Obstacle>> {
    let identity = case.name.strip_prefix("property: ")?;
    let starts = |start: &str| identity.starts_with(start);
    Some(if starts("composition(A,B)") {
        (|| {
            let a = case.layout("A")?;
            let b = case.layout("B")?;
            listed("composition", b.size())?;
            Ok(laws::composition(&a, &b, &a.composition(&b)?).is_ok())
        })()
    } else if starts("size(coalesce(L))") {
        enumerated(case).map(|layout| laws::coalesce(&layout, &layout.coalesce()).is_ok())
    } else if starts("L(right_inverse(L)(i))==i") {
        enumerated(case).map(|layout| {
            let inverse = layout.right_inverse();
            inverse.size() == layout.size() && laws::right_inverse(&layout, &inverse).is_ok()
        })
    } else if starts("images of L and complement(L)") {
        (|| {
            let layout = enumerated(case)?;
            Ok(laws::complement(&layout, 1, &layout.complement_self()?, false).is_ok())
        })()
    } else if starts("transpose(transpose(L))==L") {
        (|| {
            let layout = case.layout("layout")?;
            let once = transposed(&layout)?;
            Ok(transposed(&once)? == layout && once.size() == layout.size())
        })()
    } else if starts("cosize(transpose(L))==cosize(L)") {
        case.layout("layout").and_then(|layout| Ok(transposed(&layout)?.cosize() == layout.cosize()))
    } else if starts("row_major(3,4)((i,j)) == transposed((j,i))") {
        enumerated(case).and_then(|layout| Ok(transposes(&layout, &transposed(&layout)?)?))
    } else {
        return None;
    })
}

/// A layout that is small enough to try every coordinate.
fn enumerated(case: &GoldenCase<'_>) -> Result<Layout, Obstacle> {
    let layout = case.layout("layout")?;
    listed("a law", layout.size())?;
    listed("a law", layout.cosize())?;
    Ok(layout)
}

/// Whether the one layout at `(i, j)` is the other at `(j, i)`.
fn transposes(layout: &Layout, other: &Layout) -> Result<bool, LayoutError> {
    for i in 0..layout.extent(0) {
        for j in 0..layout.extent(1) {
            if layout.offset(&IntTuple::flat(&[i, j])?)? != other.offset(&IntTuple::flat(&[j, i])?)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
