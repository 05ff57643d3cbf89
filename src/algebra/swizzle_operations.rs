//! The operations on swizzles and swizzled layouts by name.

use tilewright_layout::swizzle::canonical::CanonicalAtom;
use tilewright_layout::{Composed, Layout, LayoutError, Swizzle, Swizzled};

use super::ExpressionRefusal;
use super::arguments::{arg, listed, with_order};
use super::value::LayoutValue;

type SwizzleResult = Result<LayoutValue, ExpressionRefusal>;

pub(super) fn apply(name: &str, args: &[LayoutValue]) -> Option<SwizzleResult> {
    Some(match name {
        "swizzle" => swizzle(args, |s| Ok(LayoutValue::Swizzle(s))),
        "swizzle_masks" => swizzle(args, |s| Ok(vec![s.source_mask(), s.target_mask()].into())),
        "swizzle_apply" => swizzle(args, |s| swizzle_apply(name, args, s)),
        "swizzle_composition" => swizzle(args, |s| Ok(LayoutValue::Swizzle(s.merge(&arg(name, args, 1)?.swizzle()?)?))),
        "swizzle_upcast" => swizzle(args, |s| Ok(LayoutValue::Swizzle(s.upcast(arg(name, args, 1)?.int()?)?))),
        "swizzle_downcast" => swizzle(args, |s| Ok(LayoutValue::Swizzle(s.downcast(arg(name, args, 1)?.int()?)?))),
        "swizzle_recast" => swizzle(args, |s| {
            Ok(LayoutValue::Swizzle(s.recast(arg(name, args, 1)?.int()?, arg(name, args, 2)?.int()?)?))
        }),
        "make_swizzle" => (|| {
            let from = arg(name, args, 0)?.int()?;
            let into = arg(name, args, 1)?.int()?;
            Ok(LayoutValue::Swizzle(Swizzle::from_masks(from, into)?))
        })(),
        "layout_swizzle_composition" => {
            (|| Ok(arg(name, args, 0)?.layout()?.after_swizzle(&arg(name, args, 1)?.swizzle()?)?.into()))()
        }
        "composition_layout_swizzlelayout" => layout_after_swizzled(name, args),
        "swizzle_slice_and_offset" => slice_and_offset(name, args),
        "gmma_atom" | "gmma_smem_layout" => shared_memory(name, args).map(|(_, tile)| tile.into()),
        "gmma_atom_bits" => atom(name, args).map(|atom| atom.of_bits().into()),
        _ => return composed_operation(name, args),
    })
}

fn swizzle(args: &[LayoutValue], operation: impl FnOnce(Swizzle) -> SwizzleResult) -> SwizzleResult {
    operation(arg("swizzle", args, 0)?.swizzle()?)
}

fn swizzle_apply(name: &str, args: &[LayoutValue], swizzle: Swizzle) -> SwizzleResult {
    let start = arg(name, args, 1)?.int()?;
    let step = arg(name, args, 2)?.int()?;
    let count = arg(name, args, 3)?.int()?;
    listed("swizzle_apply", count)?;
    let one = |i: i64| {
        let offset = step.checked_mul(i).and_then(|steps| start.checked_add(steps));
        let beyond = LayoutError::Overflow { what: "the sum", left: start, right: step };
        Ok(swizzle.apply(offset.ok_or(beyond)?))
    };
    Ok((0..count).map(one).collect::<Result<Vec<_>, LayoutError>>()?.into())
}

/// The first three arguments as a swizzled layout: swizzle, offset, layout.
fn composed(name: &str, args: &[LayoutValue], first: usize) -> Result<Composed, ExpressionRefusal> {
    let swizzle = arg(name, args, first)?.swizzle()?;
    let offset = arg(name, args, first + 1)?.int()?;
    checked(swizzle, offset, arg(name, args, first + 2)?.layout()?)
}

/// A swizzled layout, none of whose offsets wraps.
pub(super) fn checked(swizzle: Swizzle, offset: i64, layout: Layout) -> Result<Composed, ExpressionRefusal> {
    Swizzled::new(swizzle, offset, layout).checked()?;
    Ok(Composed::new(swizzle, offset, layout))
}

