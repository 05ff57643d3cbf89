//! Instructions by family on the machine, against the host's arithmetic.

use half::{bf16, f16};
use tilewright_codegen::build::{Builder, Global, Ptr, Scalar, Val, block, record};
use tilewright_codegen::ir::attr::{AtomOp, AtomOrder, Clamp, ReduxOp, Round, Scope, ShflMode, Trans, VoteMode};
use tilewright_codegen::ir::{Arch, LaunchBounds as Shape, MmaAtom};
use tilewright_codegen::sim::{self, Arg, Counters, Launch, Memory, MemoryElement, Outcome};
use tilewright_codegen::verify::verify;

/// Runs one block that reads `x` and writes `count` elements.
fn run_block<A, B>(
    shape: Shape,
    x: &[A],
    count: usize,
    build: impl Fn(&Builder, Ptr<'_, Global, A>, Ptr<'_, Global, B>),
) -> (Vec<B>, Counters)
where
    A: MemoryElement + Scalar,
    B: MemoryElement + Scalar,
{
    let kernel = record("case", Arch::Sm90a, shape, |k| build(k, k.global("x"), k.global("y")));
    let kernel = verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
    let mut memory = Memory::new();
    let x = memory.upload("x", x);
    let y = memory.alloc("y", count * B::BYTES);
    let launch = Launch::new([1, 1, 1], vec![Arg::Ptr(x), Arg::Ptr(y)]);
    match sim::run(&kernel, &launch, &mut memory, 7).expect("it launches") {
        Outcome::Finished(counters) => (memory.download(y, count).expect("all written"), counters),
        Outcome::Fault(fault) => panic!("{fault}"),
    }
}

/// Runs a kernel of one warp that applies a function to each lane's element.
fn map<A, B>(x: &[A], f: impl for<'k> Fn(&'k Builder, Val<'k, A>) -> Val<'k, B>) -> Vec<B>
where
    A: MemoryElement + Scalar,
    B: MemoryElement + Scalar,
{
    assert_eq!(x.len(), 32);
    run_block(block(32), x, 32, |k, x, y| y.at(k.lane()).store(f(k, x.at(k.lane()).load()))).0
}

fn words() -> Vec<u32> {
    (0..32u32).map(|i| i.wrapping_mul(0x9e37_79b9) ^ (i << 7)).collect()
}

fn floats() -> Vec<f32> {
    let odd = [0.0, -0.0, f32::INFINITY, -f32::INFINITY, 1e-40, -1e-40, f32::MAX, f32::MIN_POSITIVE];
    (0..32).map(|i| if i < 8 { odd[i] } else { (i as f32 - 20.0) * 1.37 }).collect()
}

#[test]
fn integers_wrap() {
    let x = words();
    let with = |f: fn(u32) -> u32| x.iter().map(|&v| f(v)).collect::<Vec<_>>();
    assert_eq!(map(&x, |_, v| v * v + 7), with(|v| v.wrapping_mul(v).wrapping_add(7)));
    assert_eq!(map(&x, |_, v| v.mad(v, 3)), with(|v| v.wrapping_mul(v).wrapping_add(3)));
    assert_eq!(map(&x, |_, v| v / 7 + v % 7), with(|v| v / 7 + v % 7));
    assert_eq!(map(&x, |_, v| (v << 5) ^ (v >> 9)), with(|v| (v << 5) ^ (v >> 9)));
    assert_eq!(map(&x, |_, v| v << (v & 63)), with(|v| v.checked_shl(v & 63).unwrap_or(0)));
    assert_eq!(map(&x, |_, v| v.popc() + v.clz()), with(|v| v.count_ones() + v.leading_zeros()));
    assert_eq!(map(&x, |_, v| v.brev()), with(u32::reverse_bits));
    assert_eq!(map(&x, |_, v| v.bfe(5, 9)), with(|v| v >> 5 & 0x1ff));
    assert_eq!(map(&x, |_, v| v.prmt(0, 0x0123)), with(u32::swap_bytes));
    assert_eq!(map(&x, |_, v| v.funnel_left(v, 13)), with(|v| v.rotate_left(13)));
    let signed: Vec<i32> = x.iter().map(|&v| v as i32).collect();
    assert_eq!(map(&signed, |_, v| v >> 3), signed.iter().map(|v| v >> 3).collect::<Vec<_>>());
    assert_eq!(map(&signed, |_, v| v / -3), signed.iter().map(|v| v / -3).collect::<Vec<_>>());
    assert_eq!(map(&signed, |_, v| v.min(5)), signed.iter().map(|&v| v.min(5)).collect::<Vec<_>>());
}

