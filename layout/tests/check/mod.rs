//! The reference for typed layouts of golden vectors.

use tilewright_layout::typed::StaticLayout;
use tilewright_layout::{Layout, Message, Swizzle};

/// Checks a typed layout against the expected text: a layout, a `[table]` of offsets, or the `sum`
/// of offset `i` times `i + 1`, modulo 1000000007.
pub fn is<L: StaticLayout>(id: &str, expected: &str) {
    compare(&L::LAYOUT, &L::SWIZZLE, id, expected);
}

fn compare(layout: &Layout, swizzle: &Swizzle, id: &str, expected: &str) {
    let offsets = (0..layout.size()).map(|i| swizzle.apply(layout.at(i)));
    let found = if expected.starts_with('[') {
        format!("{:?}", offsets.collect::<Vec<_>>())
    } else if expected.starts_with("sum ") {
        format!("sum {}", (1..).zip(offsets).fold(0, |sum, (i, offset)| (sum + i * offset) % 1_000_000_007))
    } else if swizzle.bits() == 0 {
        layout.to_string()
    } else {
        format!("{} o 0 o {layout}", Message::new().swizzle(swizzle).as_str())
    };
    assert_eq!(found, expected, "{id}");
}
