//! Tiles over both matrix instructions, in the simulator, against plain loops: every element type, both orders of the
//! factors, extents that no tile divides.

use half::{bf16, f16};
use tilewright_codegen::build::{Builder, Global, Ptr, Scalar, block, record};
use tilewright_codegen::ir::attr::ProxyFence;
use tilewright_codegen::ir::{Arch, Const, Kernel};
use tilewright_codegen::sim::{self, Arg, Counters, Launch, Memory, Outcome};
use tilewright_codegen::verify::verify;
use tilewright_kernels::mma::{Accumulator, E4M3, Factor, SharedFactor, WarpTile, WarpgroupTile};
use tilewright_kernels::tile::{Coord, LayoutTensor, Matrix, Team, copy_async};
use tilewright_layout::typed::{ColMajor, KMajor, MatrixTile, MnMajor, RowMajor, StaticLayout, Swizzle, Swizzled};

/// Elements that the host makes and the kernel reads.
trait Number: Factor<Stored: sim::Element> {
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
    /// Exponent bias 7, three bits of mantissa: the integers up to 8 in size are exact.
    fn of(value: i8) -> u8 {
        let sign = if value < 0 { 0x80 } else { 0 };
        let size = u32::from(value.unsigned_abs());
        let Some(exponent) = size.checked_ilog2() else { return sign };
        sign | ((exponent as u8 + 7) << 3) | ((size << 3 >> exponent) & 7) as u8
    }
}

/// One product: its extents, whether the contraction index is contiguous, and the vectors that are promised.
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

/// A factor of `rows`×`k` as memory holds it, and its stride.
fn factor<F: Number>(rows: usize, case: Case, seed: usize) -> (Vec<F::Stored>, usize) {
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
    let ((a, lda), (b, ldb)) = (factor::<F>(case.m, case, 0), factor::<F>(case.n, case, 3));
    let (ap, bp) = (memory.upload_read_only("a", &a), memory.upload_read_only("b", &b));
    let c = memory.alloc("c", case.m * case.n * 4);
    let numbers = [case.m, case.n, case.k, lda, ldb].map(|n| Arg::Scalar(Const::u32(n as u32)));
    let args = numbers.into_iter().chain([ap, bp, c].map(Arg::Ptr)).collect();
    match sim::run(&verified, &Launch::new([1, 1, 1], args), &mut memory, seed).expect("it launches") {
        Outcome::Fault(fault) => panic!("{case:?}, {}: {fault}", F::NAME),
        Outcome::Finished(counters) => {
            let found = memory.download::<u32>(c, case.m * case.n).expect("every element is written");
            for (i, bits) in found.into_iter().enumerate() {
                let (row, column) = (i / case.n, i % case.n);
                let sum: i64 = (0..case.k).map(|k| i64::from(value(row, k)) * i64::from(value(column + 3, k))).sum();
                assert_eq!(F::sum(bits), sum as f64, "{case:?}, {}: ({row}, {column})", F::NAME);
            }
            counters
        }
    }
}

/// The parameters of both kernels: the factors with their edges, and the product.
fn parameters<'k, F: Factor>(k: &'k Builder, case: Case) -> ([Matrix<'k, F::Stored>; 2], Matrix<'k, F::Sum>) {
    let [m, n, depth, lda, ldb] = ["m", "n", "k", "lda", "ldb"].map(|name| k.param::<u32>(name));
    let (a, b) = (k.global::<F::Stored>("a"), k.global::<F::Stored>("b"));
    let factor = |base: Ptr<'k, Global, F::Stored>, rows, stride| {
        if case.k_major {
            Matrix::row_major(base, [rows, depth], stride).vectors(case.vector)
        } else {
            Matrix::col_major(base, [rows, depth], stride).vectors(case.vector)
        }
    };
    let factors = [factor(a, m, lda), factor(b, n, ldb)];
    (factors, Matrix::row_major(k.global::<F::Sum>("c"), [m, n], n))
}

fn store<'k, A: Scalar>(k: &'k Builder, sums: Accumulator<'k, A>, thread: Coord<'k>, c: Matrix<'k, A>) {
    let tile = c.tile(sums.extents(), [k.lit(0), k.lit(0)]);
    for pair in sums.pairs(thread) {
        for i in 0..2 {
            let at = [pair.row, pair.column + i];
            k.when(tile.inside(k, at), || tile.at(k, at).store(sums.get(pair.first + i)));
        }
    }
}

/// One warp: 32×24, the shared tiles' extent of K at a time.
fn warp<F: Factor, A: StaticLayout, B: StaticLayout>(k: &Builder, case: Case) {
    let ([a, b], c) = parameters::<F>(k, case);
    let depth = A::LAYOUT.extent(1) as u32;
    let a_tile = LayoutTensor::new(k.shared_aligned("a", 32 * depth, 1024), A::default());
    let b_tile = LayoutTensor::new(k.shared_aligned("b", 24 * depth, 1024), B::default());
    let tile = WarpTile::<F>::new(k, 32, 24);
    let zero = k.lit(0u32);
    k.for_step(0u32, case.k as u32, depth, |step| {
        copy_async(k, Team::block(k), a.tile([32, depth], [zero, step]), a_tile).unwrap();
        copy_async(k, Team::block(k), b.tile([24, depth], [zero, step]), b_tile).unwrap();
        k.cp_async_commit();
        k.cp_async_wait(0);
        k.barrier();
        for step in (0..depth).step_by(F::K as usize) {
            tile.multiply(&tile.load_a(k, a_tile, step), &tile.load_b(k, b_tile, step));
        }
        k.barrier();
    });
    store(k, tile.sums(), Coord::lane(k), c);
}

