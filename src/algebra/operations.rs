//! Every operation of the algebra by name: one table for expressions and golden cases.

use tilewright_layout::ops::Order;
use tilewright_layout::{IntTuple, Layout};

use super::arguments::{arg, listed, with_order};
use super::value::LayoutValue;
use super::{ExpressionRefusal, swizzle_operations};

type OperationResult = Result<LayoutValue, ExpressionRefusal>;

/// Applies the operation called `name`.
///
/// # Errors
/// [`ExpressionRefusal`]: for an unknown name, arguments of the wrong number or kind, or an error
/// of the algebra.
pub fn apply(name: &str, args: &[LayoutValue]) -> OperationResult {
    for table in [division, products, shaping, modes, coordinates, shapes, inverses, swizzle_operations::apply] {
        if let Some(outcome) = table(name, args) {
            return outcome;
        }
    }
    Err(ExpressionRefusal::UnknownOperation { name: name.to_owned() })
}

fn with_tiler(
    args: &[LayoutValue],
    name: &str,
    operation: fn(&Layout, &tilewright_layout::Tiler) -> Result<Layout, tilewright_layout::LayoutError>,
) -> OperationResult {
    Ok(operation(&arg(name, args, 0)?.layout()?, &arg(name, args, 1)?.tiler()?)?.into())
}

fn with_layout(
    args: &[LayoutValue],
    name: &str,
    operation: fn(&Layout, &Layout) -> Result<Layout, tilewright_layout::LayoutError>,
) -> OperationResult {
    Ok(operation(&arg(name, args, 0)?.layout()?, &arg(name, args, 1)?.layout()?)?.into())
}

fn division(name: &str, args: &[LayoutValue]) -> Option<OperationResult> {
    Some(match name {
        "composition" => with_tiler(args, name, Layout::compose_tiler),
        "logical_divide" => with_tiler(args, name, Layout::logical_divide),
        "zipped_divide" => with_tiler(args, name, Layout::zipped_divide),
        "tiled_divide" => with_tiler(args, name, Layout::tiled_divide),
        "flat_divide" => with_tiler(args, name, Layout::flat_divide),
        "logical_product" => with_tiler(args, name, Layout::logical_product),
        "zipped_product" => with_tiler(args, name, Layout::zipped_product),
        "tiled_product" => with_tiler(args, name, Layout::tiled_product),
        "flat_product" => with_tiler(args, name, Layout::flat_product),
        _ => return None,
    })
}

fn products(name: &str, args: &[LayoutValue]) -> Option<OperationResult> {
    Some(match name {
        "blocked_product" => with_layout(args, name, Layout::blocked_product),
        "raked_product" => with_layout(args, name, Layout::raked_product),
        "max_common_layout" => with_layout(args, name, Layout::max_common_layout),
        "max_common_vector" => common_vector(args),
        "max_alignment" => layout_of(args, name, |l| Ok(LayoutValue::Int(l.max_alignment()))),
        "tile_to_shape" => tile_to_shape(args),
        _ => return None,
    })
}

fn common_vector(args: &[LayoutValue]) -> OperationResult {
    let name = "max_common_vector";
    Ok(LayoutValue::Int(arg(name, args, 0)?.layout()?.max_common_vector(&arg(name, args, 1)?.layout()?)?))
}

fn tile_to_shape(args: &[LayoutValue]) -> OperationResult {
    let name = "tile_to_shape";
    let block = arg(name, args, 0)?.layout()?;
    let shape = arg(name, args, 1)?.tuple()?;
    Ok(with_order(args.get(2), |order| block.tile_to_shape(&shape, order))??.into())
}

fn layout_of(args: &[LayoutValue], name: &str, operation: impl FnOnce(&Layout) -> OperationResult) -> OperationResult {
    operation(&arg(name, args, 0)?.layout()?)
}

