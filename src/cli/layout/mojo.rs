//! The cases of Mojo's layout tests that share a convention with this algebra.
//!
//! A case names a function of that library; here is what each is called in this one. What has no counterpart, or another
//! meaning, is skipped: the table in `docs/layout.md` gives the reasons.

use serde_json::Value as Json;
use tilewright_layout::{Composed, Layout, Swizzle, laws};

use super::check::Verdict;
use super::value::Value;
use super::{Refusal, mojo_tuples, operations};

/// Judges a case, or skips one whose convention differs.
pub(super) fn verdict(case: &Json) -> Verdict {
    let (name, args) = (case["fn"].as_str().unwrap_or_default(), &case["args"]);
    // -1 stands for an extent known at run time only; this algebra has no such number.
    if unknown(args) || unknown(&case["expected"]) {
        return Verdict::Skip;
    }
    let Some(outcome) = counterpart(name, args) else { return Verdict::Skip };
    match outcome {
        Ok(found) if same(&found, &case["expected"]) => Verdict::Pass,
        Ok(found) => Verdict::Fail(format!("{name}{args} gave {found}, expected {}", case["expected"])),
        Err(refusal) => Verdict::Fail(format!("{name}{args} was refused ({refusal}), expected {}", case["expected"])),
    }
}

fn unknown(json: &Json) -> bool {
    match json {
        Json::Array(items) => items.iter().any(unknown),
        Json::Object(fields) => {
            ["shape", "stride", "layout", "t"].iter().any(|name| fields.get(*name).is_some_and(|f| contains(f, -1)))
                || fields.values().any(unknown)
        }
        _ => false,
    }
}

fn contains(json: &Json, value: i64) -> bool {
    match json {
        Json::Array(items) => items.iter().any(|item| contains(item, value)),
        Json::Object(fields) => fields.values().any(|field| contains(field, value)),
        other => other.as_i64() == Some(value),
    }
}

