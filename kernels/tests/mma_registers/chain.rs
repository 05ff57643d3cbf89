//! The accumulator of one product as the A operand of the next: by the layouts of every atom, and
//! on the device.

use crate::{filled, image, recorded, run, value};
use half::{bf16, f16};
use std::collections::BTreeSet;
use tilewright_codegen::build::Shared;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ir::attr::ProxyFence;
use tilewright_codegen::sim::MemoryElement;
use tilewright_kernels::mma::{
    InputType, LocalCopyError, MmaSync, OutputType, SharedOperand, TiledMma, Wgmma, local_sources,
};
use tilewright_kernels::tile::{Index, LayoutTensor};
use tilewright_layout::fragment::{ATOMS, Atom, MmaOperand, WGMMA_FAMILIES, fragment};
use tilewright_layout::typed::{KMajor, OperandTile, RowMajor, StaticLayout};

/// If a local copy is possible, every thread's sources hold the elements that it needs.
fn follows(from: &Atom, to: &Atom, column: i64) -> Result<(), LocalCopyError> {
    let c = fragment(from, MmaOperand::C);
    let a = fragment(to, MmaOperand::A);
    let sources = local_sources(&c, &a, column)?;
    assert_eq!(sources.len() as i64, a.values());
    for thread in 0..a.threads() {
        for (value, &(number, held)) in (0..).zip(&sources) {
            let (row, wanted) = a.element(thread, value);
            let (found, here) = c.element(thread, held as i64);
            assert_eq!(
                (found, here + c.cols * number as i64),
                (row, wanted + column),
                "{:?}, thread {thread}",
                to.name()
            );
        }
    }
    Ok(())
}

#[test]
fn sums_become_operands_of_the_next_product_where_the_layouts_allow() {
    let mut possible = BTreeSet::new();
    let wgmma = |registers: bool| WGMMA_FAMILIES.iter().filter_map(move |family| Atom::wgmma(family, 64, registers));
    for from in ATOMS.iter().copied().chain(wgmma(true)) {
        for to in ATOMS.iter().copied().chain(wgmma(true)) {
            let outcomes = [0, to.mnk[2], 16].map(|column| follows(&from, &to, column).is_ok());
            if outcomes == [true; 3] {
                possible.insert((from.mnk[0], to.a.name(), to.mnk[2], to.instruction == from.instruction));
            } else {
                // Not from one column, then from none.
                assert_eq!(outcomes, [false; 3], "{} to {}", from.name().as_str(), to.name().as_str());
            }
        }
    }
    // Pairs of neighbours are what both hold: 16-bit operands alone.
    let pairs = [(16, "BF16", 8), (16, "BF16", 16), (16, "F16", 8), (16, "F16", 16), (64, "BF16", 16), (64, "F16", 16)];
    assert_eq!(possible.into_iter().collect::<Vec<_>>(), pairs.map(|(m, a, k)| (m, a, k, true)));
}

#[test]
fn fragments_of_different_heights_are_refused() {
    let [small, large] =
        ["SM80_8x8x16_S32S8S8S32_TN", "SM80_16x8x16_F32BF16BF16F32_TN"].map(|name| Atom::named(name).unwrap());
    let error = follows(&small, &large, 0).unwrap_err();
    assert_eq!(error, LocalCopyError::Rows { from: 8, to: 16 });
    assert_eq!(error.to_string(), "the A operand has 16 rows, the accumulator's fragment 8; take atoms of the same M");
}

/// An element type that small numbers are exact in.
trait Exact: InputType<Stored: MemoryElement + OutputType, Sum = f32> {
    fn of(value: f32) -> Self::Stored;
}

impl Exact for bf16 {
    fn of(value: f32) -> bf16 {
        bf16::from_f32(value)
    }
}

impl Exact for f16 {
    fn of(value: f32) -> f16 {
        f16::from_f32(value)
    }
}

/// Q·Kᵀ, its numbers clipped to [-100, 100] so that 16 bits hold them, times V: both products on
/// the host.
fn expected(m: usize, n: usize, k: usize, d: usize) -> Vec<f32> {
    let clip = |sum: i64| sum.clamp(-100, 100);
    let score = |i: usize, j: usize| clip((0..k).map(|x| i64::from(value(i, x)) * i64::from(value(j + 3, x))).sum());
    let cell = |i: usize, j: usize| (0..n).map(|x| score(i, x) * i64::from(value(j + 5, x))).sum::<i64>() as f32;
    (0..m * d).map(|at| cell(at / d, at % d)).collect()
}