fn shaping(name: &str, args: &[LayoutValue]) -> Option<OperationResult> {
    Some(match name {
        "coalesce" => layout_of(args, name, |l| {
            Ok(match args.get(1) {
                Some(profile) => l.coalesce_modes(&profile.profile()?)?.into(),
                None => l.coalesce().into(),
            })
        }),
        "filter" => layout_of(args, name, |l| {
            Ok(match args.get(1) {
                Some(profile) => l.filter_modes(&profile.profile()?)?.into(),
                None => l.filter().into(),
            })
        }),
        "filter_zeros" => layout_of(args, name, |l| {
            Ok(match args.get(1) {
                Some(marks) => l.filter_zeros_by(&marks.tuple()?)?.into(),
                None => l.filter_zeros().into(),
            })
        }),
        "complement" => layout_of(args, name, |l| {
            Ok(match args.get(1) {
                Some(bound) => l.complement_in(&bound.tuple()?)?.into(),
                None => l.complement_self()?.into(),
            })
        }),
        "make_layout" | "make_ordered_layout" => ordered(name, args),
        "compact_col_major" => compact(name, args, Layout::col_major_from),
        "compact_row_major" => compact(name, args, Layout::row_major_from),
        "upcast" => layout_of(args, name, |l| Ok(l.upcast(arg(name, args, 1)?.int()?)?.into())),
        "downcast" => layout_of(args, name, |l| Ok(l.downcast(arg(name, args, 1)?.int()?)?.into())),
        "recast_layout" => {
            layout_of(args, name, |l| Ok(l.recast(arg(name, args, 1)?.int()?, arg(name, args, 2)?.int()?)?.into()))
        }
        "make_layout_like" => layout_of(args, name, |l| Ok(l.compact_like()?.into())),
        "make_fragment_like" => layout_of(args, name, |l| Ok(l.fragment_like()?.into())),
        _ => return None,
    })
}

fn ordered(name: &str, args: &[LayoutValue]) -> OperationResult {
    let shape = arg(name, args, 0)?.tuple()?;
    Ok(with_order(args.get(1), |order| match order {
        Order::Left => Layout::col_major(&shape),
        Order::Right => Layout::row_major(&shape),
        Order::By(order) => Layout::ordered(&shape, order),
    })??
    .into())
}

fn compact(
    name: &str,
    args: &[LayoutValue],
    build: fn(&IntTuple, &IntTuple) -> Result<Layout, tilewright_layout::LayoutError>,
) -> OperationResult {
    let start = args.get(1).map_or(Ok(IntTuple::int(1)), LayoutValue::tuple)?;
    Ok(build(&arg(name, args, 0)?.tuple()?, &start)?.stride().into())
}

fn modes(name: &str, args: &[LayoutValue]) -> Option<OperationResult> {
    Some(match name {
        "flatten" => layout_of(args, name, |l| Ok(l.flatten().into())),
        "unflatten" => layout_of(args, name, |l| Ok(l.unflatten(&arg(name, args, 1)?.profile()?)?.into())),
        "append" | "prepend" => layout_of(args, name, |l| {
            let mode = arg(name, args, 1)?.layout()?;
            let rank = args.get(2).map_or(Ok(l.rank() + 1), LayoutValue::index)?;
            Ok(if name == "append" { l.append_to(&mode, rank)? } else { l.prepend_to(&mode, rank)? }.into())
        }),
        "replace" => layout_of(args, name, |l| {
            Ok(l.replace(arg(name, args, 1)?.index()?, &arg(name, args, 2)?.layout()?)?.into())
        }),
        "select" => layout_of(args, name, |l| match arg(name, args, 1)? {
            LayoutValue::List(items) => {
                Ok(l.select(&items.iter().map(LayoutValue::index).collect::<Result<Vec<_>, _>>()?)?.into())
            }
            other => Err(ExpressionRefusal::Kind { expected: "a tuple of mode numbers", found: other.kind() }),
        }),
        "take" => {
            layout_of(args, name, |l| Ok(l.take(arg(name, args, 1)?.index()?, arg(name, args, 2)?.index()?)?.into()))
        }
        "group_modes" => layout_of(args, name, |l| {
            let end = match arg(name, args, 2)? {
                LayoutValue::Int(-1) => l.rank(),
                end => end.index()?,
            };
            Ok(l.group(arg(name, args, 1)?.index()?, end)?.into())
        }),
        "zip" => layout_of(args, name, |l| Ok(l.zip()?.into())),
        "get" => layout_of(args, name, |l| Ok(l.mode(arg(name, args, 1)?.index()?)?.into())),
        "rank" => layout_of(args, name, |l| Ok(LayoutValue::Int(l.rank() as i64))),
        "depth" => layout_of(args, name, |l| Ok(LayoutValue::Int(l.depth() as i64))),
        "size" => layout_of(args, name, |l| Ok(LayoutValue::Int(l.size()))),
        "cosize" | "coshape" => layout_of(args, name, |l| Ok(LayoutValue::Int(l.cosize()))),
        "slice" => with_coord(args, name, |c, l| Ok(l.slice(c)?.into())),
        "dice" => with_coord(args, name, |c, l| Ok(l.dice(c)?.into())),
        "slice_and_offset" => with_coord(args, name, |c, l| {
            let (slice, offset) = l.slice_and_offset(c)?;
            Ok(LayoutValue::List(vec![slice.into(), LayoutValue::Int(offset)]))
        }),
        _ => return None,
    })
}

