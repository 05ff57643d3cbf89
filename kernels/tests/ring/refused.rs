//! Invalid requests of a ring's author are refused while they are recorded.

use tilewright_codegen::build::{Bulk, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::verify::verify;
use tilewright_kernels::ring::{BulkSource, Consumers, GroupRing, Ring, Shape, StageTile, start};
use tilewright_kernels::tile::Index;
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

/// Verifies a kernel with a ring of a shape, which one warp reads.
fn ring_of(shape: Shape) -> Result<(), String> {
    let kernel = record("ring", Arch::Sm90a, block(64), |k| {
        let tiles = (StageTile::<f32, Line<128>>::typed(),);
        let x = k.global::<f32>("x");
        let (producer, mut consumer) = start(k, Ring::bulk::<Rows>(k, tiles, shape)).split();
        let produce = || {
            let mut producer = producer;
            producer.acquire().fill((BulkSource::from(x),)).commit();
        };
        let moving = k.moving();
        moving.if_else(k.warp().eq(0), || consumer.wait().release(), || moving.when(k.lane().eq(0), produce));
    });
    verify(kernel).map(drop).map_err(|errors| errors.to_string())
}

#[test]
fn a_ring_without_stages_is_refused_where_it_is_constructed() {
    assert_eq!(ring_of(Shape::stages(1)), Ok(()));
    let cases = [
        (Shape::stages(0), "ring of 0 stages: it needs at least 1; give more to Shape::stages"),
        (Shape::stages(4).in_flight(0), "ring with 0 stages in flight: it has 4; take 1 to 4"),
        (Shape::stages(4).consumers(Consumers::Warps(0)), "ring without consumers"),
        (Shape::stages(4).cluster(0), "ring of 1 groups of 0 blocks"),
        (Shape::stages(4).cluster(33), "ring of 1 groups of 33 blocks"),
    ];
    for (shape, wanted) in cases {
        let errors = ring_of(shape).expect_err(wanted);
        assert!(errors.contains(wanted) && errors.contains("refused.rs"), "{errors}");
    }
}

/// Of one stage: the ring is refused, not the turn that would read it.
#[test]
fn a_group_ring_of_one_stage_is_refused_where_it_is_constructed() {
    let errors = |stages| {
        let kernel = record("group", Arch::Sm80, block(32), |k| {
            let x = k.global::<f32>("x");
            let mine = Index::thread(k) * 4;
            let tiles = (StageTile::<f32, Line<128>>::typed(),);
            let mut ring = GroupRing::new::<Rows, _>(k, tiles, stages, |_, (tile,)| {
                tile.at([mine]).cp_async(x.at(mine.get(k)));
            });
            let (current, free) = ring.turn();
            let claimed = free.fill();
            current.done(claimed);
            ring.finish();
        });
        verify(kernel).map(drop).map_err(|errors| errors.to_string())
    };
    assert_eq!(errors(2), Ok(()));
    for stages in [0, 1] {
        let errors = errors(stages).expect_err("too few");
        let wanted = format!("ring of {stages} stages: it needs at least 2");
        assert!(errors.contains("1 error\n") && errors.contains(&wanted) && errors.contains("refused.rs"), "{errors}");
    }
}
