//! Writes `typed_golden.rs`, golden vectors as programs in typed layouts, and keeps it up to date.
//!
//! To rewrite the file, run this test with `UPDATE_TYPED_GOLDEN=1`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Cases per operation, spread over all there are.
const PER_OPERATION: usize = 20;

/// A program: the typed layout, and what it must be.
struct Case {
    id: String,
    layout: String,
    expected: String,
}

#[test]
fn typed_golden_is_up_to_date() {
    let (text, count) = source();
    assert!(count >= 200, "only {count} golden cases can be said in types");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/typed_golden.rs");
    if std::env::var_os("UPDATE_TYPED_GOLDEN").is_some() {
        let fresh = path.with_extension("rs.new");
        std::fs::write(&fresh, &text).unwrap();
        std::fs::rename(&fresh, &path).unwrap();
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(present == text, "typed_golden.rs is not what the golden vectors give; run with UPDATE_TYPED_GOLDEN=1");
}

fn source() -> (String, usize) {
    let mut operations: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    for file in ["layout_cases.jsonl", "swizzle_cases.jsonl"] {
        let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "tests", "golden", file].iter().collect();
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let operation = case["op"].as_str().unwrap();
            if let Some((layout, expected)) = typed(operation, case["args"].as_array().unwrap(), &case["out"]) {
                let id = case["id"].as_str().unwrap().to_owned();
                operations.entry(operation.to_owned()).or_default().push(Case { id, layout, expected });
            }
        }
    }
    let mut text = HEADER.to_owned();
    let mut count = 0;
    for (operation, cases) in &operations {
        writeln!(text, "\n#[test]\nfn {operation}() {{").unwrap();
        for case in cases.iter().step_by(cases.len().div_ceil(PER_OPERATION)) {
            writeln!(text, "    is::<{}>(\"{}\", \"{}\");", case.layout, case.id, case.expected).unwrap();
            count += 1;
        }
        text += "}\n";
    }
    (text, count)
}

const HEADER: &str = "\
//! Golden vectors as programs in typed layouts. Written by `typed_golden_source.rs`; do not edit.
#![cfg_attr(rustfmt, rustfmt_skip)]

mod check;

use check::is;
use tilewright_layout::typed::*;
";

/// The typed layout of a case and what it must be, or `None` where the case cannot be said.
fn typed(operation: &str, args: &[Value], out: &Value) -> Option<(String, String)> {
    let arg = |index: usize| args.get(index).unwrap_or(&Value::Null);
    let l = || layout(arg(0));
    let unary = |name: &str| Some(format!("{name}<{}>", l()?)).filter(|_| args.len() == 1);
    let number = |name: &str, index: usize| Some(format!("{name}<{}, {}>", l()?, arg(index).as_u64()?));
    let tiled = |name: &str| Some(format!("{name}<{}, {}>", l()?, tiler(arg(1))?));
    let pair = |name: &str| Some(format!("{name}<{}, {}>", l()?, layout(arg(1))?));
    let exact = |name: &str| tiled(name).filter(|_| size(&out["shape"]) == size(&arg(0)["shape"]));
    let text = match operation {
        "composition" if arg(1).is_object() => pair("Composed")?,
        "composition" => tiled("ComposedByMode")?,
        "complement" => number("Complement", 1)?,
        "coalesce" => unary("Coalesced")?,
        "filter" => unary("Filtered")?,
        "flatten" => unary("Flattened")?,
        "right_inverse" => unary("RightInverse")?,
        "left_inverse" => unary("LeftInverse")?,
        "blocked_product" => pair("BlockedProduct")?,
        "raked_product" => pair("RakedProduct")?,
        "logical_product" => tiled("LogicalProduct")?,
        "zipped_product" => tiled("ZippedProduct")?,
        "tiled_product" => tiled("TiledProduct")?,
        "flat_product" => tiled("FlatProduct")?,
        "logical_divide" => exact("LogicalDivide").or_else(|| tiled("LogicalDivideCeil"))?,
        "zipped_divide" => exact("ZippedDivide")?,
        "tiled_divide" => exact("TiledDivide")?,
        "flat_divide" => exact("FlatDivide")?,
        "upcast" => number("Upcast", 1)?,
        "downcast" => number("Downcast", 1)?,
        "get" => number("Mode", 1)?,
        "select" => format!("Selected<{}, {}>", l()?, tuple(arg(1))?),
        "group_modes" => format!("Grouped<{}, {}, {}>", l()?, arg(1).as_u64()?, arg(2).as_u64()?),
        "make_layout" | "make_ordered_layout" => compact(arg(0), arg(1))?,
        "tile_to_shape" => to_shape(&l()?, arg(1), arg(2))?,
        "gmma_smem_layout" => {
            let inner = format!("Strided<{}, {}>", tuple(&out["layout"]["shape"])?, tuple(&out["layout"]["stride"])?);
            let swizzle = &out["swizzle_elems"]["swizzle"];
            return Some((format!("Swizzled<{}, {inner}>", swizzle_type(swizzle)?), format!("sum {}", out["wsum"])));
        }
        "swizzle_layout" if arg(1) == 0 => {
            let table = out.as_array().filter(|table| table.len() <= 256)?;
            return Some((format!("Swizzled<{}, {}>", swizzle_type(arg(0))?, layout(arg(2))?), list(table)));
        }
        "swizzle_layout_composition" if arg(1) == 0 && arg(3).is_object() => {
            let swizzled = format!("Swizzled<{}, {}>", swizzle_type(arg(0))?, layout(arg(2))?);
            format!("Composed<{swizzled}, {}>", layout(arg(3))?)
        }
        _ => return None,
    };
    Some((text, expected(out)?))
}

