//! Blocks of any 1 to 1024 threads, by one axis or several, with a partial last warp; the operators
//! of values.

use half::{bf16, f16};
use tilewright_codegen::build::{Builder, IntoVal, Quotient, block, record};
use tilewright_codegen::device::sim;
use tilewright_codegen::ir::attr::{ReduxOp, Trans};
use tilewright_codegen::ir::{Arch, LaunchBounds};
use tilewright_codegen::trial::{Expected, Trial, TrialElement};
use tilewright_codegen::verify::verify;

/// The kernel writes these numbers into `out`, on the simulator and whatever its seed.
fn gives<T: TrialElement>(launch: LaunchBounds, build: impl Fn(&Builder), expected: &[T]) {
    let kernel = verify(record("sample", Arch::Sm90a, launch, build)).unwrap_or_else(|errors| panic!("{errors}"));
    let mut trial = Trial::new(kernel, 1);
    let out = trial.output("out", Expected::exact(expected));
    let trial = trial.pass(out);
    for seed in 0..4 {
        let outcome = trial.run(&sim::open(seed)).unwrap_or_else(|error| panic!("{error}"));
        assert!(outcome.is_right(), "{outcome}");
    }
}

/// The report of a launch of a faulty kernel.
fn fault(launch: LaunchBounds, build: impl Fn(&Builder)) -> String {
    let kernel = verify(record("sample", Arch::Sm90a, launch, build)).unwrap_or_else(|errors| panic!("{errors}"));
    Trial::new(kernel, 1).run(&sim::open(0)).expect_err("it is at fault").to_string()
}

#[test]
fn a_block_of_any_size_has_its_threads_and_no_others() {
    for threads in [1u32, 2, 31, 33, 48, 100, 1023, 1024] {
        let numbers: Vec<u32> = (0..threads).collect();
        gives(block(threads), |k| k.global::<u32>("out").at(k.tid()).store(k.tid()), &numbers);
    }
}

#[test]
fn a_barrier_of_a_block_with_a_partial_warp_waits_for_all() {
    let reversed: Vec<u32> = (0..100).rev().collect();
    let build = |k: &Builder| {
        let out = k.global::<u32>("out");
        let tile = k.shared::<u32>("tile", 100usize);
        tile.at(k.tid()).store(k.tid());
        k.barrier();
        out.at(k.tid()).store(tile.at(99 - k.tid()).load());
    };
    gives(block(100), build, &reversed);
}

#[test]
fn votes_and_reductions_of_a_partial_warp_leave_out_the_lanes_that_it_lacks() {
    let build = |k: &Builder| {
        let out = k.global::<u32>("out");
        let all = k.tid().ge(0).ballot();
        let sum = k.lit(1u32).redux(ReduxOp::Add);
        let first = k.tid().shfl_idx(0);
        out.at(k.tid()).store(all.popc() * 10_000 + sum * 100 + first);
    };
    let expected = |threads: u32| -> Vec<u32> {
        let lanes = |tid: u32| (threads - tid / 32 * 32).min(32);
        (0..threads).map(|tid| lanes(tid) * 10_100 + tid / 32 * 32).collect()
    };
    for threads in [5u32, 40, 70] {
        gives(block(threads), build, &expected(threads));
    }
}

#[test]
fn a_shuffle_from_a_lane_that_a_partial_warp_lacks_is_a_fault() {
    let report = fault(block(40), |k| {
        let up = k.tid().shfl_down(1);
        k.shared::<u32>("tile", 40).at(k.tid()).store(up);
    });
    assert!(report.contains("reads lane 8, which its mask 0x000000ff does not name"), "{report}");
}

#[test]
fn matrix_instructions_need_whole_warps() {
    let kernel = record("sample", Arch::Sm90a, block(48), |k| {
        let tile = k.shared_aligned::<u16>("tile", 64, 128);
        let _ = tile.ldmatrix::<1>(Trans::No);
    });
    let said = verify(kernel).unwrap_err().to_string();
    assert!(
        said.contains("ldmatrix needs whole warps, and the block has 48 threads: launch a multiple of 32"),
        "{said}"
    );
}

#[test]
fn blocks_have_up_to_three_axes() {
    let build = |k: &Builder| {
        let [x, y, z] = k.thread_idx();
        k.global::<u32>("out").at(k.tid()).store(x + y * 100 + z * 10_000);
    };
    let expected: Vec<u32> = (0..4 * 3 * 5).map(|i| i % 4 + i / 4 % 3 * 100 + i / 12 * 10_000).collect();
    gives(block((4, 3, 5)), build, &expected);
    let plane: Vec<u32> = (0..9 * 5).map(|i| i % 9 + i / 9 * 100).collect();
    gives(block((9, 5)), build, &plane);
}

#[test]
fn quotients_of_floats_are_correctly_rounded() {
    fn thirds<T>(number: fn(f32) -> T, right: fn(f32, f32) -> T)
    where
        T: Quotient + TrialElement + for<'k> IntoVal<'k, T>,
    {
        let expected: Vec<T> = (1..=3).map(|i| right(i as f32, 3.0)).collect();
        let build = |k: &Builder| {
            let out = k.global::<T>("out");
            (0..3usize).for_each(|i| out.at(i).store(k.lit(number(i as f32 + 1.0)) / number(3.0)));
        };
        gives(block(1), build, &expected);
    }
    thirds::<f32>(|v| v, |a, b| a / b);
    thirds::<f64>(f64::from, |a, b| f64::from(a) / f64::from(b));
    thirds::<f16>(f16::from_f32, |a, b| f16::from_f64(f64::from(a) / f64::from(b)));
    thirds::<bf16>(bf16::from_f32, |a, b| bf16::from_f64(f64::from(a) / f64::from(b)));
}

#[test]
fn operators_are_those_of_rust() {
    let expected = |i: u32| {
        let mut v = (i + 7) % 5;
        v += 3;
        v *= i;
        v -= 1 & i;
        v ^= 0xf0 | i;
        v / 3 + (1 << i) + u32::from(i < 4) + (2.0f32 / (i as f32 + 1.0)) as u32
    };
    let build = |k: &Builder| {
        let out = k.global::<u32>("out");
        let i = k.tid();
        let mut v = (i + 7) % 5;
        v += 3;
        v *= i;
        v -= 1 & i;
        v ^= 0xf0 | i;
        let less = i.lt(4);
        let quotient = 2.0 / (i.cast::<f32>() + 1.0);
        let held = k.var(v);
        held.update(|v| v / 3);
        let sum = held + (1 << i) + less.as_number::<u32>() + quotient.cast::<u32>();
        out.at(i).store(sum);
    };
    let numbers: Vec<u32> = (0..8).map(expected).collect();
    gives(block(8), build, &numbers);
}

#[test]
fn an_index_past_four_gigabytes_is_not_wrapped() {
    let text = record("sample", Arch::Sm80, block(32), |k| {
        let x = k.global::<f32>("x");
        x.at(1usize << 32).store(1.0);
        x.at(i32::MAX as usize / 4).at(i32::MAX as usize / 4).at(16).store(1.0);
    })
    .to_string();
    assert!(text.contains("ptr_add.global.s64 v0, 17179869184"), "{text}");
    assert!(text.contains("ptr_add.global.s64 v0, 2147483644") || text.contains("v0, 4294967288"), "{text}");
}
