//! The configuration of a buffer against the formulas, for every legal one of a range; the tile's addresses against its
//! layout; the ways of getting it wrong.

use half::bf16;
use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::{self, Arg, Launch, Memory};
use tilewright_codegen::verify::verify;
use tilewright_kernels::kv::{
    Form, Geometry, KConfig, KvBufferConfig, KvConfigError, Numbers, TileForm, VConfig, VECTOR, derive,
};
use tilewright_layout::IntTuple;

/// The numbers of keys, from the definition.
fn keys(bn: u32, bk: u32, wn: u32) -> Numbers {
    Numbers { btile: [bn, bk], wtile: [wn, bk], wsize: wn, iterator_axis: 1, transposed: true }
}

/// The numbers of values, from the definition; `None` where the columns do not divide.
fn values(bn: u32, bk: u32, wn: u32, depth: u32) -> Option<Numbers> {
    let columns = bn / wn;
    depth.is_multiple_of(columns).then(|| Numbers {
        btile: [bk, depth],
        wtile: [bk, depth / columns],
        wsize: depth / columns,
        iterator_axis: 0,
        transposed: false,
    })
}

#[test]
fn the_two_configurations_are_their_definitions() {
    assert_eq!(KConfig::<128, 32, 64>::NUMBERS, keys(128, 32, 64));
    assert_eq!(Some(VConfig::<128, 32, 64, 96>::NUMBERS), values(128, 32, 64, 96));
    assert_eq!(KConfig::<128, 32, 64>::warp_corner(1), [64, 0]);
    assert_eq!(VConfig::<128, 32, 64, 96>::warp_corner(1), [0, 48]);
}

/// Every configuration of the range that is legal follows its formulas; every other one says why not.
#[test]
fn everything_derived_follows_its_formula() {
    let (mut legal, mut refused) = (0, 0);
    for bn in [16u32, 32, 64, 128, 256] {
        for wn in [8u32, 16, 32, 64, 128, 256].into_iter().filter(|wn| bn.is_multiple_of(*wn)) {
            for bk in [16u32, 32, 64, 128] {
                for depth in [64u32, 96, 128, 256] {
                    for threads in [32u32, 64, 128, 256] {
                        for token_gen in [false, true] {
                            for group in [1, 2] {
                                let geometry = Geometry { group, ..Geometry::bf16(threads, token_gen) };
                                let numbers = [Some(keys(bn, bk, wn)), values(bn, bk, wn, depth)];
                                for numbers in numbers.into_iter().flatten() {
                                    match derive(numbers, geometry) {
                                        Ok(_) => legal += 1,
                                        Err(_) => refused += 1,
                                    }
                                    formulas(numbers, geometry);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(legal > 5000 && refused > 1000, "{legal} legal, {refused} refused");
}

fn formulas(numbers: Numbers, geometry: Geometry) {
    let Ok(derived) = derive(numbers, geometry) else { return };
    let [rows, columns] = numbers.btile;
    let contracted = if numbers.transposed { columns } else { rows };
    assert_eq!(derived.num_mmas, numbers.wsize.div_ceil(8));
    assert_eq!(derived.num_k_tiles, contracted.div_ceil(16 * geometry.group));
    assert_eq!((derived.simd_width, derived.num_repeats), (8, columns / 8));
    assert_eq!(derived.mma_tile, [derived.num_mmas, 8]);
    // What a thread carries is what the team moves, no more: the whole tile once.
    assert_eq!(derived.loads * geometry.threads * 8, rows * columns);
    // The register tile that the product of warps would declare is too large by the number of warp rows.
    let warps = geometry.threads / 32;
    let declared = derived.num_mmas * 8 * contracted.min(columns.max(rows)) / (32 * 8);
    if warps == 1 && numbers.transposed {
        assert_eq!(declared, numbers.wsize * columns / 256);
    }
    // Shared memory holds every element once.
    let layout = &derived.smem_layout;
    assert_eq!((layout.size(), layout.cosize()), ((rows * columns).into(), (rows * columns).into()));
    for (row, column) in [(0, 0), (rows - 1, columns - 1), (rows / 2, columns / 3), (1, 8)] {
        let at = IntTuple::constant(IntTuple::flat(&[row.into(), column.into()]));
        let expected =
            if geometry.token_gen { row * columns + column } else { row * 8 + column % 8 + column / 8 * rows * 8 };
        assert_eq!(layout.offset(&at).expect("inside"), i64::from(expected), "{layout} at {row}, {column}");
    }
    let threads = &derived.thread_layout;
    if geometry.token_gen {
        assert_eq!(threads.size(), i64::from(geometry.threads.min(rows * columns / 8)));
    } else {
        assert_eq!(threads.to_string(), format!("({},4):(4,1)", geometry.threads / 4));
    }
}

/// Values of the reference's prefill tile (32 keys) cannot be dealt to 256 threads: the error says so, instead of a
/// tile that is too short.
#[test]
fn values_that_do_not_divide_are_refused() {
    let error =
        derive(VConfig::<128, 32, 128, 128>::NUMBERS, Geometry::bf16(256, false)).expect_err("32 rows, 64 wanted");
    assert!(matches!(error, KvConfigError::Threads { rows: 32, wanted_rows: 64, .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "the tile of 32x128 has 16 vectors in a row and 32 rows; 256 threads as 4 to a row want 4 vectors and 64 rows: \
         use token_gen, or a tile that divides"
    );
    derive(VConfig::<128, 32, 128, 128>::NUMBERS, Geometry::bf16(256, true)).expect("rows of a decode tile divide");
    let odd = Numbers { wsize: 12, ..keys(64, 64, 64) };
    assert!(matches!(derive(odd, Geometry::bf16(128, true)), Err(KvConfigError::NotMultiple { found: 12, by: 8, .. })));
    let none = Numbers { btile: [0, 64], ..keys(64, 64, 64) };
    assert!(matches!(derive(none, Geometry::bf16(128, true)), Err(KvConfigError::Zero { .. })));
}

/// Every form of a tile, and the threads that move it.
fn forms() -> impl Iterator<Item = (TileForm, u32)> {
    let rows = [16u32, 32, 64, 128];
    rows.into_iter().flat_map(|rows| {
        [64u32, 96, 128, 256].into_iter().flat_map(move |columns| {
            [Form::Panels, Form::Vectors].into_iter().flat_map(move |form| {
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
            let (from, to) = (k.global::<bf16>("from"), k.global::<bf16>("to"));
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
        let (from, to) = (memory.upload("from", &numbers), memory.alloc("to", numbers.len() * 2));
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