fn with_coord(
    args: &[LayoutValue],
    name: &str,
    operation: impl FnOnce(&tilewright_layout::Coord, &Layout) -> OperationResult,
) -> OperationResult {
    operation(&arg(name, args, 0)?.coord()?, &arg(name, args, 1)?.layout()?)
}

fn coordinates(name: &str, args: &[LayoutValue]) -> Option<OperationResult> {
    Some(match name {
        "index" => layout_of(args, name, |l| {
            listed("index", l.size())?;
            Ok((0..l.size()).map(|i| l.at(i)).collect::<Vec<_>>().into())
        }),
        "crd2idx" => crd2idx(name, args),
        "idx2crd" => idx2crd(name, args),
        "idx2crd_domain" => idx2crd_domain(name, args),
        "crd2crd" => (|| {
            let crd = arg(name, args, 0)?.tuple()?;
            let source = arg(name, args, 1)?.tuple()?;
            Ok(crd.between(&source, &arg(name, args, 2)?.tuple()?)?.into())
        })(),
        "get_hier_coord" => of_offset(name, args, |_, coordinate| Ok(coordinate.into())),
        "get_flat_coord" => of_offset(name, args, |layout, coordinate| {
            if layout.rank() == 1 {
                return Ok(LayoutValue::Int(layout.shape().index_of(&coordinate)?));
            }
            (0..layout.rank())
                .map(|i| Ok(LayoutValue::Int(layout.mode(i)?.shape().index_of(&coordinate.mode(i)?)?)))
                .collect::<Result<Vec<_>, ExpressionRefusal>>()
                .map(LayoutValue::List)
        }),
        "get_1d_coord" => of_offset(name, args, |layout, crd| Ok(LayoutValue::Int(layout.shape().index_of(&crd)?))),
        _ => return None,
    })
}

fn of_offset(
    name: &str,
    args: &[LayoutValue],
    finish: impl FnOnce(&Layout, IntTuple) -> OperationResult,
) -> OperationResult {
    let layout = arg(name, args, 0)?.layout()?;
    finish(&layout, layout.coordinate_of_offset(arg(name, args, 1)?.int()?)?)
}

fn crd2idx(name: &str, args: &[LayoutValue]) -> OperationResult {
    let coordinate = arg(name, args, 0)?.tuple()?;
    Ok(LayoutValue::Int(match arg(name, args, 1)? {
        LayoutValue::Layout(layout) => layout.offset(&coordinate)?,
        shape => shape.tuple()?.index_of(&coordinate)?,
    }))
}

fn idx2crd(name: &str, args: &[LayoutValue]) -> OperationResult {
    let index = arg(name, args, 0)?.tuple()?;
    let shape = arg(name, args, 1)?.tuple()?;
    let Some(stride) = args.get(2) else { return Ok(shape.refine_coordinate(&index)?.into()) };
    let stride = stride.tuple()?;
    let layout = if stride.is_int() && !shape.is_int() {
        Layout::col_major_from(&shape, &stride)?
    } else {
        Layout::new(&shape, &stride)?
    };
    by_stride(&layout, &index)
}

