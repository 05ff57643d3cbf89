//! Checks whether a result satisfies the definition of its operation if the reference library's
//! result does not.

use serde_json::Value as Json;
use tilewright_layout::{Swizzled, laws};

use crate::algebra::{ExpressionRefusal, LayoutValue};

/// Whether `result` is right by the definition of the operation. Cases that are not decided here
/// count as wrong.
pub(super) fn keeps_definition(name: &str, args: &[Json], result: &Json) -> bool {
    let Ok(args) = args.iter().map(LayoutValue::from_json).collect::<Result<Vec<_>, _>>() else { return false };
    if name == "swizzle_slice_and_offset" {
        return slices(&args, result).unwrap_or(false);
    }
    let Ok(LayoutValue::Layout(result)) = LayoutValue::from_json(result) else { return false };
    let layout = |index: usize| args.get(index).and_then(|value| value.layout().ok());
    match (name, layout(0), layout(1)) {
        ("composition", Some(a), Some(b)) => laws::composition(&a, &b, &result).is_ok(),
        ("left_inverse", Some(a), None) => laws::left_inverse(&a, &result).is_ok(),
        ("tile_to_shape" | "downcast" | "recast_layout", Some(block), None) => {
            laws::injective(&block).is_err() || laws::injective(&result).is_ok()
        }
        // One result does for all forms: they place the modes of one product.
        (
            "logical_product" | "zipped_product" | "tiled_product" | "flat_product" | "blocked_product"
            | "raked_product",
            Some(block),
            Some(copies),
        ) => laws::injective(&block).is_err() || laws::injective(&copies).is_err() || laws::injective(&result).is_ok(),
        _ => false,
    }
}

/// `slice(x) + offset == swizzle(start + slice of the inner layout)` at every `x`.
fn slices(args: &[LayoutValue], result: &Json) -> Result<bool, ExpressionRefusal> {
    let [coordinate, swizzle, start, inner] = args else { return Ok(false) };
    let swizzle = swizzle.swizzle()?;
    let start = start.int()?;
    let (inner, inner_offset) = inner.layout()?.slice_and_offset(&coordinate.coord()?)?;
    let offset = i128::from(LayoutValue::from_json(&result[1])?.int()?);
    let first = start.checked_add(inner_offset).ok_or(ExpressionRefusal::Negative { value: start })?;
    let wanted = Swizzled::new(swizzle, first, inner).checked()?;
    let slice: Box<dyn Fn(i64) -> i64> = match LayoutValue::from_json(&result[0])? {
        LayoutValue::Layout(layout) => Box::new(move |x| layout.at(x)),
        LayoutValue::Swizzled(swizzled) => Box::new(move |x| swizzled.at(x)),
        _ => return Ok(false),
    };
    Ok((0..inner.size()).all(|x| i128::from(slice(x)) + offset == i128::from(wanted.at(x))))
}