/// 16 rows of queries a warp, 32 keys, values of 24 columns.
fn warp<F: Exact>() {
    type Q = OperandTile<KMajor, 16, 32, 64>;
    type V = OperandTile<KMajor, 16, 24, 32>;
    type P = RowMajor<32, 32>;
    let kernel = recorded(Arch::Sm80, 32, |k| {
        let q = filled::<F::Stored, Q>(k, "q");
        let keys = filled::<F::Stored, Q>(k, "keys");
        let v = filled::<F::Stored, V>(k, "v");
        let out = k.global::<f32>("out");
        k.barrier();
        let scores = TiledMma::<MmaSync<F>, Q, Q>::new(k);
        scores.multiply(q, keys);
        let clip = |row: u32| scores.sums().registers().get(row).max(-100.0).min(100.0);
        (0..scores.sums().registers().len()).for_each(|i| scores.sums().registers().set(i, clip(i)));
        // P never lies in memory: its layout says only how long K is.
        let product = TiledMma::<MmaSync<F>, P, V>::new(k);
        for step in 0..2 {
            let weights = [0, 1].map(|down| {
                scores.sums().copy_local_to_local::<F::Stored, F::WarpA>(down, 16 * step).expect("pairs are neighbours")
            });
            product.mma(&weights, &product.load_b(v, step));
        }
        product.store_d(LayoutTensor::new(out, RowMajor::<32, 24>::default()));
    });
    check::<F, Q, V>(kernel, [32, 32, 64, 24]);
}

/// Two chained products by a warpgroup: 64 rows of queries, 64 keys, values of 40 columns.
fn warpgroup<F: Exact>() {
    type Q = OperandTile<KMajor, 16, 64, 64>;
    type V = OperandTile<KMajor, 16, 40, 64>;
    let kernel = recorded(Arch::Sm90a, 128, |k| {
        let (q, keys): (LayoutTensor<'_, F::Stored, Q, Shared>, _) =
            (filled(k, "q"), filled::<F::Stored, Q>(k, "keys"));
        let v = filled::<F::Stored, V>(k, "v");
        let out = k.global::<f32>("out");
        k.fence_proxy_async(ProxyFence::Shared);
        k.barrier();
        let scores = TiledMma::<Wgmma<F>, Q, Q>::new(k);
        scores.issue(q, keys, false);
        scores.wait_group(0);
        let clip = |row: u32| scores.sums().registers().get(row).max(-100.0).min(100.0);
        (0..scores.sums().registers().len()).for_each(|i| scores.sums().registers().set(i, clip(i)));
        let product = TiledMma::<Wgmma<F>, Q, V>::new(k);
        let weights: Vec<_> = (0..4)
            .map(|step| {
                vec![
                    scores
                        .sums()
                        .copy_local_to_local::<F::Stored, F::WarpgroupA>(0, 16 * step)
                        .expect("pairs are neighbours"),
                ]
            })
            .collect();
        k.wgmma_fence();
        product.sums().wgmma_registers::<F, _>(&weights, SharedOperand::new(v), false);
        k.wgmma_commit();
        product.wait_group(0);
        product.store_d(LayoutTensor::new(out, RowMajor::<64, 40>::default()));
    });
    check::<F, Q, V>(kernel, [64, 64, 64, 40]);
}

fn check<F: Exact, Q: StaticLayout, V: StaticLayout>(kernel: tilewright_codegen::ir::Kernel, [m, n, k, d]: [usize; 4]) {
    let element = |shift: usize| move |i: usize, j: usize| F::of(value(i + shift, j).into());
    let zero = F::of(0.0);
    let inputs = [image::<_, Q>(zero, element(0)), image::<_, Q>(zero, element(3)), image::<_, V>(zero, element(5))];
    let found = run(kernel, &inputs, &vec![f32::NAN; m * d], &[]);
    assert_eq!(found, expected(m, n, k, d), "{}", F::NAME);
}

#[test]
fn two_products_meet_in_registers() {
    warp::<bf16>();
    warp::<f16>();
    warpgroup::<bf16>();
    warpgroup::<f16>();
}

/// The A operand of `wgmma` by `ldmatrix`, and by descriptor: one product.
#[test]
fn a_warpgroup_reads_its_operand_either_way() {
    type A = OperandTile<KMajor, 16, 64, 64>;
    type B = OperandTile<KMajor, 16, 32, 64>;
    let kernel = |registers: bool| {
        recorded(Arch::Sm90a, 128, |k| {
            let a = filled::<bf16, A>(k, "a");
            let b = filled::<bf16, B>(k, "b");
            let out = k.global::<f32>("out");
            k.fence_proxy_async(ProxyFence::Shared);
            k.barrier();
            let product = TiledMma::<Wgmma<bf16>, A, B>::new(k);
            if registers {
                let a = product.sums().load_a::<bf16, _>(Index::thread(k), a, 0.into(), 4);
                k.wgmma_fence();
                product.sums().wgmma_registers::<bf16, _>(&a, SharedOperand::new(b), false);
                k.wgmma_commit();
            } else {
                product.issue(a, b, false);
            }
            product.wait_group(0);
            product.store_d(LayoutTensor::new(out, RowMajor::<64, 32>::default()));
        })
    };
    let element = |i: usize, j: usize| bf16::from_f32(value(i, j).into());
    let inputs = [image::<_, A>(bf16::ZERO, element), image::<_, B>(bf16::ZERO, element)];
    let [by_descriptor, by_registers] =
        [false, true].map(|registers| run(kernel(registers), &inputs, &vec![f32::NAN; 64 * 32], &[]));
    assert_eq!(by_registers, by_descriptor);
    let sum = |i: usize, j: usize| (0..64).map(|x| i64::from(value(i, x)) * i64::from(value(j, x))).sum::<i64>() as f32;
    assert_eq!(by_descriptor, (0..64 * 32).map(|at| sum(at / 32, at % 32)).collect::<Vec<_>>());
}