/// Multiplies each mode of a tuple of offsets by its own strides.
fn by_stride(layout: &Layout, index: &IntTuple) -> OperationResult {
    if index.is_int() {
        return Ok(layout.coordinate_of_offset(index.values()[0])?.into());
    }
    if layout.is_leaf() || layout.rank() != index.rank() {
        let expected = layout.rank();
        return Err(tilewright_layout::LayoutError::Rank { operation: "idx2crd", given: index.rank(), expected }.into());
    }
    let modes = (0..layout.rank()).map(|i| by_stride(&layout.mode(i)?, &index.mode(i)?));
    modes.collect::<Result<Vec<_>, _>>().map(LayoutValue::List)
}

fn idx2crd_domain(name: &str, args: &[LayoutValue]) -> OperationResult {
    let shape = arg(name, args, 0)?.tuple()?;
    let layout = Layout::col_major(&shape)?;
    listed("idx2crd_domain", layout.size())?;
    Ok(LayoutValue::List((0..layout.size()).map(|i| layout.coordinate(i).into()).collect()))
}

fn shapes(name: &str, args: &[LayoutValue]) -> Option<OperationResult> {
    let pair = |operation: fn(&IntTuple, &IntTuple) -> Result<IntTuple, tilewright_layout::LayoutError>| {
        Ok(operation(&arg(name, args, 0)?.tuple()?, &arg(name, args, 1)?.tuple()?)?.into())
    };
    let test = |operation: fn(&IntTuple, &IntTuple) -> bool| {
        Ok(LayoutValue::Bool(operation(&arg(name, args, 0)?.tuple()?, &arg(name, args, 1)?.tuple()?)))
    };
    Some(match name {
        "shape_div" => pair(IntTuple::shape_div),
        "ceil_div" => pair(IntTuple::ceil_div),
        "elem_scale" => pair(IntTuple::elem_scale),
        "congruent" => test(IntTuple::congruent),
        "weakly_congruent" => test(IntTuple::weakly_congruent),
        "compatible" => test(IntTuple::compatible),
        "weakly_compatible" => test(IntTuple::weakly_compatible),
        "inner_product" => {
            (|| Ok(LayoutValue::Int(arg(name, args, 0)?.tuple()?.inner_product(&arg(name, args, 1)?.tuple()?)?)))()
        }
        "expand_modes_alike" => (|| {
            let a = arg(name, args, 0)?;
            let b = arg(name, args, 1)?;
            if let (LayoutValue::Layout(a), LayoutValue::Layout(b)) = (a, b) {
                let (a, b) = a.expand_modes_alike(b)?;
                return Ok(LayoutValue::List(vec![a.into(), b.into()]));
            }
            Ok(a.tuple()?.expand_modes_alike(&b.tuple()?)?.into())
        })(),
        "product_each" => (|| Ok(arg(name, args, 0)?.tuple()?.product_each()?.into()))(),
        "domain_distribute" => {
            (|| Ok(arg(name, args, 0)?.tuple()?.domain_distribute(arg(name, args, 1)?.int()?)?.into()))()
        }
        "evenly_divides" => (|| {
            let layout = Layout::col_major(&arg(name, args, 0)?.tuple()?)?;
            Ok(LayoutValue::Bool(layout.divides_evenly(&arg(name, args, 1)?.tiler()?)))
        })(),
        _ => return None,
    })
}

fn inverses(name: &str, args: &[LayoutValue]) -> Option<OperationResult> {
    Some(match name {
        "right_inverse" => layout_of(args, name, |l| Ok(l.right_inverse().into())),
        "left_inverse" => layout_of(args, name, |l| Ok(l.left_inverse()?.into())),
        "nullspace" => layout_of(args, name, |l| Ok(l.nullspace().into())),
        _ => return None,
    })
}
