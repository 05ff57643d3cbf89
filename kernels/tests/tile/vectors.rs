//! Vectors are tensors: tiles and distributions of them are the host's views of their first
//! elements.

use crate::{POISON, differences, run};
use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::ir::{Arch, Inst, Kernel, MemOp, StmtKind};
use tilewright_kernels::tile::{Index, LayoutTensor, Modes, VectorsOf};
use tilewright_layout::typed::{ColMajor, KMajor, Lowered, OperandTile, RowMajor, StaticLayout, Swizzle, Swizzled};
use tilewright_layout::view::TensorView;

/// The number of stores of `lanes` lanes in a kernel.
fn stores(kernel: &Kernel, lanes: usize) -> usize {
    let mut count = 0;
    kernel.walk(&mut |stmt| {
        if let StmtKind::Inst(Inst::Mem(MemOp::St { v, .. })) = &stmt.op {
            count += usize::from(v.len() == lanes);
        }
    });
    count
}

/// Thread t writes `1000·t + 10·j + lane` to vector j of its part of the vectors; host views say
/// where the vectors are.
fn vectors_agree<L: StaticLayout, const ALONG: usize, Threads: StaticLayout>() {
    let reach = Lowered::<L>::REACH;
    let threads = Lowered::<Threads>::SIZE as u32;
    let kernel = record("vectors", Arch::Sm80, block(threads), |k: &Builder| {
        let tensor = LayoutTensor::new(k.global::<u32>("out"), L::default());
        let mine = tensor.vectorize::<ALONG, 4>().distribute::<Threads>(Index::thread(k));
        let [m, n] = [mine.extent(0), mine.extent(1)];
        for j in 0..m * n {
            let value = [0, 1, 2, 3].map(|lane| k.tid() * 1000 + (10 * j + lane));
            mine.store([(j % m).into(), (j / m).into()], value);
        }
    });
    assert_eq!(stores(&kernel, 1), 0);
    let mut expected = vec![POISON; reach];
    let first = {
        let numbers: Vec<u32> = (0..reach as u32).collect();
        let view = TensorView::<u32, VectorsOf<L, ALONG, 4>>::from_slice(&numbers).unwrap();
        let of = |thread| -> Vec<u32> { view.distribute::<Threads>(thread).unwrap().iter().copied().collect() };
        (0..threads as usize).map(of).collect::<Vec<_>>()
    };
    for (thread, vectors) in first.iter().enumerate() {
        for (j, &at) in vectors.iter().enumerate() {
            (0..4).for_each(|lane| expected[at as usize + lane] = (thread * 1000 + 10 * j + lane) as u32);
        }
    }
    assert_eq!(differences(&run(kernel, &[], &[], reach), &expected), []);
}

#[test]
fn vectors_then_threads() {
    vectors_agree::<RowMajor<16, 32>, 1, RowMajor<4, 8>>();
    vectors_agree::<ColMajor<32, 16>, 0, ColMajor<8, 4>>();
    vectors_agree::<Swizzled<Swizzle<3, 2, 3>, RowMajor<16, 32>>, 1, RowMajor<8, 4>>();
    vectors_agree::<OperandTile<KMajor, 32, 16, 32>, 1, RowMajor<4, 8>>();
}

#[test]
fn threads_then_vectors_and_tiles_of_vectors() {
    type Tile = Swizzled<Swizzle<2, 2, 3>, RowMajor<16, 32>>;
    let kernel = record("rows", Arch::Sm80, block(32), |k| {
        let tensor = LayoutTensor::new(k.global::<u32>("out"), Tile::default());
        let row = tensor.distribute::<RowMajor<16, 1>>(Index::thread(k) % 16).vectorize::<1, 4>();
        let right = row.tile::<1, 4>([0.into(), 1.into()]);
        for j in 0..4u32 {
            let values = [0, 1, 2, 3].map(|lane| k.tid() * 100 + 16 + 4 * j + lane);
            k.when(k.tid().lt(16), || right.store([0.into(), j.into()], values));
        }
    });
    assert_eq!(stores(&kernel, 4), 4);
    let mut expected = vec![POISON; 512];
    for row in 0..16 {
        (16..32).for_each(|column| expected[Lowered::<Tile>::at([row, column])] = (row * 100 + column) as u32);
    }
    assert_eq!(differences(&run(kernel, &[], &[], 512), &expected), []);
}

#[test]
fn vectors_of_told_extents_are_masked_whole() {
    let kernel = record("told", Arch::Sm80, block(32), |k| {
        let [rows, stride] = ["rows", "stride"].map(|name| k.param::<u32>(name));
        let modes = Modes::row_major([rows.into(), 24.into()], stride).vectors(4);
        let tensor = LayoutTensor::new(k.global::<u32>("out"), modes);
        // Eight rows of four vectors at a time.
        let mine = tensor.clipped_tile([8, 16], [0.into(), 1.into()]).vectorize::<1, 4>();
        let mine = mine.distribute::<RowMajor<8, 4>>(Index::thread(k));
        mine.store([0.into(), 0.into()], [0, 1, 2, 3].map(|lane| k.tid() * 10 + lane));
    });
    assert_eq!(stores(&kernel, 4), 1);
    let found = run(kernel, &[5, 28], &[], 28 * 8);
    for (at, &word) in found.iter().enumerate() {
        let row = at / 28;
        let column = at % 28;
        let inside = row < 5 && (16..24).contains(&column);
        let thread = row * 4 + column.wrapping_sub(16) / 4;
        assert_eq!(word, if inside { (thread * 10 + column % 4) as u32 } else { POISON }, "({row},{column})");
    }
}
