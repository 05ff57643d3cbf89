//! A copy of any pair of tensors is the naive loop: every element arrives once, zeros where the
//! source ends, and nothing else is touched.

use crate::{POISON, differences, run};
use half::bf16;
use proptest::prelude::*;
use tilewright_codegen::build::{Builder, Global, Scalar, block, record};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::sim::{self, Arg, Launch, Memory, Outcome};
use tilewright_codegen::verify::verify;
use tilewright_kernels::tile::{
    AsyncFrom, CopyFrom, CopyTo, Index, LayoutTensor, Modes, ThreadGroup, copy, copy_async,
};
use tilewright_layout::typed::{ColMajor, KMajor, OperandTile, RowMajor, StaticLayout, Swizzle, Swizzled};
use tilewright_layout::{Layout, Tiler};

/// The layout of a tensor of `extents` in global memory.
#[derive(Clone, Copy, Debug)]
struct Side {
    rows_first: bool,
    gap: u32,
    /// Whether the layout is of modes that the kernel is told, with the widest promise that holds.
    told: bool,
}

fn side() -> impl Strategy<Value = Side> {
    (any::<bool>(), prop_oneof![Just(0u32), Just(1), Just(4), Just(8)], any::<bool>())
        .prop_map(|(rows_first, gap, told)| Side { rows_first, gap, told })
}

impl Side {
    fn stride(self, [m, n]: [u32; 2]) -> u32 {
        self.gap + if self.rows_first { n } else { m }
    }

    fn offset(self, extents: [u32; 2], [i, j]: [u32; 2]) -> usize {
        let stride = self.stride(extents);
        (if self.rows_first { i * stride + j } else { j * stride + i }) as usize
    }

    fn layout(self, [m, n]: [u32; 2]) -> Layout {
        let stride = self.stride([m, n]).into();
        let strides = if self.rows_first { [stride, 1] } else { [1, stride] };
        let leaf = |extent: u32, stride| Layout::leaf(extent.into(), stride).unwrap();
        Layout::tuple(&[leaf(m, strides[0]), leaf(n, strides[1])]).unwrap()
    }

    fn modes<'k>(self, extents: [u32; 2], told: [Index<'k>; 3]) -> Modes<'k, 2> {
        let line = if self.rows_first { extents[1] } else { extents[0] };
        let whole = 1 << (line | self.stride(extents)).trailing_zeros().min(3);
        let [m, n, stride] = told;
        let modes = if self.rows_first { Modes::row_major([m, n], stride) } else { Modes::col_major([m, n], stride) };
        modes.vectors(whole)
    }
}

/// The threads that copy.
#[derive(Clone, Copy, Debug)]
enum Who {
    Block,
    BlockAsync,
    /// Every thread copies all of it for itself: the same words.
    First,
    FirstAsync,
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![Just(Who::Block), Just(Who::BlockAsync), Just(Who::First), Just(Who::FirstAsync)]
}

fn fill<'k, F: AsyncFrom<'k>, T>(k: &'k Builder, who: Who, from: F, to: T)
where
    T: tilewright_kernels::tile::AsyncTo<'k, Scalar = F::Scalar>,
{
    match who {
        Who::Block => ThreadGroup::block(k).copy(from, to),
        Who::BlockAsync => ThreadGroup::block(k).copy_async(from, to),
        Who::First => k.moving().when(k.tid().eq(0), || copy(from, to)),
        Who::FirstAsync => k.moving().when(k.tid().eq(0), || copy_async(from, to)),
    }
    k.cp_async_commit();
    k.cp_async_wait(0);
    k.barrier();
}

fn empty<'k, F: CopyFrom<'k>, T: CopyTo<'k, Scalar = F::Scalar>>(k: &'k Builder, who: Who, from: F, to: T) {
    match who {
        Who::Block | Who::BlockAsync => ThreadGroup::block(k).copy(from, to),
        Who::First | Who::FirstAsync => k.moving().when(k.tid().eq(0), || copy(from, to)),
    }
}

/// An element of a test.
trait Number: Scalar + sim::MemoryElement + PartialEq + std::fmt::Debug {
    fn of(value: u32) -> Self;
}

impl Number for u32 {
    fn of(value: u32) -> u32 {
        value
    }
}

impl Number for bf16 {
    fn of(value: u32) -> bf16 {
        bf16::from_bits(value as u16)
    }
}