fn composed_operation(name: &str, args: &[LayoutValue]) -> Option<SwizzleResult> {
    type OnComposed = fn(&str, &[LayoutValue], Composed) -> SwizzleResult;
    let operation: OnComposed = match name {
        "swizzle_layout" => |_, _, c| {
            listed("swizzle_layout", c.size())?;
            Ok((0..c.size()).map(|i| c.at(i)).collect::<Vec<_>>().into())
        },
        "swizzle_cosize" => |_, _, c| Ok(LayoutValue::Int(c.layout().cosize())),
        "swizzle_left_inverse" => |_, _, c| match c {
            Composed::Plain(layout) => Ok(layout.left_inverse()?.into()),
            Composed::Swizzled(swizzled) => Ok(swizzled.left_inverse()?.into()),
        },
        "swizzle_right_inverse" => |_, _, c| match c {
            Composed::Plain(layout) => Ok(layout.right_inverse().into()),
            Composed::Swizzled(swizzled) => Ok(swizzled.right_inverse()?.into()),
        },
        "swizzle_layout_upcast" => |name, args, c| {
            let factor = arg(name, args, 3)?.int()?;
            match c {
                Composed::Plain(layout) => Ok(layout.upcast(factor)?.into()),
                Composed::Swizzled(swizzled) => Ok(swizzled.upcast(factor)?.into()),
            }
        },
        "swizzle_layout_downcast" => |name, args, c| {
            let factor = arg(name, args, 3)?.int()?;
            match c {
                Composed::Plain(layout) => Ok(layout.downcast(factor)?.into()),
                Composed::Swizzled(swizzled) => Ok(swizzled.downcast(factor)?.into()),
            }
        },
        "swizzle_layout_composition" => |name, args, c| {
            let tiler = arg(name, args, 3)?.tiler()?;
            match c {
                Composed::Plain(layout) => Ok(layout.compose_tiler(&tiler)?.into()),
                Composed::Swizzled(swizzled) => Ok(swizzled.compose_tiler(&tiler)?.into()),
            }
        },
        "swizzle_max_common_vector" => |name, args, c| {
            let other: Layout = arg(name, args, 3)?.layout()?;
            match c {
                Composed::Plain(layout) => Ok(LayoutValue::Int(layout.max_common_vector(&other)?)),
                Composed::Swizzled(swizzled) => Ok(LayoutValue::Int(swizzled.max_common_vector(&other)?)),
            }
        },
        _ => return None,
    };
    Some(composed(name, args, 0).and_then(|c| operation(name, args, c)))
}

fn layout_after_swizzled(name: &str, args: &[LayoutValue]) -> SwizzleResult {
    let outer = arg(name, args, 0)?.layout()?;
    let offset = arg(name, args, 2)?.int()?;
    if offset != 0 {
        return Err(LayoutError::Argument {
            operation: "composition(layout, swizzled layout)",
            argument: "the offset",
            value: offset,
            bound: "0: a swizzle cannot move past it",
        }
        .into());
    }
    let moved = outer.after_swizzle(&arg(name, args, 1)?.swizzle()?)?;
    let tiler = arg(name, args, 3)?.tiler()?;
    Ok(match moved {
        Composed::Plain(layout) => layout.compose_tiler(&tiler)?.into(),
        Composed::Swizzled(swizzled) => swizzled.compose_tiler(&tiler)?.into(),
    })
}

fn slice_and_offset(name: &str, args: &[LayoutValue]) -> SwizzleResult {
    let coordinate = arg(name, args, 0)?.coord()?;
    let (slice, offset) = match composed(name, args, 1)? {
        Composed::Plain(layout) => {
            let (slice, offset) = layout.slice_and_offset(&coordinate)?;
            (slice.into(), offset)
        }
        Composed::Swizzled(swizzled) => {
            let (slice, offset) = swizzled.slice_and_offset(&coordinate)?;
            (slice.into(), offset)
        }
    };
    Ok(LayoutValue::List(vec![slice, LayoutValue::Int(offset)]))
}

fn atom(name: &str, args: &[LayoutValue]) -> Result<CanonicalAtom, ExpressionRefusal> {
    let word = arg(name, args, 0)?.word()?;
    CanonicalAtom::from_name(word).ok_or_else(|| ExpressionRefusal::UnknownWord {
        word: word.to_owned(),
        expected: "K_INTER, K_SW32, K_SW64, K_SW128, MN_INTER, MN_SW32, MN_SW64, MN_SW128",
    })
}

/// A matrix atom, alone or tiled to a shape, in elements: `gmma_atom(name, bits)`,
/// `gmma_smem_layout(name, bits, shape [, order])`.
pub(crate) fn shared_memory(name: &str, args: &[LayoutValue]) -> Result<(Swizzle, Swizzled), ExpressionRefusal> {
    let atom = atom(name, args)?;
    let bits = arg(name, args, 1)?.int()?;
    let tile = match args.get(2) {
        None => atom.of_elements(bits)?,
        Some(shape) => {
            let shape = shape.tuple()?;
            with_order(args.get(3), |order| atom.tile_to_shape(bits, &shape, order))??
        }
    };
    Ok((atom.width.swizzle(), tile))
}
