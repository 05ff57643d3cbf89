//! Legal programs. A case that must build makes the others build too, so errors inside generics are
//! seen.
use tilewright_layout::layout;
use tilewright_layout::typed::{ArrayTensor, RowMajor, StaticLayout, Swizzle, Swizzled, TiledBy, contract};

layout! {
    pub type Shared = Swizzled<Swizzle<3, 3, 3>, RowMajor<64, 64>>;
    pub type Tiles = TiledBy<Shared, 16, 16>;
    type Odd = "((2,3),4):((1,2),6)";
}

fn main() {
    assert_eq!(Tiles::LAYOUT.size(), 4096);
    assert_eq!(Odd::LAYOUT.size(), 24);
    let a = ArrayTensor::<i32, RowMajor<2, 3>>::filled(1);
    let b = ArrayTensor::<i32, RowMajor<3, 4>>::filled(2);
    let mut c = ArrayTensor::<i32, RowMajor<2, 4>>::default();
    contract(&a, &b, &mut c);
    assert_eq!(c.as_slice(), [6; 8]);
}