impl Number for u8 {
    fn of(value: u32) -> u8 {
        value as u8
    }
}

fn execute<T: Number>(kernel: Kernel, numbers: &[u32], input: &[T], len: usize) -> Vec<T> {
    let verified = verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
    let mut memory = Memory::new();
    let scalar = |&number: &u32| Arg::Scalar(tilewright_codegen::ir::Const::u32(number));
    let mut args: Vec<Arg> = numbers.iter().map(scalar).collect();
    args.push(Arg::Ptr(memory.upload_read_only("x", input)));
    let out = memory.upload("y", &vec![T::of(POISON); len]);
    args.push(Arg::Ptr(out));
    match sim::run(&verified, &Launch::new([1, 1, 1], args), &mut memory, 5).expect("it launches") {
        Outcome::Fault(fault) => panic!("{fault}\n{}", verified.kernel()),
        Outcome::Finished(_) => memory.download(out, len).expect("it was uploaded"),
    }
}

/// Copies a tile of `L` at a place among a tensor's tiles, through shared memory, to the tile at
/// the same place of another tensor.
fn through<T: Number, L: StaticLayout>(case: Case) -> Result<(), TestCaseError> {
    let Case { extents, tile, from, to, who, threads, .. } = case;
    let shape = [L::LAYOUT.extent(0) as u32, L::LAYOUT.extent(1) as u32];
    // Layouts that are values have whole tiles.
    let extents = [0, 1].map(|i| if from.told && to.told { extents[i] } else { extents[i].next_multiple_of(shape[i]) });
    let tile = [0, 1].map(|i| tile[i] % extents[i].div_ceil(shape[i]));
    let len = 4096;
    let input: Vec<T> = (0..len as u32).map(|i| T::of(i * 7 + 1)).collect();
    let kernel = record("through", Arch::Sm80, block(threads), |k| {
        let zero = k.param::<u32>("zero");
        let told = |side: Side, names: [&str; 3]| {
            let known = [extents[0], extents[1], side.stride(extents)];
            let values = names.map(|name| k.param::<u32>(name));
            let of = |i: usize| if case.known { Index::from(known[i]) } else { Index::any(values[i]) };
            [of(0), of(1), of(2)]
        };
        let a = told(from, ["am", "an", "as"]);
        let b = told(to, ["bm", "bn", "bs"]);
        let x = k.global::<T>("x");
        let y = k.global::<T>("y");
        let staged = LayoutTensor::<T, L, _>::shared(k, "staged");
        let place = tile.map(|at| Index::any(zero) + at);
        let tiler = Tiler::by_mode(&shape.map(|e| Tiler::extent(e.into()))).unwrap();
        let part = |base, side: Side| {
            LayoutTensor::<T, _, Global>::new(base, side.layout(extents)).tile_by(&tiler, tile.map(Index::from))
        };
        let edged =
            |base, side: Side, told| LayoutTensor::new(base, side.modes(extents, told)).clipped_tile(shape, place);
        if from.told {
            fill(k, who, edged(x, from, a), staged)
        } else {
            fill(k, who, part(x, from), staged)
        }
        if to.told { empty(k, who, staged, edged(y, to, b)) } else { empty(k, who, staged, part(y, to)) }
    });
    let mut expected = vec![T::of(POISON); len];
    for i in 0..shape[0] {
        for j in 0..shape[1] {
            let at = [tile[0] * shape[0] + i, tile[1] * shape[1] + j];
            if at[0] < extents[0] && at[1] < extents[1] {
                expected[to.offset(extents, at)] = input[from.offset(extents, at)];
            }
        }
    }
    let numbers = [0, extents[0], extents[1], from.stride(extents), extents[0], extents[1], to.stride(extents)];
    prop_assert_eq!(differences(&execute(kernel, &numbers, &input, len), &expected), [], "{:?}", case);
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct Case {
    extents: [u32; 2],
    tile: [u32; 2],
    from: Side,
    to: Side,
    who: Who,
    threads: u32,
    known: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let numbers = ([1u32..40, 1u32..40], [0u32..4, 0u32..4], prop_oneof![Just(32u32), Just(96), Just(128)]);
    (numbers, side(), side(), who(), any::<bool>()).prop_map(|((extents, tile, threads), from, to, who, known)| Case {
        extents,
        tile,
        from,
        to,
        who,
        threads,
        known,
    })
}

type Run = fn(Case) -> Result<(), TestCaseError>;

/// Element types, and layouts in shared memory: plain, padded, transposed, swizzled, with extents
/// that no warp divides.
const RUNS: [Run; 9] = [
    through::<u32, RowMajor<8, 16>>,
    through::<u32, ColMajor<8, 12>>,
    through::<u32, Swizzled<Swizzle<2, 2, 2>, RowMajor<8, 16>>>,
    through::<bf16, RowMajor<12, 8>>,
    through::<bf16, OperandTile<KMajor, 16, 8, 32>>,
    through::<bf16, ColMajor<16, 6>>,
    through::<u8, RowMajor<6, 16>>,
    through::<u8, RowMajor<4, 20>>,
    through::<u32, RowMajor<3, 5>>,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_pair_is_copied_as_by_a_loop(run in 0..RUNS.len(), case in case()) {
        RUNS[run](case)?;
    }
}

#[test]
fn three_modes_are_copied() {
    let numbers: Vec<u32> = (0..500).collect();
    let kernel = record("cubes", Arch::Sm80, block(64), |k| {
        let rows = k.param::<u32>("rows");
        let x = k.global::<u32>("x");
        let y = k.global::<u32>("y");
        let strides = [100.into(), 20.into(), 1.into()];
        let x = LayoutTensor::new(x, Modes::new([4.into(), rows.into(), 20.into()], strides).vectors(4));
        let cube = LayoutTensor::new(k.shared::<u32>("cube", 4 * 4 * 8), Layout::parse("(4,4,8):(32,8,1)").unwrap());
        ThreadGroup::block(k).copy_async(x.clipped_tile([4, 4, 8], [0.into(), 1.into(), 1.into()]), cube);
        k.cp_async_commit();
        k.cp_async_wait(0);
        k.barrier();
        let y = LayoutTensor::new(y, Modes::new([4.into(), 4.into(), 8.into()], [1.into(), 4.into(), 16.into()]));
        ThreadGroup::block(k).copy(cube, y.permute([0, 1, 2]));
    });
    let found = run(kernel, &[5], &[&numbers], 128);
    for (at, &word) in found.iter().enumerate() {
        let i = at % 4;
        let j = at / 4 % 4;
        let l = at / 16;
        // Of the second four rows there is one.
        let expected = if j < 1 { i * 100 + (4 + j) * 20 + 8 + l } else { 0 };
        assert_eq!(word as usize, expected, "({i},{j},{l})");
    }
}

#[test]
fn registers_are_a_side_like_the_others() {
    use tilewright_kernels::tile::{RegisterTensor, RegisterVar};
    let numbers: Vec<u32> = (0..600).collect();
    let kernel = record("registers", Arch::Sm80, block(32), |k| {
        let rows = k.param::<u32>("rows");
        let x = k.global::<u32>("x");
        let y = k.global::<u32>("y");
        let x = LayoutTensor::new(x, Modes::row_major([rows.into(), 64.into()], 64u32).vectors(4));
        // Four rows of eight columns a thread: eight threads across, four down.
        let place = [Index::lane(k) / 8, Index::lane(k) % 8];
        let held = RegisterVar::<u32, ColMajor<4, 8>>::unset(k);
        copy(x.clipped_tile([4, 8], place), held);
        let tile = LayoutTensor::<u32, RowMajor<16, 64>, _>::shared(k, "tile");
        copy(held.get().map(|x| x + 1), tile.tile::<4, 8>(place));
        let back = RegisterTensor::<u32, RowMajor<4, 8>>::load_from(tile.tile::<4, 8>(place));
        // Seven rows of the result exist.
        let y = LayoutTensor::new(y, Modes::col_major([7.into(), 64.into()], 8u32));
        back.store_to(y.clipped_tile([4, 8], place));
    });
    let wide = |kernel: &Kernel| kernel.to_string().matches("ld.u32 global").count();
    assert_eq!(wide(&kernel), 8, "two vectors a row");
    let found = run(kernel, &[6], &[&numbers[..384]], 512);
    for (at, &word) in found.iter().enumerate() {
        let row = at % 8;
        let column = at / 8;
        let expected = match row {
            0..6 => numbers[row * 64 + column] + 1,
            6 => 1,
            _ => POISON,
        };
        assert_eq!(word, expected, "({row},{column})");
    }
}