#[test]
fn floats_are_ieee() {
    let x = floats();
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let with = |f: fn(f32) -> f32| {
        let canonical = |v: f32| if v.is_nan() { 0x7fff_ffff } else { v.to_bits() };
        x.iter().map(|&v| canonical(f(v))).collect::<Vec<_>>()
    };
    assert_eq!(bits(map(&x, |_, v| v * v - v)), with(|v| v * v - v));
    assert_eq!(bits(map(&x, |_, v| v.fma(v, -1.5f32))), with(|v| v.mul_add(v, -1.5)));
    assert_eq!(bits(map(&x, |_, v| v.div_rn(3.0f32))), with(|v| v / 3.0));
    assert_eq!(bits(map(&x, |_, v| v.max(-0.0f32))), with(|v| if v > 0.0 || v.to_bits() == 0 { v } else { -0.0 }));
}

#[test]
fn conversions_round_once() {
    let x = floats();
    let halves = map::<f32, f16>(&x, |_, v| v.cast());
    assert!(halves.iter().zip(&x).all(|(h, &v)| h.to_bits() == f16::from_f32(v).to_bits()));
    let brains = map::<f32, bf16>(&x, |_, v| v.cast());
    assert!(brains.iter().zip(&x).all(|(h, &v)| h.to_bits() == bf16::from_f32(v).to_bits()));
    let ints = map::<f32, i32>(&x, |_, v| v.cast_as(Round::Zero, Clamp::No));
    assert_eq!(ints, x.iter().map(|&v| v as i32).collect::<Vec<_>>());
    assert_eq!(map::<f16, f32>(&halves, |_, v| v.cast()), halves.iter().map(|h| h.to_f32()).collect::<Vec<_>>());
    let sums = map::<f16, f16>(&halves[8..].repeat(2)[..32], |_, v| v + v);
    assert!(
        sums.iter().zip(halves[8..].repeat(2)).all(|(s, h)| s.to_f32() == f16::from_f32(2.0 * h.to_f32()).to_f32())
    );
}

#[test]
fn lanes_exchange() {
    let x = words();
    let lane = |f: fn(usize) -> usize| (0..32).map(|l| x[f(l)]).collect::<Vec<_>>();
    assert_eq!(map(&x, |_, v| v.shfl_bfly(5)), lane(|l| l ^ 5));
    assert_eq!(map(&x, |_, v| v.shfl_down(3)), lane(|l| if l + 3 < 32 { l + 3 } else { l }));
    assert_eq!(map(&x, |_, v| v.shfl(ShflMode::Up, 1, 8, u32::MAX)), lane(|l| if l % 8 == 0 { l } else { l - 1 }));
    assert_eq!(map(&x, |_, v| v.redux(ReduxOp::Xor)), vec![x.iter().fold(0, |a, b| a ^ b); 32]);
    let odd = x.iter().enumerate().fold(0u32, |set, (l, v)| set | (v & 1) << l);
    assert_eq!(map(&x, |_, v| (v & 1).eq(1).ballot()), vec![odd; 32]);
    assert_eq!(map(&x, |k, v| v.ge(0).vote(VoteMode::All, u32::MAX).select::<u32>(k.lit(1), k.lit(0))), vec![1; 32]);
    let groups = map(&x, |k, _| (k.lane() & 3).match_any());
    assert_eq!(groups, (0..32).map(|l| 0x1111_1111u32 << (l & 3)).collect::<Vec<_>>());
}

#[test]
fn a_counted_wait_is_no_standstill() {
    let x = words();
    let slept = map(&x, |k, v| {
        k.for_(0, 1500, |_| k.nanosleep(100));
        v
    });
    assert_eq!(slept, x);
}

#[test]
fn lanes_that_part_meet_again() {
    let x = words();
    let collatz = |mut v: u32| {
        let mut count = 0;
        while v != 1 {
            v = if v & 1 == 1 { 3 * v + 1 } else { v / 2 };
            count += 1;
        }
        count
    };
    let small: Vec<u32> = x.iter().map(|v| v % 97 + 1).collect();
    let found = map(&small, |k, v| {
        let value = k.var(v);
        let count = k.var(0u32);
        k.while_(
            || value.get().ne(1),
            || {
                let now = value.get();
                k.if_else((now & 1).eq(1), || value.set(now * 3 + 1), || value.set(now >> 1));
                count.set(count.get() + 1);
            },
        );
        k.sync_warp();
        count.get()
    });
    assert_eq!(found, small.into_iter().map(collatz).collect::<Vec<u32>>());
}

