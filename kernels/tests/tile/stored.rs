//! Numbers whose type of storage is chosen while recording; whole vectors and the elements that are
//! left.

use crate::{POISON, differences, run};
use half::{bf16, f16};
use proptest::prelude::*;
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Inst, MemOp, StmtKind};
use tilewright_kernels::tile::{Float, Index, LayoutTensor, Modes, StoredTensor};

/// The bits of a number in a type of storage, rounded to nearest even.
fn bits(float: Float, value: f32) -> Vec<u8> {
    match float {
        Float::F32 => value.to_le_bytes().to_vec(),
        Float::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
        Float::Bf16 => bf16::from_f32(value).to_le_bytes().to_vec(),
    }
}

/// The value of a number after storage in a type.
fn kept(float: Float, value: f32) -> f32 {
    match float {
        Float::F32 => value,
        Float::F16 => f16::from_f32(value).to_f32(),
        Float::Bf16 => bf16::from_f32(value).to_f32(),
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| u32::from_le_bytes(std::array::from_fn(|i| word.get(i).copied().unwrap_or(0)))).collect()
}

/// The most numbers of a case: 32 vectors of four.
const MOST: u32 = 128;

fn float() -> impl Strategy<Value = Float> {
    prop_oneof![Just(Float::F32), Just(Float::F16), Just(Float::Bf16)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn numbers_are_converted_and_what_follows_them_stays(from in float(), to in float(), n in 0..=MOST, told: bool) {
        let kernel = record("convert", Arch::Sm80, block(32), |k| {
            let n = k.param::<u32>("n");
            let run = || if told { Modes::contiguous_run(n) } else { Modes::contiguous_run(MOST) };
            let x = StoredTensor::new(k.global("x"), from, run());
            let y = StoredTensor::new(k.global("y"), to, Modes::contiguous_run(n));
            let [fours, _] = x.whole_and_rest(0, 4);
            let [to_fours, to_rest] = y.whole_and_rest(0, 4);
            let at = [k.tid().into()];
            to_fours.vectorize::<0, 4>().store(at, fours.vectorize::<0, 4>().load(at).map(|x| x * 0.5));
            // What is left of the target: the source may know of more.
            k.when(k.tid().lt(n & 3), || {
                let [value] = x.inside().load([((n & !3) + k.tid()).into()]);
                to_rest.store(at, [value * 0.5]);
            });
        });
        let numbers: Vec<f32> = (0..MOST).map(|i| (i as f32 - 50.0) * 0.371).collect();
        let x: Vec<u8> = numbers.iter().flat_map(|&x| bits(from, x)).collect();
        let len = (MOST * to.bytes() / 4 + 2) as usize;
        let mut expected: Vec<u8> = std::iter::repeat_n(POISON.to_le_bytes(), len).flatten().collect();
        for (i, &x) in numbers.iter().enumerate().take(n as usize) {
            let y = bits(to, kept(from, x) * 0.5);
            expected[i * y.len()..(i + 1) * y.len()].copy_from_slice(&y);
        }
        prop_assert_eq!(differences(&run(kernel, &[n], &[&words(&x)], len), &words(&expected)), vec![]);
    }

    #[test]
    fn whole_vectors_and_the_rest_are_a_tile_that_runs_over_the_edge(n in 1u32..70, tile in 0u32..4, told: bool) {
        let tile = if told { tile } else { tile % n.div_ceil(20) };
        let kernel = record("cut", Arch::Sm80, block(32), |k| {
            let parameter = k.param::<u32>("n");
            let n = if told { parameter.into() } else { Index::from(n) };
            let y = LayoutTensor::new(k.global::<u32>("y"), Modes::contiguous_run(n));
            let [fours, rest] = y.clipped_tile([20], [tile.into()]).whole_and_rest(0, 4);
            let at = [k.tid().into()];
            k.when(k.tid().lt(5), || fours.vectorize::<0, 4>().store(at, [0, 1, 2, 3].map(|i| k.tid() * 4 + i)));
            k.when(k.tid().lt(4), || rest.store(at, k.lit(99u32)));
        });
        let first = 20 * tile;
        let end = n.min(20 * tile + 20);
        let mut expected = vec![POISON; 90];
        for at in first..end.max(first) {
            expected[at as usize] = if at < end & !3 { at - first } else { 99 };
        }
        prop_assert_eq!(differences(&run(kernel, &[n], &[], 90), &expected), vec![]);
    }
}

#[test]
fn four_numbers_move_by_one_instruction() {
    for (float, lanes) in [(Float::F32, 4), (Float::F16, 2), (Float::Bf16, 2)] {
        let kernel = record("moved", Arch::Sm80, block(32), |k| {
            let numbers = StoredTensor::new(k.global("x"), float, Modes::contiguous_run(128).vectors(4));
            let at = [k.tid().into()];
            let fours = numbers.vectorize::<0, 4>().inside();
            fours.store(at, fours.load(at));
        });
        let mut stores = Vec::new();
        kernel.walk(&mut |stmt| {
            if let StmtKind::Inst(Inst::Mem(MemOp::St { v, .. })) = &stmt.op {
                stores.push(v.len());
            }
        });
        assert_eq!(stores, [lanes], "{float:?}");
    }
}
