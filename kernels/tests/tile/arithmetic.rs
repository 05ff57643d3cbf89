//! Half-known numbers, typed tiles and fragments against plain arithmetic and the host's views.

use crate::words;
use proptest::prelude::*;
use tilewright_codegen::build::{Builder, Global, Ptr, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::tile::{Index, LayoutTensor, place};
use tilewright_layout::typed::{ColMajor, Lowered, MnMajor, OperandTile, RowMajor, StaticLayout, Swizzle, Swizzled};
use tilewright_layout::view::{self, Along};
use tilewright_layout::{Layout, Tiler};

/// A step of index arithmetic.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add(u32),
    AddThread,
    Mul(u32),
    Div(u32),
    Rem(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u32..300).prop_map(Step::Add),
        Just(Step::AddThread),
        (1u32..20).prop_map(Step::Mul),
        prop_oneof![1u32..20, Just(32), Just(64)].prop_map(Step::Div),
        prop_oneof![1u32..20, Just(32), Just(64)].prop_map(Step::Rem),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn half_known_numbers_compute_as_whole_ones(steps in proptest::collection::vec(step(), 1..8)) {
        let kernel = record("arithmetic", Arch::Sm80, block(64), |k| {
            let thread = Index::thread(k);
            let result = steps.iter().fold(thread, |x, step| match *step {
                Step::Add(c) => x + c,
                Step::AddThread => x + thread,
                Step::Mul(c) => x * c,
                Step::Div(c) => x / c,
                Step::Rem(c) => x % c,
            });
            // The bits that are said to be possible are all there are.
            let stray = result.variable().get(k) & !result.bits();
            let out = k.global::<u32>("out");
            out.at(k.tid()).store(result.get(k));
            out.at(64).at(k.tid()).store(stray);
        });
        let found = words(kernel, 128);
        for thread in 0..64u32 {
            let expected = steps.iter().fold(thread, |x, step| match *step {
                Step::Add(c) => x + c,
                Step::AddThread => x + thread,
                Step::Mul(c) => x.wrapping_mul(c),
                Step::Div(c) => x / c,
                Step::Rem(c) => x % c,
            });
            prop_assert_eq!(found[thread as usize], expected, "thread {}", thread);
            prop_assert_eq!(found[64 + thread as usize], 0, "thread {}: bits outside the bound", thread);
        }
    }

    #[test]
    fn a_layout_evaluates_as_on_the_host(
        modes in proptest::collection::vec((1i64..9, 0i64..40), 1..4), shift in 0u32..4, extra in 0u32..9,
    ) {
        let leaves: Vec<Layout> = modes.iter().map(|&(e, s)| Layout::leaf(e, s).unwrap()).collect();
        let layout = Layout::tuple(&leaves).unwrap();
        let index = |thread: u32| (thread << shift) + extra;
        let kernel = record("place", Arch::Sm80, block(64), |k| {
            let at = place(&layout, Index::thread(k) * (1 << shift) + extra);
            k.global::<u32>("out").at(k.tid()).store(at.get(k));
        });
        let found = words(kernel, 64);
        for thread in (0..64).filter(|&thread| i64::from(index(thread)) < layout.size()) {
            prop_assert_eq!(i64::from(found[thread as usize]), layout.at(index(thread).into()), "{} at {}", layout, thread);
        }
    }
}

/// Thread t writes `100·t + j` to element j of its fragment of tile (1, 1); the memory is compared
/// with a host view that did the same.
fn fragments_agree<L: StaticLayout, Threads: StaticLayout, const M: usize, const N: usize>() {
    let reach = Lowered::<L>::REACH;
    let threads = Lowered::<Threads>::SIZE as u32;
    let kernel = record("fragments", Arch::Sm80, block(threads), |k: &Builder| {
        let out: Ptr<'_, Global, u32> = k.global("out");
        let tile = LayoutTensor::new(out, L::default()).tile::<M, N>([1.into(), 1.into()]);
        let mine = tile.distribute::<Threads>(Index::thread(k));
        let size = mine.layout().size() as u32;
        for j in 0..size {
            mine.flat(j.into()).store(k.tid() * 100 + j);
        }
    });
    let mut expected = vec![crate::POISON; reach];
    let host = view::TensorView::<_, L>::from_mut(&mut expected).unwrap();
    let tile = host.tile::<M, N>([1, 1]).unwrap();
    for thread in 0..threads {
        for (j, cell) in (0..).zip(tile.distribute::<Threads>(thread as usize).unwrap().iter()) {
            cell.set(thread * 100 + j);
        }
    }
    assert_eq!(words(kernel, reach), expected);
}

