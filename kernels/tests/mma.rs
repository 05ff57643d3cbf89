//! Tiles over both matrix instructions, in the simulator, against plain loops: every element type,
//! both orders of the operands, extents that no tile divides.

use half::{bf16, f16};
use proptest::prelude::*;
use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val, block, record};
use tilewright_codegen::ir::attr::ProxyFence;
use tilewright_codegen::ir::{Arch, Const, Kernel};
use tilewright_codegen::sim::{self, Arg, Counters, Launch, Memory, Outcome};
use tilewright_codegen::verify::verify;
use tilewright_kernels::mma::{Atom, AtomGrid, AtomLayout, E4M3, E5M2, InputType, MmaSync, Tf32, TiledMma, Wgmma};
use tilewright_kernels::tile::{LayoutTensor, Modes, ThreadGroup};
use tilewright_layout::typed::{ColMajor, KMajor, MnMajor, OperandTile, RowMajor, StaticLayout, Swizzle, Swizzled};

/// Elements that the host makes and the kernel reads.
trait Number: InputType<Stored: sim::MemoryElement> {
    fn of(value: i8) -> Self::Stored;
    fn sum(bits: u32) -> f64 {
        f32::from_bits(bits).into()
    }
}

impl Number for bf16 {
    fn of(value: i8) -> bf16 {
        bf16::from_f32(value.into())
    }
}

impl Number for f16 {
    fn of(value: i8) -> f16 {
        f16::from_f32(value.into())
    }
}

impl Number for i8 {
    fn of(value: i8) -> i8 {
        value
    }
    fn sum(bits: u32) -> f64 {
        (bits as i32).into()
    }
}

impl Number for E4M3 {
    fn of(value: i8) -> u8 {
        E4M3::nearest(value.into())
    }
}

impl Number for E5M2 {
    fn of(value: i8) -> u8 {
        E5M2::nearest(value.into())
    }
}

impl Number for Tf32 {
    fn of(value: i8) -> f32 {
        value.into()
    }
}

/// A product: its extents, whether the contraction index is contiguous, and the promised vectors.
#[derive(Clone, Copy, Debug)]
struct Case {
    m: usize,
    n: usize,
    k: usize,
    k_major: bool,
    vector: u32,
}

fn value(i: usize, j: usize) -> i8 {
    ((i * 7 + j * 13 + i * j) % 9) as i8 - 4
}

/// An operand of `rows`×`k` as memory holds it, and its stride.
fn operand<F: Number>(rows: usize, case: Case, seed: usize) -> (Vec<F::Stored>, usize) {
    let (lines, line) = if case.k_major { (rows, case.k) } else { (case.k, rows) };
    let stride = (line + 8).next_multiple_of(16);
    let mut data = vec![F::of(7); lines * stride];
    for l in 0..lines {
        for i in 0..line {
            let (row, k) = if case.k_major { (l, i) } else { (i, l) };
            data[l * stride + i] = F::of(value(row + seed, k));
        }
    }
    (data, stride)
}

fn check<F: Number>(case: Case, kernel: Kernel, seed: u64) -> Counters {
    let verified = verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
    let mut memory = Memory::new();
    let (a, lda) = operand::<F>(case.m, case, 0);
    let (b, ldb) = operand::<F>(case.n, case, 3);
    let ap = memory.upload_read_only("a", &a);
    let bp = memory.upload_read_only("b", &b);
    let c = memory.alloc("c", case.m * case.n * 4);
    let numbers = [case.m, case.n, case.k, lda, ldb].map(|n| Arg::Scalar(Const::u32(n as u32)));
    let args = numbers.into_iter().chain([ap, bp, c].map(Arg::Ptr)).collect();
    match sim::run(&verified, &Launch::new([1, 1, 1], args), &mut memory, seed).expect("it launches") {
        Outcome::Fault(fault) => panic!("{case:?}, {}: {fault}", F::NAME),
        Outcome::Finished(counters) => {
            let found = memory.download::<u32>(c, case.m * case.n).expect("every element is written");
            for (i, bits) in found.into_iter().enumerate() {
                let row = i / case.n;
                let column = i % case.n;
                let sum: i64 = (0..case.k).map(|k| i64::from(value(row, k)) * i64::from(value(column + 3, k))).sum();
                assert_eq!(F::sum(bits), sum as f64, "{case:?}, {}: ({row}, {column})", F::NAME);
            }
            counters
        }
    }
}

/// A matrix whose extents and stride the kernel is told.
type Edged<'k, T> = LayoutTensor<'k, T, Modes<'k, 2>, Global>;