fn compact(shape: &Value, order: &Value) -> Option<String> {
    match order {
        Value::Null => Some(format!("Compact<{}>", tuple(shape)?)),
        Value::String(order) if order == "LayoutLeft" => Some(format!("Compact<{}>", tuple(shape)?)),
        Value::String(order) if order == "LayoutRight" => Some(format!("CompactRight<{}>", tuple(shape)?)),
        order => Some(format!("Ordered<{}, {}>", tuple(shape)?, tuple(order)?)),
    }
}

fn to_shape(block: &str, shape: &Value, order: &Value) -> Option<String> {
    let shape = tuple(shape)?;
    match order {
        Value::Null => Some(format!("TileToShape<{block}, {shape}>")),
        Value::String(order) if order == "LayoutLeft" => Some(format!("TileToShapeIn<{block}, {shape}, FirstFastest>")),
        Value::String(order) if order == "LayoutRight" => Some(format!("TileToShapeIn<{block}, {shape}, LastFastest>")),
        order => Some(format!("TileToShapeIn<{block}, {shape}, InOrder<{}>>", tuple(order)?)),
    }
}

/// A nested tuple of integers as a type: `(Int<2>, (Int<3>,))`.
fn tuple(value: &Value) -> Option<String> {
    nested(value, &|leaf| Some(format!("Int<{}>", leaf.as_i64()?)))
}

fn tiler(value: &Value) -> Option<String> {
    nested(value, &|leaf| match leaf {
        Value::String(text) if text == "_" => Some("Keep".to_owned()),
        Value::Object(_) => layout(leaf),
        extent => Some(format!("Int<{}>", extent.as_i64()?)),
    })
}

fn nested(value: &Value, leaf: &dyn Fn(&Value) -> Option<String>) -> Option<String> {
    match value {
        Value::Array(modes) if modes.is_empty() || modes.len() > 8 => None,
        Value::Array(modes) => {
            let modes = modes.iter().map(|mode| nested(mode, leaf)).collect::<Option<Vec<_>>>()?;
            Some(if modes.len() == 1 { format!("({},)", modes[0]) } else { format!("({})", modes.join(", ")) })
        }
        value => leaf(value),
    }
}

fn layout(value: &Value) -> Option<String> {
    let shape = value.get("shape")?;
    let stride = value.get("stride")?;
    Some(format!("Strided<{}, {}>", tuple(shape)?, tuple(stride)?))
}

fn swizzle_type(value: &Value) -> Option<String> {
    Some(format!("Swizzle<{}, {}, {}>", value[0].as_i64()?, value[1].as_i64()?, value[2].as_i64()?))
}

fn expected(out: &Value) -> Option<String> {
    if let Some(swizzle) = out.get("a") {
        let swizzle = &swizzle["swizzle"];
        let inner = format!("{} o {}", out["offset"], expected(&out["b"])?);
        return Some(format!("S<{},{},{}> o {inner}", swizzle[0], swizzle[1], swizzle[2])).filter(|_| swizzle[0] != 0);
    }
    Some(format!("{}:{}", notation(out.get("shape")?), notation(out.get("stride")?)))
}

fn notation(value: &Value) -> String {
    match value {
        Value::Array(modes) => format!("({})", modes.iter().map(notation).collect::<Vec<_>>().join(",")),
        leaf => leaf.to_string(),
    }
}

fn size(shape: &Value) -> i64 {
    match shape {
        Value::Array(modes) => modes.iter().map(size).product(),
        leaf => leaf.as_i64().unwrap_or(1),
    }
}

fn list(table: &[Value]) -> String {
    format!("[{}]", table.iter().map(Value::to_string).collect::<Vec<_>>().join(", "))
}
