//! Shows the run-time cost of a typed layout. To see the instructions:
//!
//! ```text
//! cargo rustc --release -p tilewright-layout --example lowered_index -- --emit asm -C debuginfo=0
//! ```

use std::hint::black_box;

use tilewright_layout::typed::{BlockedProduct, ColMajor, Lowered, RowMajor, Swizzle, Swizzled};

/// 64x64 elements of 16 bits, rows spread over the banks.
type Shared = Swizzled<Swizzle<3, 3, 3>, RowMajor<64, 64>>;
/// A 32x64 matrix in 8x16 blocks, the blocks column by column.
type Blocks = BlockedProduct<RowMajor<8, 16>, ColMajor<4, 4>>;

/// Two shifts, an add, a mask and an exclusive or.
#[inline(never)]
fn swizzled_offset(row: usize, column: usize) -> usize {
    Lowered::<Shared>::at([row, column])
}

/// Each mode splits in two.
#[inline(never)]
fn blocked_offset(row: usize, column: usize) -> usize {
    Lowered::<Blocks>::at([row, column])
}

fn main() {
    let (row, column) = black_box((5, 9));
    println!("swizzled {}, blocked {}", swizzled_offset(row, column), blocked_offset(row, column));
}
