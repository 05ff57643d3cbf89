//! Refusals of a tensor while it is recorded: the texts, and the author's line.

use insta::assert_snapshot;
use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::verify::{VerifyErrors, verify};
use tilewright_kernels::tile::{Index, LayoutTensor, Modes, ThreadGroup, copy};
use tilewright_layout::typed::{KMajor, OperandTile, RowMajor, Swizzle, Swizzled};
use tilewright_layout::view::Split;
use tilewright_layout::{Layout, Tiler};

/// The errors of a kernel, one a line; all of them at a line of this file.
fn refused(build: impl Fn(&Builder)) -> String {
    let VerifyErrors { errors, .. } =
        verify(record("refused", Arch::Sm90a, block(64), build)).expect_err("it is refused");
    let text = |error: &tilewright_codegen::verify::VerifyError| {
        assert_eq!(error.src.expect("a place").file(), file!(), "{error}");
        error.kind.to_string()
    };
    errors.iter().map(text).collect::<Vec<_>>().join("\n")
}

#[test]
fn coordinates() {
    assert_snapshot!(refused(|k| {
        let x = k.global::<f32>("x");
        let typed = LayoutTensor::new(x, RowMajor::<4, 8>::default());
        typed.at([4.into(), 0.into()]).store(0.0);
        typed.load([0.into(), Index::lane(k) * 2 + 8]);
        typed.tile::<2, 4>([1.into(), 2.into()]);
        let value = LayoutTensor::new(x, Layout::parse("(4,8):(8,1)").unwrap());
        value.at([1.into()]).store(0.0);
        value.at([1.into(), 2.into(), 3.into()]).store(0.0);
        value.flat(32.into()).store(0.0);
        let told = LayoutTensor::new(x, Modes::row_major([k.param::<u32>("n").into(), 8.into()], 8u32));
        told.load([100.into(), 8.into()]);
    }));
}

#[test]
fn a_tile_that_no_whole_number_of_tiles_has() {
    let told = refused(|k| {
        let x = LayoutTensor::new(k.global::<f32>("x"), Modes::row_major([60.into(), 40.into()], 40u32));
        x.clipped_tile([20, 40], [3.into(), 0.into()]);
        // This one is masked.
        x.clipped_tile([50, 40], [2.into(), 0.into()]);
    });
    assert_eq!(told, "index 3 of mode 0: its extent is 3; count from 0 and stay below");
}

/// Of `(3,2):(1,6)` the parts of two elements lie at 0 and 1, at 2 and 6, at 7 and 8: no layout has
/// them all.
#[test]
fn parts_of_a_nested_mode_that_differ() {
    let told = refused(|k| {
        let x = LayoutTensor::new(k.global::<u32>("x"), Layout::parse("(3,(3,2)):(12,(1,6))").unwrap());
        x.split(Split { mode: 1, parts: 3, multiple: 1 }, 2.into());
        x.distribute_by(&Layout::parse("(1,2):(1,1)").unwrap(), 1.into());
    });
    assert_eq!(
        told,
        "split of a nested mode: 2 does not divide 6; use a divisor of 6\n\
         distribute of a nested mode: 2 does not divide 18; use a divisor of 18"
    );
}

#[test]
fn the_line_is_the_authors() {
    let line = line!() + 3;
    let kernel = record("refused", Arch::Sm80, block(32), |k| {
        let x = LayoutTensor::new(k.global::<f32>("x"), RowMajor::<4, 8>::default());
        x.at([1.into(), 9.into()]).store(0.0);
    });
    let errors = verify(kernel).unwrap_err();
    let src = errors.errors[0].src.unwrap();
    assert_eq!((src.file(), src.line()), (file!(), line));
}

#[test]
fn allocations() {
    type Half = RowMajor<32, 4>;
    type Spread = OperandTile<KMajor, 16, 64, 64>;
    assert_snapshot!(refused(|k| {
        LayoutTensor::new(LayoutTensor::<f32, Half, _>::shared(k, "half").base(), RowMajor::<64, 4>::default());
        LayoutTensor::new(k.shared_aligned::<half::bf16>("spread", 64 * 64, 128), Spread::default());
        let room = k.shared_aligned::<half::bf16>("room", 64 * 64 + 64, 1024);
        LayoutTensor::new(room.at(64), Spread::default());
    }));
}

