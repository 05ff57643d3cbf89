//! The configurations of buffers against their definitions; the tile's addresses against its
//! layout.

use half::bf16;
use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::{self, Arg, Launch, Memory};
use tilewright_codegen::verify::verify;
use tilewright_kernels::kv::{KConfig, KvBufferConfig, RowArrangement, TileForm, VConfig, VECTOR};

#[test]
fn the_two_configurations_are_their_definitions() {
    fn numbers<C: KvBufferConfig>() -> ([u32; 5], u32, bool) {
        ([C::BTILE0, C::BTILE1, C::WTILE0, C::WTILE1, C::WSIZE], C::ITERATOR_AXIS, C::TRANSPOSED)
    }
    assert_eq!(numbers::<KConfig<128, 32, 64>>(), ([128, 32, 64, 32, 64], 1, true));
    assert_eq!(numbers::<VConfig<128, 32, 64, 96>>(), ([32, 96, 32, 48, 48], 0, false));
}

/// Every form of a tile, and the threads that move it.
fn forms() -> impl Iterator<Item = (TileForm, u32)> {
    let rows = [16u32, 32, 64, 128];
    rows.into_iter().flat_map(|rows| {
        [64u32, 96, 128, 256].into_iter().flat_map(move |columns| {
            [RowArrangement::Swizzled, RowArrangement::Interleaved].into_iter().flat_map(move |form| {
                [32u32, 128].into_iter().map(move |threads| (TileForm { rows, columns, form }, threads))
            })
        })
    })
}

/// The team moves every vector once, to where the layout has it, without a bank conflict.
#[test]
fn vectors_go_where_the_layout_has_them() {
    for (tile, threads) in forms().filter(|(tile, threads)| tile.elements().is_multiple_of(threads * VECTOR)) {
        let body = |k: &Builder| {
            let from = k.global::<bf16>("from");
            let to = k.global::<bf16>("to");
            let memory = k.shared_aligned::<bf16>("tile", tile.elements(), tile.align());
            for index in 0..tile.shares(threads) {
                let share = tile.share(k.tid(), threads, index);
                let words = from.at(share.row * tile.columns + share.column()).cast::<u32>().load_vec::<4>();
                tile.place(memory, &share).cast::<u32>().store_vec::<4>(words);
            }
            k.barrier();
            for index in 0..tile.shares(threads) {
                let at = (k.tid() + threads * index) * VECTOR;
                to.at(at).cast::<u32>().store_vec::<4>(memory.at(at).cast::<u32>().load_vec::<4>());
            }
        };
        let kernel = verify(record("moves", Arch::Sm80, block(threads), body)).expect("a legal kernel");
        let numbers: Vec<u16> = (0..tile.elements() as u16).collect();
        let mut memory = Memory::new();
        let from = memory.upload("from", &numbers);
        let to = memory.alloc("to", numbers.len() * 2);
        let launch = Launch::new([1, 1, 1], vec![Arg::Ptr(from), Arg::Ptr(to)]);
        let outcome = sim::run(&kernel, &launch, &mut memory, 1).expect("launches");
        let counters = outcome.finished().expect("no fault");
        assert_eq!(counters.conflicts(), 0, "{tile:?} {threads} threads");
        let found: Vec<u16> = memory.download(to, numbers.len()).expect("written");
        for row in 0..tile.rows {
            for column in 0..tile.columns {
                let at = tile.offset(row, column) as usize;
                assert_eq!(found[at], (row * tile.columns + column) as u16, "{tile:?} at {row}, {column}");
            }
        }
    }
}