#[test]
fn atomics_lose_nothing() {
    let (sums, _) = run_block::<u32, u32>(block(128), &words(), 2, |k, x, y| {
        let shared = k.shared::<u32>("sum", 1);
        k.when(k.tid().eq(0), || {
            shared.store(0u32);
            y.store(0u32);
        });
        k.barrier();
        let order = AtomOrder::Relaxed(Scope::Gpu);
        shared.atom(AtomOp::Add, x.at(k.lane()).load(), order);
        y.atom(AtomOp::Max, x.at(k.lane()).load(), order);
        k.barrier();
        k.when(k.tid().eq(0), || y.at(1).store(shared.load()));
    });
    let sum = words().iter().fold(0u32, |a, &b| a.wrapping_add(b)).wrapping_mul(4);
    assert_eq!(sums, [*words().iter().max().unwrap(), sum]);
}

#[test]
fn matrices_go_through_shared_memory() {
    let x: Vec<u16> = (0..64).collect();
    let (y, counters) = run_block::<u16, u16>(block(32), &x, 64, |k, x, y| {
        let tile = k.shared_aligned::<u16>("tile", 64, 128);
        let back = k.shared_aligned::<u16>("back", 64, 128);
        for i in 0..2u32 {
            tile.at(k.lane() + 32 * i).store(x.at(k.lane() + 32 * i).load());
        }
        k.sync_warp();
        let [word] = tile.at((k.lane() & 7) * 8).ldmatrix::<1>(Trans::Yes);
        back.at((k.lane() & 7) * 8).stmatrix([word], Trans::No);
        k.sync_warp();
        for i in 0..2u32 {
            y.at(k.lane() + 32 * i).store(back.at(k.lane() + 32 * i).load());
        }
    });
    assert_eq!(y, (0..64).map(|i| (i % 8 * 8 + i / 8) as u16).collect::<Vec<_>>());
    assert_eq!(counters.conflicts(), 0);
}

#[test]
fn bytes_multiply_exactly() {
    let a = words();
    let (d, _) = run_block::<u32, i32>(block(32), &a, 128, |k, x, y| {
        let a: Vec<_> = (0..4u32).map(|i| x.at((k.lane() + i) & 31).load()).collect();
        let b: Vec<_> = (0..2u32).map(|i| x.at((k.lane() + 7 * i) & 31).load()).collect();
        let acc = k.regs(4, 0i32);
        acc.mma(MmaAtom::M16N8K32_S32_S8_S8, &a, &b);
        for i in 0..4 {
            let row = k.lane() / 4 + 8 * (i / 2);
            let column = k.lane() % 4 * 2 + i % 2;
            y.at(row * 8 + column).store(acc.get(i));
        }
    });
    let byte = |word: u32, i: usize| i32::from(word.to_le_bytes()[i] as i8);
    for row in 0..16 {
        for column in 0..8 {
            let sum: i32 = (0..32)
                .map(|k| {
                    let t = k % 16 / 4;
                    let j = k % 4;
                    let high = k / 16;
                    let of_a = a[(row % 8 * 4 + t + row / 8 + 2 * high) & 31];
                    let of_b = a[(column * 4 + t + 7 * high) & 31];
                    byte(of_a, j) * byte(of_b, j)
                })
                .sum();
            assert_eq!(d[row * 8 + column], sum, "row {row}, column {column}");
        }
    }
}

#[test]
fn counters_know_conflicts_and_sectors() {
    let column = |stride: u32| {
        run_block::<f32, f32>(block(32), &floats(), 32, move |k, x, y| {
            let tile = k.shared::<f32>("tile", 32 * stride);
            tile.at(k.lane() * stride).store(x.at(k.lane()).load());
            k.sync_warp();
            y.at(k.lane()).store(tile.at(k.lane() * stride).load());
        })
        .1
    };
    assert_eq!((column(32).conflicts(), column(33).conflicts()), (62, 0));
    assert_eq!(column(1).sectors(), 8, "128 bytes read and 128 written");
    assert_eq!(column(1).by_class()["mem"], 4 * 32);
}

/// The fault of a kernel of one warp that computes on this number.
fn fault_of(x: u32, f: impl Fn(&Builder, Val<'_, u32>)) -> String {
    let kernel = verify(record("faulty", Arch::Sm90a, block(32), |k| f(k, k.param::<u32>("x")))).unwrap();
    let launch = Launch::new([1, 1, 1], vec![Arg::Scalar(tilewright_codegen::ir::Const::u32(x))]);
    let outcome = sim::run(&kernel, &launch, &mut Memory::new(), 0).unwrap();
    outcome.fault().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn what_compilers_disagree_about_is_a_fault() {
    let field = |k: &Builder, x: Val<'_, u32>| _ = (x.bfe(x, 20), k.lit(0u32));
    assert_eq!(fault_of(12, field), "");
    assert!(fault_of(13, field).contains("end of a bit field"));
    let negative = |_: &Builder, x: Val<'_, u32>| _ = -x.bits::<i32>();
    assert_eq!(fault_of(0x8000_0001, negative), "");
    assert!(fault_of(0x8000_0000, negative).contains("integer to be negated"));
}
