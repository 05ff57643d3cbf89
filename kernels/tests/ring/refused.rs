//! What a ring's author asks for in vain is refused while it is recorded.

use tilewright_codegen::build::{Bulk, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::verify::verify;
use tilewright_kernels::ring::{Consumers, Ring, Shape, StageTile, start};
use tilewright_layout::typed::Contiguous as Line;

enum Rows {}

/// A ring in pieces whose producer brings a box of a tensor map; what `verify` says of it.
fn box_in_pieces(arch: Arch) -> Result<(), String> {
    let kernel = record("boxes", arch, block(64), |k| {
        let map = k.tensor_map("map");
        let tiles = (StageTile::<f32, Line<128>>::typed(),);
        let shape = Shape::stages(2).consumers(Consumers::Warps(1));
        let (producer, mut consumer) = start(k, Ring::pieces::<Rows>(k, tiles, shape)).split();
        let who = if producer.by_warp() { k.lit(true) } else { k.lane().eq(0) };
        let produce = || {
            let mut producer = producer;
            let empty = producer.acquire();
            empty.fill(k.lit(512), Bulk::default(), |to| to.bring_box(map, &[k.lit(0)])).commit();
        };
        k.moving().if_else(k.warp().eq(0), || consumer.wait().release(), || k.moving().when(who, produce));
    });
    verify(kernel).map(drop).map_err(|errors| errors.to_string())
}

#[test]
fn a_box_is_brought_by_the_copy_engine_and_refused_where_lanes_copy() {
    assert_eq!(box_in_pieces(Arch::Sm90a), Ok(()));
    let errors = box_in_pieces(Arch::Sm80).expect_err("lanes know no tensor maps");
    assert!(errors.contains("box of a tensor map in a ring that a warp fills"), "{errors}");
    // At the line that asked.
    assert!(errors.contains("refused.rs"), "{errors}");
}