#[test]
fn an_allocation_has_what_its_layout_needs() {
    type Spread = OperandTile<KMajor, 16, 64, 64>;
    type Plain = OperandTile<KMajor, 16, 64, 16>;
    let kernel = record("allocations", Arch::Sm90a, block(32), |k| {
        k.shared::<u8>("odd", 3);
        LayoutTensor::<half::bf16, Spread, _>::shared(k, "spread");
        LayoutTensor::<half::bf16, Plain, _>::shared(k, "plain");
        LayoutTensor::<f32, Swizzled<Swizzle<2, 2, 3>, RowMajor<8, 32>>, _>::shared(k, "swizzled");
        LayoutTensor::<f32, RowMajor<3, 5>, _>::shared(k, "small");
    });
    let found: Vec<(&str, u32, u32)> =
        kernel.shared.iter().map(|alloc| (alloc.name.as_str(), alloc.bytes, alloc.align)).collect();
    assert_eq!(
        found,
        [("odd", 3, 16), ("spread", 8192, 1024), ("plain", 2048, 256), ("swizzled", 1024, 512), ("small", 60, 16)]
    );
    verify(kernel).unwrap();
}

#[test]
fn parts() {
    assert_snapshot!(refused(|k| {
        let x = LayoutTensor::new(k.global::<f32>("x"), Layout::parse("(20,40):(40,1)").unwrap());
        x.distribute_by(&Layout::parse("(8,4):(4,1)").unwrap(), Index::lane(k));
        x.distribute_by(&Layout::parse("(4,8):(9,1)").unwrap(), Index::lane(k));
        x.distribute_by(&Layout::parse("32:1").unwrap(), Index::lane(k));
        x.tile_by(&Tiler::by_mode(&[Tiler::extent(8), Tiler::extent(8)]).unwrap(), [0.into(), 0.into()]);
        x.permute([1, 1]);
        x.permute([0, 2]);
        x.slice([Some(20.into()), None]);
        x.split(Split { mode: 1, parts: 3, multiple: 1 }, 0.into());
        x.split(Split { mode: 2, parts: 3, multiple: 1 }, 0.into());
        x.compose(&Layout::parse("900:1").unwrap());
        let told =
            LayoutTensor::new(k.global::<f32>("y"), Modes::row_major([k.param::<u32>("n").into(), 40.into()], 40u32));
        told.permute([0, 0]);
        told.distribute_by(&Layout::parse("32:1").unwrap(), Index::lane(k));
        told.slice::<2>([Some(0.into()), None]);
        told.range(2, 0.into(), 4);
    }));
}

#[test]
fn vectors() {
    assert_snapshot!(refused(|k| {
        let x = LayoutTensor::new(k.global::<f32>("x"), Layout::parse("(20,42):(42,1)").unwrap());
        x.vectorize_by::<4>(1);
        x.vectorize_by::<2>(0);
        let odd = LayoutTensor::new(k.global::<f32>("y"), RowMajor::<16, 64>::default())
            .tile::<16, 2>([0.into(), Index::lane(k)]);
        odd.vectorize_by::<4>(1);
        let row = LayoutTensor::new(k.global::<f32>("z"), RowMajor::<16, 64>::default()).row(3.into());
        row.sub_tile_at([1.into()]).vectorize::<0, 4>();
        let told =
            LayoutTensor::new(k.global::<f32>("w"), Modes::row_major([k.param::<u32>("n").into(), 40.into()], 40u32));
        told.vectorize::<1, 4>();
    }));
}

#[test]
fn copies() {
    assert_snapshot!(refused(|k| {
        let x = LayoutTensor::new(k.global::<f32>("x"), RowMajor::<16, 32>::default());
        let tile = LayoutTensor::<f32, RowMajor<16, 64>, _>::shared(k, "tile");
        ThreadGroup::block(k).copy(x, tile);
        copy(x.vectorize::<1, 4>(), tile.tile::<16, 8>([0.into(), 0.into()]));
        let n = k.param::<u32>("n");
        ThreadGroup::block(k)
            .copy(LayoutTensor::new(k.global::<f32>("y"), Modes::row_major([16.into(), n.into()], n)), tile);
        ThreadGroup::block(k).copy(x.row(0.into()), tile);
    }));
}