/// Equality of that library: a tuple of one is its element. A stride over one element means nothing and is not compared.
fn same(found: &Json, expected: &Json) -> bool {
    match (found, expected) {
        (Json::Object(_), Json::Object(_)) if found.get("stride").is_some() && expected.get("stride").is_some() => {
            same(&found["shape"], &expected["shape"])
                && same(
                    &effective(&found["shape"], &found["stride"]),
                    &effective(&expected["shape"], &expected["stride"]),
                )
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Json::Array(a), b) if a.len() == 1 => same(&a[0], b),
        (a, Json::Array(b)) if b.len() == 1 => same(a, &b[0]),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// The strides, with 0 where the extent is 1.
fn effective(shape: &Json, stride: &Json) -> Json {
    match (shape, stride) {
        (Json::Array(shape), Json::Array(stride)) => shape.iter().zip(stride).map(|(s, d)| effective(s, d)).collect(),
        (extent, _) if extent.as_i64() == Some(1) => Json::from(0),
        (_, stride) => stride.clone(),
    }
}

pub(super) type Outcome = Result<Json, Refusal>;

fn counterpart(name: &str, args: &Json) -> Option<Outcome> {
    let (operation, fields): (&str, &[&str]) = match name {
        "Layout.row_major" | "tile.row_major" | "row_major_nested" => return Some(compact(args, true)),
        "Layout.col_major" | "Layout.col_major[rank]" | "tile.col_major" | "col_major_nested" => {
            return Some(compact(args, false));
        }
        "logical_divide(layout,tiler_list)" | "zipped_divide(layout,tiler_list)" => {
            (name.split_once('(')?.0, &["A", "tiler"])
        }
        "tile.zipped_divide" => ("zipped_divide", &["layout", "tile"]),
        "logical_product" => (name, &["A", "B"]),
        "logical_product(layout,tiler_list)" => ("logical_product", &["A", "tiler"]),
        "blocked_product" | "tile.blocked_product" if args.get("coalesce_output").is_none() => {
            ("blocked_product", &["block", "tiler"])
        }
        "tile_to_shape" if args.get("order").is_some() => (name, &["tile", "target", "order"]),
        "tile_to_shape" => (name, &["tile", "target"]),
        "complement" => (name, &["layout", "size"]),
        "coalesce" if args.get("keep_rank").is_none() => (name, &["layout"]),
        "sublayout" => ("select", &["layout", "modes"]),
        "RuntimeLayout.size" | "tile.Layout.product" | "tile.Layout.static_product" if args.get("layout").is_some() => {
            ("size", &["layout"])
        }
        "tile.Layout.cosize" => ("cosize", &["layout"]),
        "upcast" | "tile.upcast" => ("upcast", &["layout", "factor"]),
        "Layout.idx2crd" => ("get_hier_coord", &["layout", "idx"]),
        "idx2crd" if args.get("stride").is_some() => (name, &["idx", "shape", "stride"]),
        "idx2crd" => (name, &["idx", "shape"]),
        "crd2idx" | "crd2idx(RuntimeTuple)" if args.get("stride").is_none() => ("crd2idx", &["crd", "shape"]),
        "inner_product" => (name, &["a", "b"]),
        "compact_order" => {
            return Some(with_value(args, "shape", |shape| {
                let order = field(args, "order")?.tuple()?;
                Ok(Value::from(Layout::ordered(&shape.tuple()?, &order)?.stride()).to_json())
            }));
        }
        "tile.Layout.__call__"
        | "tile.Layout.__call__ (exact)"
        | "tile.Layout.__call__ (rank match; scalar is colexicographic inside mode)"
        | "tile.Layout.__call__ (scalar, colexicographic)"
        | "tile offset of crd (exact)"
        | "RuntimeLayout (int64 linear index)" => ("crd2idx", &["crd", "layout"]),
        _ => return special(name, args),
    };
    Some(call(operation, fields, args))
}

pub(super) fn field(args: &Json, name: &str) -> Result<Value, Refusal> {
    Value::from_json(&args[name])
}

fn call(operation: &str, fields: &[&str], args: &Json) -> Outcome {
    let values = fields.iter().map(|name| field(args, name)).collect::<Result<Vec<_>, _>>()?;
    Ok(operations::apply(operation, &values)?.to_json())
}

fn with_value(args: &Json, name: &str, run: impl FnOnce(Value) -> Outcome) -> Outcome {
    run(field(args, name)?)
}

fn compact(args: &Json, row_major: bool) -> Outcome {
    with_value(args, "shape", |shape| {
        let shape = shape.tuple()?;
        let layout = if row_major { Layout::row_major(&shape)? } else { Layout::col_major(&shape)? };
        Ok(Value::from(layout).to_json())
    })
}

fn special(name: &str, args: &Json) -> Option<Outcome> {
    let law = |holds: bool| Ok(Json::Bool(holds));
    if name.starts_with("property: composition(A,B)") {
        return Some((|| {
            let (a, b) = (field(args, "A")?.layout()?, field(args, "B")?.layout()?);
            law(laws::composition(&a, &b, &a.composition(&b)?).is_ok())
        })());
    }
    if name.starts_with("property: size(coalesce(L))") {
        return Some(with_value(args, "layout", |l| {
            let layout = l.layout()?;
            law(laws::coalesce(&layout, &layout.coalesce()).is_ok())
        }));
    }
    if name.starts_with("property: L(right_inverse(L)(i))==i") {
        return Some(with_value(args, "layout", |l| {
            let layout = l.layout()?;
            let inverse = layout.right_inverse();
            law(inverse.size() == layout.size() && laws::right_inverse(&layout, &inverse).is_ok())
        }));
    }
    Some(match name {
        "crd2idx" | "crd2idx(RuntimeTuple)" => (|| {
            let layout = Layout::new(&field(args, "shape")?.tuple()?, &field(args, "stride")?.tuple()?)?;
            Ok(Json::from(layout.offset(&field(args, "crd")?.tuple()?)?))
        })(),
        "Layout.transpose" | "tile.Layout.transpose" => with_value(args, "layout", |l| {
            let layout = l.layout()?;
            let modes: Vec<usize> = (0..layout.rank()).rev().collect();
            Ok(Value::from(layout.select(&modes)?).to_json())
        }),
        "Swizzle(bits,base,shift) over a range" => (|| {
            let number = |name: &str| field(args, name)?.int();
            let swizzle = Swizzle::new(number("bits")?, number("base")?, number("shift")?)?;
            let (start, count) = (number("start")?, number("count")?);
            Ok((start..start + count).map(|i| swizzle.apply(i)).collect())
        })(),
        "ComposedLayout(Swizzle after Layout)" => (|| {
            let (swizzle, layout) = (field(args, "swizzle")?.swizzle()?, field(args, "layout")?.layout()?);
            let composed = Composed::new(swizzle, field(args, "offset")?.int()?, layout);
            Ok(Json::from(composed.at(field(args, "i")?.int()?)))
        })(),
        _ => return mojo_tuples::counterpart(name, args),
    })
}
