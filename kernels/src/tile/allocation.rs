//! A view against what is known of the allocation that it is a view of.

use tilewright_codegen::build::{Ptr, Scalar, SpaceOf};
use tilewright_layout::Swizzled;
use tilewright_layout::view::OffsetMap;

use super::TileError;

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

/// Bytes after which a swizzle repeats, for elements of `bytes` bytes. Tensor maps and matrix
/// instructions swizzle by the bits of addresses, so a tensor must begin at a multiple of it. 1 if
/// there is no swizzle, or a swizzle that no hardware has: the longest repeats after 1024 bytes.
/// Offsets that are computed here repeat from any start.
pub(crate) const fn hardware_period(map: &Swizzled, bytes: u32) -> u32 {
    let touched = map.swizzle().source_mask() | map.swizzle().target_mask();
    if touched == 0 {
        return 1;
    }
    let period = bytes as i64 * (1 << (64 - touched.leading_zeros()));
    if period > 1024 { 1 } else { period as u32 }
}