/// One warpgroup: 128×64, the shared tiles' extent of K at a time.
fn warpgroup<F: Factor, A: StaticLayout, B: StaticLayout>(k: &Builder, case: Case) {
    let ([a, b], c) = parameters::<F>(k, case);
    let depth = A::LAYOUT.extent(1) as u32;
    let a_tile = LayoutTensor::new(k.shared_aligned("a", 128 * depth, 1024), A::default());
    let b_tile = LayoutTensor::new(k.shared_aligned("b", 64 * depth, 1024), B::default());
    let tile = WarpgroupTile::<F>::new(k, 128, 64);
    let zero = k.lit(0u32);
    k.for_step(0u32, case.k as u32, depth, |step| {
        copy_async(k, Team::block(k), a.tile([128, depth], [zero, step]), a_tile).unwrap();
        copy_async(k, Team::block(k), b.tile([64, depth], [zero, step]), b_tile).unwrap();
        k.cp_async_commit();
        k.cp_async_wait(0);
        k.fence_proxy_async(ProxyFence::Shared);
        k.barrier();
        k.wgmma_fence();
        tile.multiply(SharedFactor::new(a_tile), SharedFactor::new(b_tile), step.ne(0));
        k.wgmma_commit();
        k.wgmma_wait(0);
        k.barrier();
    });
    store(k, tile.sums(), Coord::thread(k), c);
}

const EXTENTS: [(usize, usize, usize); 4] = [(32, 24, 64), (1, 1, 1), (31, 17, 37), (16, 8, 96)];

fn warps<F: Number, A: StaticLayout, B: StaticLayout>(k_major: bool) {
    for (m, n, k) in EXTENTS {
        let whole = if k_major { k } else { m | n };
        let widest = (1u32 << whole.trailing_zeros()).min(16);
        for vector in [1, widest] {
            let case = Case { m, n, k, k_major, vector };
            let kernel = record("warp", Arch::Sm90a, block(32), |k| warp::<F, A, B>(k, case));
            let conflicts = check::<F>(case, kernel, u64::from(vector)).conflicts();
            let wide = i64::from(vector) * F::BITS >= 128;
            assert!(!wide || conflicts == 0, "{case:?}, {}: {conflicts} extra wavefronts", F::NAME);
        }
    }
}

#[test]
fn a_warp_multiplies_16_bit_factors_in_either_order() {
    type Rows<const R: usize> = Swizzled<Swizzle<2, 3, 3>, RowMajor<R, 32>>;
    warps::<bf16, Rows<32>, Rows<24>>(true);
    warps::<f16, Rows<32>, Rows<24>>(true);
    warps::<bf16, Swizzled<Swizzle<2, 3, 3>, ColMajor<32, 32>>, ColMajor<24, 32>>(false);
}

#[test]
fn a_warp_multiplies_8_bit_factors() {
    type Rows<const R: usize> = Swizzled<Swizzle<2, 4, 3>, RowMajor<R, 64>>;
    warps::<i8, Rows<32>, Rows<24>>(true);
    warps::<E4M3, Rows<32>, Rows<24>>(true);
}

fn warpgroups<F: Number, A: StaticLayout, B: StaticLayout>(k_major: bool) {
    for (m, n, k) in [(128, 64, 128), (1, 1, 1), (97, 61, 67)] {
        let vector = if m == 128 { 8 } else { 1 };
        let case = Case { m, n, k, k_major, vector };
        let kernel = record("warpgroup", Arch::Sm90a, block(128), |k| warpgroup::<F, A, B>(k, case));
        check::<F>(case, kernel, 1);
    }
}

#[test]
fn a_warpgroup_multiplies_k_major_tiles_of_every_swizzle() {
    warpgroups::<bf16, MatrixTile<KMajor, 16, 128, 64>, MatrixTile<KMajor, 16, 64, 64>>(true);
    warpgroups::<f16, MatrixTile<KMajor, 16, 128, 32>, MatrixTile<KMajor, 16, 64, 32>>(true);
    warpgroups::<bf16, MatrixTile<KMajor, 16, 128, 16>, MatrixTile<KMajor, 16, 64, 16>>(true);
    warpgroups::<bf16, MatrixTile<KMajor, 16, 128, 128>, MatrixTile<KMajor, 16, 64, 128>>(true);
    warpgroups::<i8, MatrixTile<KMajor, 8, 128, 128>, MatrixTile<KMajor, 8, 64, 128>>(true);
    warpgroups::<E4M3, MatrixTile<KMajor, 8, 128, 64>, MatrixTile<KMajor, 8, 64, 64>>(true);
}

#[test]
fn a_warpgroup_multiplies_mn_major_tiles() {
    warpgroups::<bf16, MatrixTile<MnMajor, 16, 128, 64>, MatrixTile<MnMajor, 16, 64, 64>>(false);
    warpgroups::<f16, MatrixTile<MnMajor, 16, 128, 16>, MatrixTile<MnMajor, 16, 64, 16>>(false);
}