#[test]
fn tiles_and_fragments_are_those_of_the_host() {
    fragments_agree::<RowMajor<32, 16>, RowMajor<4, 8>, 16, 8>();
    fragments_agree::<ColMajor<24, 48>, RowMajor<4, 8>, 12, 24>();
    fragments_agree::<Swizzled<Swizzle<3, 2, 3>, RowMajor<32, 64>>, RowMajor<4, 8>, 16, 32>();
    fragments_agree::<Swizzled<Swizzle<3, 0, 3>, RowMajor<16, 16>>, ColMajor<4, 8>, 8, 8>();
    fragments_agree::<OperandTile<MnMajor, 32, 64, 16>, RowMajor<8, 4>, 32, 8>();
}

#[test]
fn constants_that_commute_with_a_swizzle_cost_nothing() {
    type Rows = Swizzled<Swizzle<3, 3, 3>, RowMajor<64, 64>>;
    let instructions = |rows: u32| {
        let kernel = record("rows", Arch::Sm80, block(64), |k| {
            let tile = LayoutTensor::new(k.global::<u32>("out"), Rows::default());
            for row in 0..rows {
                tile.at([Index::thread(k) / 8 + 8 * row, Index::thread(k) % 8 * 8]).store(0u32);
            }
        });
        let mut count = 0;
        kernel.walk(&mut |_| count += 1);
        count
    };
    assert_eq!(instructions(8) - instructions(1), 7, "a store each and no arithmetic");
}

#[test]
fn a_tile_of_a_value_is_that_of_the_type() {
    type Rows = Swizzled<Swizzle<3, 2, 3>, RowMajor<32, 64>>;
    let addresses = |typed: bool| {
        let kernel = record("tiles", Arch::Sm80, block(32), |k| {
            let tensor = LayoutTensor::new(k.global::<u32>("out"), Rows::default());
            let place: [Index<'_>; 2] = [Index::lane(k) / 16, Index::lane(k) % 2];
            let at: [Index<'_>; 2] = [3.into(), Index::lane(k) / 2 % 8];
            let pointer = if typed {
                tensor.tile::<8, 32>(place).at(at)
            } else {
                let tiler = Tiler::by_mode(&[Tiler::extent(8), Tiler::extent(32)]).unwrap();
                tensor.tile_by(&tiler, place).at(at)
            };
            pointer.store(k.lane());
        });
        words(kernel, 32 * 64)
    };
    assert_eq!(addresses(true), addresses(false));
}

#[test]
fn tiles_go_along_an_axis_once_or_in_a_circle() {
    let kernel = record("iterators", Arch::Sm80, block(32), |k| {
        let tensor = LayoutTensor::new(k.global::<u32>("out"), RowMajor::<6, 8>::default());
        let ring = tensor.tiles_around::<2, 4>(k, Along::Rows, 1.into());
        k.for_(0u32, 5u32, |i| {
            k.when(k.lane().eq(0), || ring.here().at([1.into(), 2.into()]).store(i));
            ring.advance();
        });
        let line = tensor.tiles_along::<2, 4>(k, Along::Columns, 0.into());
        k.while_(
            || line.valid(k),
            || {
                k.when(k.lane().eq(0), || line.here().at([0.into(), 0.into()]).store(line.number() + 90));
                line.advance();
            },
        );
    });
    let found = words(kernel, 48);
    let written: Vec<(usize, u32)> = found.into_iter().enumerate().filter(|&(_, word)| word != crate::POISON).collect();
    assert_eq!(written, [(0, 90), (4, 91), (14, 3), (30, 4), (46, 2)]);
}

#[test]
fn vectors_are_given_where_they_are_whole() {
    type Rows = Swizzled<Swizzle<3, 3, 3>, RowMajor<16, 64>>;
    record("vectors", Arch::Sm80, block(32), |k| {
        let tile = LayoutTensor::new(k.shared_aligned::<half::bf16>("tile", 1024, 1024), Rows::default());
        let row = tile.vectorize::<1, 8>().load([Index::lane(k) / 8, Index::lane(k) % 8]);
        tile.vectorize::<1, 8>().store([Index::lane(k) / 8 + 4, Index::lane(k) % 8], row);
    });
}
