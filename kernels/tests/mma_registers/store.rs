//! `store_d` writes the product where it belongs and nothing else: to shared and to global memory,
//! by every layout, converted, clipped at run time.

use crate::{filled, image, recorded, run, value};
use half::{bf16, f16};
use proptest::prelude::*;
use tilewright_codegen::build::{Ptr, Shared};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ir::attr::ProxyFence;
use tilewright_codegen::ptx;
use tilewright_codegen::sim::MemoryElement;
use tilewright_codegen::verify::verify;
use tilewright_kernels::mma::{Atom, AtomGrid, AtomLayout, MmaSync, OutputSpace, OutputType, TiledMma, Wgmma};
use tilewright_kernels::tile::{Index, LayoutTensor, Modes};
use tilewright_layout::typed::{
    ColMajor, KMajor, Lowered, OperandTile, RowMajor, StaticLayout, Swizzle, Swizzled, TilesOf, Within,
};

/// Multiplies in a kernel under test.
trait Multiply: Atom<Input = bf16> {
    fn multiply<'k, A: StaticLayout, B: StaticLayout, G: AtomGrid>(
        product: TiledMma<'k, Self, A, B, G>,
        a: LayoutTensor<'k, bf16, A, Shared>,
        b: LayoutTensor<'k, bf16, B, Shared>,
    ) where
        Self: Sized;
}

impl Multiply for MmaSync<bf16> {
    /// Fragments of the next step are loaded before this step's are multiplied.
    fn multiply<'k, A: StaticLayout, B: StaticLayout, G: AtomGrid>(
        product: TiledMma<'k, Self, A, B, G>,
        a: LayoutTensor<'k, bf16, A, Shared>,
        b: LayoutTensor<'k, bf16, B, Shared>,
    ) {
        let steps = TiledMma::<Self, A, B, G>::STEPS;
        let mut here = (product.load_a(a, 0), product.load_b(b, 0));
        for step in 1..=steps {
            let next = (step < steps).then(|| (product.load_a(a, step), product.load_b(b, step)));
            product.mma(&here.0, &here.1);
            here = next.unwrap_or(here);
        }
    }
}

impl Multiply for Wgmma<bf16> {
    fn multiply<'k, A: StaticLayout, B: StaticLayout, G: AtomGrid>(
        product: TiledMma<'k, Self, A, B, G>,
        a: LayoutTensor<'k, bf16, A, Shared>,
        b: LayoutTensor<'k, bf16, B, Shared>,
    ) {
        product.issue(a, b, false);
        product.wait_group(0);
    }
}

/// A type of results: what memory holds before, and what a sum becomes.
trait Cell: OutputType + MemoryElement + PartialEq + std::fmt::Debug {
    const POISON: Self;
    fn of(sum: i64) -> Self;
}

macro_rules! results {
    ($($T:ty: $poison:expr, $of:expr;)+) => { $(
        impl Cell for $T {
            const POISON: Self = $poison;
            fn of(sum: i64) -> Self {
                $of(sum as f32)
            }
        }
    )+ };
}

results! {
    bf16: bf16::from_bits(0x7ace), bf16::from_f32;
    f16: f16::from_bits(0x7ace), f16::from_f32;
    f32: -7e9, |sum| sum;
}

/// A case: the product stored into tile (1, 1) of a matrix of 2×2 such tiles of layout `D`, or of a
/// number of rows and columns given by the launch, with the strides of `D`.
struct Case<X, A, B, G, T, D>(std::marker::PhantomData<(X, A, B, G, T, D)>);

