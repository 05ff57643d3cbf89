//! A view against what is known of the allocation that it is a view of.

use super::TileError;
use super::tensor::hardware_period;
use tilewright_codegen::build::{Ptr, Scalar, SpaceOf};
use tilewright_layout::Swizzled;
use tilewright_layout::view::OffsetMap;

/// Refuses a view whose offsets 32 bits do not hold, that reaches beyond its allocation, or that
/// begins where its swizzle does not repeat.
#[track_caller]
pub(super) fn check<S: SpaceOf, T: Scalar>(base: Ptr<'_, S, T>, map: &Swizzled) {
    let elements = map.layout().cosize();
    if elements > 1 << 32 {
        base.builder().refuse(&TileError::Wide { layout: map.layout().to_string(), elements });
    }
    let Some(of) = base.allocation() else { return };
    let bytes = i64::from(T::TY.bytes());
    let needed = map.span().map_or(0, |(_, elements)| elements as i64 * bytes);
    if needed > of.left() {
        base.builder().refuse(&TileError::Larger { name: of.name.clone(), needed, left: of.left() });
    }
    let needed = hardware_period(map, T::TY.bytes());
    let found = of.alignment();
    if found < needed {
        base.builder().refuse(&TileError::Misaligned { name: of.name, found, needed });
    }
}
