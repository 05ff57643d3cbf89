//! `store_d` writes the product where it belongs and nothing else: to shared and to global memory, by every layout,
//! converted, clipped at run time.

use crate::{filled, image, recorded, run, value};
use half::{bf16, f16};
use proptest::prelude::*;
use tilewright_codegen::build::Shared;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ir::attr::ProxyFence;
use tilewright_codegen::ptx;
use tilewright_codegen::sim::Element;
use tilewright_codegen::verify::verify;
use tilewright_kernels::mma::{Atom, AtomGrid, AtomLayout, MmaSync, OutputType, TiledMma, Wgmma};
use tilewright_kernels::tile::{Index, LayoutTensor};
use tilewright_layout::typed::{
    ColMajor, KMajor, Lowered, OperandTile, RowMajor, StaticLayout, Swizzle, Swizzled, TilesOf, Within,
};

/// How a kernel asks for its product.
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
trait Cell: OutputType + Element + PartialEq + std::fmt::Debug {
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

/// One case: the product stored into tile (1, 1) of a matrix of 2×2 such tiles of layout `D`.
struct Case<X, A, B, G, T, D>(std::marker::PhantomData<(X, A, B, G, T, D)>);

impl<X: Multiply, A: StaticLayout, B: StaticLayout, G: AtomGrid, T: Cell, D: StaticLayout> Case<X, A, B, G, T, D> {
    /// The matrix behind the launch: in global memory, or in shared memory and copied out.
    fn run<const M: usize, const N: usize>(arch: Arch, shared: bool, inside: Option<[u32; 2]>) -> (Vec<T>, String) {
        let reach = Lowered::<D>::REACH as u32;
        let kernel = recorded(arch, TiledMma::<X, A, B, G>::THREADS, |k| {
            let (a, b) = (filled::<bf16, A>(k, "a"), filled::<bf16, B>(k, "b"));
            let out = k.global::<T>("out");
            let limits = inside.map(|_| ["rows", "columns"].map(|name| k.param::<u32>(name)));
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
            let corner = [Index::from(1), Index::from(1)];
            match staged {
                None => product.store_d(LayoutTensor::new(out, D::default()).tile::<M, N>(corner), limits),
                Some(staged) => {
                    product.store_d(LayoutTensor::new(staged, D::default()).tile::<M, N>(corner), limits);
                    k.barrier();
                    k.for_step(k.tid(), reach, k.threads(), |i| out.at(i).store(staged.at(i).load()));
                }
            }
        });
        let text = ptx::emit(&verify(kernel.clone()).unwrap_or_else(|errors| panic!("{errors}")));
        let element = |shift: usize| move |i: usize, j: usize| bf16::from_f32(value(i + shift, j).into());
        let inputs = [image::<_, A>(bf16::ZERO, element(0)), image::<_, B>(bf16::ZERO, element(3))];
        let found =
            run(kernel, &inputs, &vec![T::POISON; reach as usize], inside.as_ref().map_or(&[], |limits| &limits[..]));
        (found, text)
    }

    fn check<const M: usize, const N: usize>(arch: Arch, shared: bool, inside: Option<[u32; 2]>) -> String {
        let (found, text) = Self::run::<M, N>(arch, shared, inside);
        let depth = Lowered::<A>::EXTENTS[1];
        let [rows, columns] = inside.map_or([M, N], |limits| limits.map(|limit| limit as usize));
        let origin = Lowered::<TilesOf<D, M, N>>::before_swizzle([1, 1]);
        let mut expected = vec![T::POISON; found.len()];
        for (i, j) in (0..rows.min(M)).flat_map(|i| (0..columns.min(N)).map(move |j| (i, j))) {
            let sum = (0..depth).map(|x| i64::from(value(i, x)) * i64::from(value(j + 3, x))).sum();
            expected[Lowered::<D>::swizzle(origin + Lowered::<Within<D, M, N>>::before_swizzle([i, j]))] = T::of(sum);
        }
        assert!(found == expected, "{arch}, shared: {shared}, inside: {inside:?}");
        text
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
    fn what_is_outside_stays_untouched(rows in 0u32..40, columns in 0u32..60, shared: bool) {
        let inside = Some([rows, columns]);
        Warp::<f32, RowMajor<64, 32>>::check::<32, 16>(Arch::Sm80, shared, inside);
        Warp::<bf16, RowMajor<64, 32>>::check::<32, 16>(Arch::Sm90a, shared, inside);
        Wide::<bf16, ColMajor<64, 96>>::check::<32, 48>(Arch::Sm80, shared, inside);
    }
}