impl<X: Multiply, A: StaticLayout, B: StaticLayout, G: AtomGrid, T: Cell, D: StaticLayout> Case<X, A, B, G, T, D> {
    /// The matrix after the launch: in global memory, or in shared memory and copied out. `told`
    /// are rows and columns of the matrix, known at run time.
    fn run<const M: usize, const N: usize>(arch: Arch, shared: bool, told: Option<[u32; 2]>) -> (Vec<T>, String) {
        let reach = Lowered::<D>::REACH as u32;
        let kernel = recorded(arch, TiledMma::<X, A, B, G>::THREADS, |k| {
            let a = filled::<bf16, A>(k, "a");
            let b = filled::<bf16, B>(k, "b");
            let out = k.global::<T>("out");
            let extents = told.map(|_| ["rows", "columns"].map(|name| Index::any(k.param::<u32>(name))));
            if X::THREADS == 128 {
                k.fence_proxy_async(ProxyFence::Shared);
            }
            let staged = shared.then(|| k.shared_aligned::<T>("d", reach, 1024));
            if let Some(staged) = staged {
                k.for_step(k.tid(), reach, k.threads(), |i| staged.at(i).store(out.at(i).load()));
            }
            k.barrier();
            let product = TiledMma::<X, A, B, G>::new(k);
            X::multiply(product, a, b);
            match staged {
                None => stored::<_, _, _, _, _, D, _, M, N>(product, out, extents),
                Some(staged) => {
                    stored::<_, _, _, _, _, D, _, M, N>(product, staged, extents);
                    k.barrier();
                    k.for_step(k.tid(), reach, k.threads(), |i| out.at(i).store(staged.at(i).load()));
                }
            }
        });
        let text = ptx::emit(&verify(kernel.clone()).unwrap_or_else(|errors| panic!("{errors}")));
        let element = |shift: usize| move |i: usize, j: usize| bf16::from_f32(value(i + shift, j).into());
        let inputs = [image::<_, A>(bf16::ZERO, element(0)), image::<_, B>(bf16::ZERO, element(3))];
        let found = run(kernel, &inputs, &vec![T::POISON; reach as usize], told.as_ref().map_or(&[], |told| &told[..]));
        (found, text)
    }

    fn check<const M: usize, const N: usize>(arch: Arch, shared: bool, told: Option<[u32; 2]>) -> String {
        let (found, text) = Self::run::<M, N>(arch, shared, told);
        let depth = Lowered::<A>::EXTENTS[1];
        let [rows, columns] = told.map_or([M, N], |[rows, columns]| {
            [(rows as usize).saturating_sub(M), (columns as usize).saturating_sub(N)]
        });
        let origin = Lowered::<TilesOf<D, M, N>>::before_swizzle([1, 1]);
        let mut expected = vec![T::POISON; found.len()];
        for (i, j) in (0..rows.min(M)).flat_map(|i| (0..columns.min(N)).map(move |j| (i, j))) {
            let sum = (0..depth).map(|x| i64::from(value(i, x)) * i64::from(value(j + 3, x))).sum();
            expected[Lowered::<D>::swizzle(origin + Lowered::<Within<D, M, N>>::before_swizzle([i, j]))] = T::of(sum);
        }
        assert!(found == expected, "{arch}, shared: {shared}, rows and columns: {told:?}");
        text
    }
}

/// Records the product into tile (1, 1) of a matrix.
fn stored<
    'k,
    X: Atom,
    A: StaticLayout,
    B: StaticLayout,
    G: AtomGrid,
    T: Cell,
    D: StaticLayout,
    S: OutputSpace,
    const M: usize,
    const N: usize,
