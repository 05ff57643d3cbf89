//! A matrix instruction of a width that does not exist.
use tilewright_layout::fragment::{FragmentC, SharedA, atoms};
use tilewright_layout::layout;

layout! { type Broken = FragmentC<atoms::Wgmma<atoms::SM90_F32BF16BF16, 20, SharedA>>; }

fn main() {}