/// The parameters of both kernels: the operands with their edges, and the product.
fn parameters<'k, F: InputType>(k: &'k Builder, case: Case) -> ([Edged<'k, F::Stored>; 2], Edged<'k, F::Sum>) {
    let [m, n, depth, lda, ldb] = ["m", "n", "k", "lda", "ldb"].map(|name| k.param::<u32>(name));
    let a = k.global::<F::Stored>("a");
    let b = k.global::<F::Stored>("b");
    let operand = |base: Ptr<'k, Global, F::Stored>, rows: Val<'k, u32>, stride| {
        let extents = [rows.into(), depth.into()];
        let modes = if case.k_major { Modes::row_major(extents, stride) } else { Modes::col_major(extents, stride) };
        LayoutTensor::new(base, modes.vectors(case.vector))
    };
    let operands = [operand(a, m, lda), operand(b, n, ldb)];
    (operands, LayoutTensor::new(k.global::<F::Sum>("c"), Modes::row_major([m.into(), n.into()], n)))
}

/// Writes the warps' parts of the product, what is inside.
fn store<'k, X: Atom, L: StaticLayout, R: StaticLayout, T: AtomGrid>(
    product: TiledMma<'k, X, L, R, T>,
    c: Edged<'k, Sum<X>>,
) {
    let sums = product.sums();
    let [row, column] = product.corner();
    for pair in sums.pairs(product.thread()) {
        for i in 0..2 {
            c.store([row + pair.row, column + pair.column + i], sums.get(pair.first + i));
        }
    }
}

type Sum<X> = <<X as Atom>::Input as InputType>::Sum;
type Stored<X> = <<X as Atom>::Input as InputType>::Stored;

/// Multiplies operands in shared memory; if the flag is false, the first product replaces the
/// previous sums.
type Multiply<'k, X, L, R, T> = fn(
    TiledMma<'k, X, L, R, T>,
    LayoutTensor<'k, Stored<X>, L, Shared>,
    LayoutTensor<'k, Stored<X>, R, Shared>,
    Val<'k, bool>,
);

/// A kernel of one block, which takes the tiles' extent of K at a time.
fn kernel<'k, X: Atom, L: StaticLayout, R: StaticLayout, T: AtomGrid>(
    k: &'k Builder,
    case: Case,
    multiply: Multiply<'k, X, L, R, T>,
) {
    let ([a, b], c) = parameters::<X::Input>(k, case);
    let [m, n, depth] = TiledMma::<X, L, R, T>::EXTENTS;
    let a_tile = LayoutTensor::new(k.shared_aligned("a", m * depth, 1024), L::default());
    let b_tile = LayoutTensor::new(k.shared_aligned("b", n * depth, 1024), R::default());
    let product = TiledMma::<X, L, R, T>::new(k);
    let threads = ThreadGroup::block(k);
    k.for_(0u32, (case.k as u32).div_ceil(depth), |step| {
        threads.copy_async(a.clipped_tile([m, depth], [0.into(), step.into()]), a_tile);
        threads.copy_async(b.clipped_tile([n, depth], [0.into(), step.into()]), b_tile);
        k.cp_async_commit();
        k.cp_async_wait(0);
        if X::THREADS == 128 {
            k.fence_proxy_async(ProxyFence::Shared);
        }
        k.barrier();
        multiply(product, a_tile, b_tile, step.ne(0));
        k.barrier();
    });
    store(product, c);
}

fn warps<F: Number, L: StaticLayout, R: StaticLayout, T: AtomGrid>(case: Case) -> Counters {
    let launch = block(TiledMma::<MmaSync<F>, L, R, T>::THREADS);
    let recorded = record("warps", Arch::Sm90a, launch, |k| {
        kernel::<MmaSync<F>, L, R, T>(k, case, |product, a, b, _| product.multiply(a, b));
    });
    check::<F>(case, recorded, u64::from(case.vector))
}

fn warpgroups<F: Number, L: StaticLayout, R: StaticLayout, T: AtomGrid>(case: Case) -> Counters {
    let launch = block(TiledMma::<Wgmma<F>, L, R, T>::THREADS);
    let recorded = record("warpgroups", Arch::Sm90a, launch, |k| {
        kernel::<Wgmma<F>, L, R, T>(k, case, |product, a, b, keep| {
            product.issue(a, b, keep);
            product.wait_group(0);
        });
    });
    check::<F>(case, recorded, u64::from(case.vector))
}

/// Runs a tiled product on a case of an order.
type Runner = (fn(Case) -> Counters, [usize; 2], i64, bool);

macro_rules! runners {
    ($($name:ident<$F:ty, $L:ty, $R:ty, $T:ty> $k_major:literal;)+) => {
        [$((
            $name::<$F, $L, $R, $T> as fn(Case) -> Counters,
            [<$L>::LAYOUT.extent(0) as usize, <$R>::LAYOUT.extent(0) as usize],
            <$F as InputType>::BITS,
            $k_major,
        )),+]
    };
}