>(
    product: TiledMma<'k, X, A, B, G>,
    at: Ptr<'k, S, T>,
    extents: Option<[Index<'k>; 2]>,
) {
    let corner = [Index::from(1), Index::from(1)];
    match extents {
        None => product.store_d(LayoutTensor::new(at, D::default()).tile::<M, N>(corner)),
        Some(extents) => {
            let strides = [0, 1].map(|mode| Index::from(D::LAYOUT.mode(mode).expect("a matrix").strides()[0] as u32));
            let matrix = LayoutTensor::new(at, Modes::new(extents, strides));
            product.store_d(matrix.clipped_tile([M as u32, N as u32], corner));
        }
    }
}

type Ka<const R: usize> = OperandTile<KMajor, 16, R, 32>;
type Warp<T, D> = Case<MmaSync<bf16>, Ka<32>, Ka<16>, AtomLayout<2, 1>, T, D>;
type Wide<T, D> = Case<MmaSync<bf16>, Ka<32>, Ka<48>, AtomLayout<1, 2>, T, D>;
type Group<T, D> = Case<Wgmma<bf16>, Ka<64>, Ka<32>, AtomLayout<1, 1>, T, D>;

#[test]
fn sums_are_stored_to_global_memory() {
    Warp::<f32, RowMajor<64, 32>>::check::<32, 16>(Arch::Sm80, false, None);
    Warp::<bf16, ColMajor<64, 32>>::check::<32, 16>(Arch::Sm80, false, None);
    Wide::<f16, RowMajor<64, 96>>::check::<32, 48>(Arch::Sm80, false, None);
    Group::<bf16, RowMajor<128, 64>>::check::<64, 32>(Arch::Sm90a, false, None);
    Group::<f32, ColMajor<128, 64>>::check::<64, 32>(Arch::Sm90a, false, None);
}

#[test]
fn sums_are_stored_to_shared_memory_by_the_widest_instruction() {
    type Swizzled64 = Swizzled<Swizzle<2, 3, 3>, RowMajor<64, 32>>;
    let by_matrix = Warp::<bf16, Swizzled64>::check::<32, 16>(Arch::Sm90a, true, None);
    assert_eq!(by_matrix.matches("stmatrix").count(), 1, "16 columns of 16 rows by one");
    let before = Warp::<bf16, Swizzled64>::check::<32, 16>(Arch::Sm80, true, None);
    assert_eq!((before.matches("stmatrix").count(), before.matches("st.shared.u32").count()), (0, 4), "pairs");
    let single = Warp::<f32, Swizzled64>::check::<32, 16>(Arch::Sm90a, true, None);
    assert_eq!(single.matches("stmatrix").count(), 0);
    Group::<f16, OperandTile<KMajor, 16, 128, 64>>::check::<64, 32>(Arch::Sm90a, true, None);
    Wide::<bf16, Swizzled<Swizzle<2, 3, 3>, RowMajor<64, 96>>>::check::<32, 48>(Arch::Sm90a, true, None);
    Warp::<bf16, ColMajor<64, 32>>::check::<32, 16>(Arch::Sm90a, true, None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn what_is_outside_stays_untouched(rows in 0u32..=64, columns in 0u32..=96, shared: bool) {
        let told = |most| Some([rows, columns.min(most)]);
        Warp::<f32, RowMajor<64, 32>>::check::<32, 16>(Arch::Sm80, shared, told(32));
        Warp::<bf16, RowMajor<64, 32>>::check::<32, 16>(Arch::Sm90a, shared, told(32));
        Wide::<bf16, ColMajor<64, 96>>::check::<32, 48>(Arch::Sm80, shared, told(96));
    }
}

/// A block's tile of a matrix whose extents and stride are parameters, `whole` columns promised.
fn edged(whole: u32) -> String {
    let kernel = recorded(Arch::Sm80, 64, |k| {
        let a = filled::<bf16, Ka<32>>(k, "a");
        let b = filled::<bf16, Ka<16>>(k, "b");
        k.barrier();
        let product = TiledMma::<MmaSync<bf16>, Ka<32>, Ka<16>, AtomLayout<2, 1>>::new(k);
        product.multiply(a, b);
        let [m, n] = ["m", "n"].map(|name| k.param::<u32>(name));
        let d = LayoutTensor::new(k.global::<bf16>("d"), Modes::row_major([m.into(), n.into()], n).vectors(whole));
        product.store_d(d.clipped_tile([32, 16], [k.block_id().into(), 0.into()]));
    });
    ptx::emit(&verify(kernel).unwrap_or_else(|errors| panic!("{errors}")))
}

/// Two rows and two pairs of columns a thread: each asked once.
#[test]
fn a_tile_at_the_edge_asks_for_each_row_and_column_once() {
    let count = |text: &str, what: &str| text.matches(what).count();
    let pairs = edged(2);
    let single = edged(1);
    assert_eq!((count(&pairs, "st.global.u32"), count(&single, "st.global")), (4, 8), "{pairs}{single}");
    assert_eq!((count(&pairs, "setp.lt.u32"), count(&single, "setp.lt.u32")), (4, 6), "{pairs}{single}");
}
