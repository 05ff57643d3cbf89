//! Measures the run-time cost of the algebra.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tilewright_layout::{IntTuple, Layout, Tiler, ops::Order};

fn layout(text: &str) -> Layout {
    Layout::parse(text).expect("a benchmark's layout")
}

fn algebra(criterion: &mut Criterion) {
    let cube = layout("(8,16,32):(512,32,1)");
    let picks = layout("(4,8,16):(2,16,256)");
    criterion.bench_function("composition of rank 3", |b| {
        b.iter(|| black_box(&cube).composition(black_box(&picks)));
    });
    let rows = layout("(128,64):(64,1)");
    criterion.bench_function("composition of rank 2", |b| {
        let tile = layout("(16,8):(8,1024)");
        b.iter(|| black_box(&rows).composition(black_box(&tile)));
    });
    criterion.bench_function("coalesce of rank 3", |b| b.iter(|| black_box(&cube).coalesce()));
    criterion.bench_function("complement of rank 3", |b| b.iter(|| black_box(&picks).complement(black_box(8192))));
    let tiler = Tiler::by_mode(&[Tiler::extent(16), Tiler::extent(8)]).expect("two extents");
    criterion
        .bench_function("zipped_divide of rank 2", |b| b.iter(|| black_box(&rows).zipped_divide(black_box(&tiler))));
    let block = layout("(2,5):(5,1)");
    let copies = layout("(3,4):(4,1)");
    criterion.bench_function("blocked_product of rank 2", |b| {
        b.iter(|| black_box(&block).blocked_product(black_box(&copies)));
    });
    let shape = IntTuple::flat(&[128, 64]).expect("two extents");
    let atom = layout("(8,64):(64,1)");
    criterion.bench_function("tile_to_shape of rank 2", |b| {
        b.iter(|| black_box(&atom).tile_to_shape(black_box(&shape), Order::Left));
    });
    criterion.bench_function("right_inverse of rank 3", |b| b.iter(|| black_box(&cube).right_inverse()));
    criterion.bench_function("index of rank 3", |b| b.iter(|| black_box(&cube).at(black_box(1234))));
}

criterion_group!(benches, algebra);
criterion_main!(benches);