type Rows<const R: usize> = Swizzled<Swizzle<2, 3, 3>, RowMajor<R, 32>>;
type Columns<const R: usize> = Swizzled<Swizzle<2, 3, 3>, ColMajor<R, 32>>;
type Bytes<const R: usize> = Swizzled<Swizzle<2, 4, 3>, RowMajor<R, 64>>;

type Words<const R: usize> = Swizzled<Swizzle<3, 2, 3>, RowMajor<R, 32>>;

/// Both instructions, every element type, one warp (or warpgroup) and several, every swizzle.
const RUNNERS: [Runner; 20] = runners! {
    warps<bf16, Rows<32>, Rows<24>, AtomLayout<1, 1>> true;
    warps<f16, Rows<64>, Rows<24>, AtomLayout<2, 1>> true;
    warps<bf16, Columns<32>, Columns<32>, AtomLayout<1, 2>> false;
    warps<bf16, Rows<64>, Rows<64>, AtomLayout<2, 4>> true;
    warps<i8, Bytes<32>, Bytes<24>, AtomLayout<1, 1>> true;
    warps<E4M3, Bytes<32>, Bytes<48>, AtomLayout<2, 2>> true;
    warps<E5M2, OperandTile<KMajor, 8, 32, 128>, OperandTile<KMajor, 8, 32, 128>, AtomLayout<1, 2>> true;
    warps<Tf32, Words<32>, Words<24>, AtomLayout<2, 1>> true;
    warps<Tf32, OperandTile<KMajor, 32, 32, 32>, OperandTile<KMajor, 32, 32, 32>, AtomLayout<1, 2>> true;
    warpgroups<bf16, OperandTile<KMajor, 16, 128, 64>, OperandTile<KMajor, 16, 64, 64>, AtomLayout<1, 1>> true;
    warpgroups<Tf32, OperandTile<KMajor, 32, 128, 32>, OperandTile<KMajor, 32, 64, 32>, AtomLayout<2, 1>> true;
    warpgroups<Tf32, OperandTile<KMajor, 32, 64, 16>, OperandTile<KMajor, 32, 24, 16>, AtomLayout<1, 1>> true;
    warpgroups<f16, OperandTile<KMajor, 16, 128, 32>, OperandTile<KMajor, 16, 64, 32>, AtomLayout<2, 1>> true;
    warpgroups<bf16, OperandTile<KMajor, 16, 64, 16>, OperandTile<KMajor, 16, 64, 16>, AtomLayout<1, 2>> true;
    warpgroups<bf16, OperandTile<KMajor, 16, 128, 128>, OperandTile<KMajor, 16, 64, 128>, AtomLayout<2, 2>> true;
    warpgroups<bf16, OperandTile<MnMajor, 16, 128, 64>, OperandTile<MnMajor, 16, 128, 64>, AtomLayout<2, 1>> false;
    warpgroups<f16, OperandTile<MnMajor, 16, 128, 16>, OperandTile<MnMajor, 16, 64, 16>, AtomLayout<1, 1>> false;
    warpgroups<i8, OperandTile<KMajor, 8, 128, 128>, OperandTile<KMajor, 8, 64, 128>, AtomLayout<1, 2>> true;
    warpgroups<E4M3, OperandTile<KMajor, 8, 128, 64>, OperandTile<KMajor, 8, 64, 64>, AtomLayout<2, 1>> true;
    warpgroups<E5M2, OperandTile<KMajor, 8, 64, 128>, OperandTile<KMajor, 8, 24, 128>, AtomLayout<1, 1>> true;
};

#[test]
fn whole_tiles_are_multiplied_without_bank_conflicts() {
    for (run, [m, n], bits, k_major) in RUNNERS {
        let case = Case { m, n, k: 256, k_major, vector: 128 / bits as u32 };
        assert_eq!(run(case).conflicts(), 0, "{case:?}, {bits} bits");
    }
}

#[test]
fn the_least_tile_is_multiplied() {
    for (run, _, _, k_major) in RUNNERS {
        run(Case { m: 1, n: 1, k: 1, k_major, vector: 1 });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_extents_within_the_tiles_are_multiplied(
        runner in 0..RUNNERS.len(),
        share in (0.0f64..1.0, 0.0f64..1.0),
        k in 1usize..200,
        wide: bool,
    ) {
        let (run, [m, n], _, k_major) = RUNNERS[runner];
        let part = |extent: usize, share: f64| 1 + ((extent - 1) as f64 * share) as usize;
        let m = part(m, share.0);
        let n = part(n, share.1);
        // Vectors lie inside as a whole.
        let whole = if k_major { k } else { m | n };
        let widest = (1u32 << whole.trailing_zeros()).min(16);
        run(Case { m, n, k, k_major, vector: if wide { widest } else { 1 } });
    }
}
