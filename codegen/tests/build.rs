//! Behaviour of the recorder: merging, folding, scopes, lines.

use insta::assert_snapshot;
use std::cell::Cell;
use tilewright_codegen::build::{Builder, Offset, Ptr, Shared, block, record};
use tilewright_codegen::device::sim;
use tilewright_codegen::ir::{Arch, Inst, Kernel, MemOp, StmtKind};
use tilewright_codegen::trial::{Expected, Trial};
use tilewright_codegen::verify::verify;

fn recorded(build: impl FnOnce(&Builder)) -> Kernel {
    record("sample", Arch::Sm80, block(32), build)
}

#[test]
fn equal_pure_values_are_one_value_and_loads_are_not() {
    let kernel = recorded(|k| {
        let x = k.global::<u32>("x");
        let a = x.at(k.tid() + 1).load();
        let b = x.at(k.tid() + 1).load();
        x.store(a + b);
    });
    assert_snapshot!(kernel, @"
    kernel sample(p0 x: global) sm_80 threads(32, 1, 1) {
      v0 = param.global p0
      v1 = special.tid.x
      v2 = add.u32 v1, 1
      v3 = mul.wide.u32 v2, 4
      v4 = ptr_add.global.u64 v0, v3
      v5 = ld.u32 global[v4]
      v6 = ld.u32 global[v4]
      v7 = add.u32 v5, v6
      st.u32 global[v0], {v7}
    }
    ");
}

#[test]
fn what_a_branch_computed_is_forgotten_behind_it_and_what_was_before_is_known_inside() {
    let kernel = recorded(|k| {
        let x = k.global::<u32>("x");
        let i = k.tid();
        let before = i * 5;
        k.if_else(i.lt(3), || x.at(i * 5).store(i * 7), || x.at(1).store(i * 7));
        x.at(2).store(i * 7 + before);
    });
    assert_snapshot!(kernel, @"
    kernel sample(p0 x: global) sm_80 threads(32, 1, 1) {
      v0 = param.global p0
      v1 = special.tid.x
      v2 = mul.u32 v1, 5
      v3 = setp.lt.u32 v1, 3
      if v3 {
        v4 = mul.wide.u32 v2, 4
        v5 = ptr_add.global.u64 v0, v4
        v6 = mul.u32 v1, 7
        st.u32 global[v5], {v6}
      } else {
        v7 = mul.u32 v1, 7
        st.u32 global[v0+4], {v7}
      }
      v8 = mul.u32 v1, 7
      v9 = add.u32 v8, v2
      st.u32 global[v0+8], {v9}
    }
    ");
}

#[test]
fn a_pointer_into_shared_memory_knows_its_allocation() {
    _ = recorded(|k| {
        k.shared::<f32>("before", 3);
        let tile = k.shared_aligned::<f32>("tile", 256, 128);
        let seen =
            |p: Ptr<'_, Shared, f32>| p.allocation().map(|a| (a.name.clone(), a.offset, a.left(), a.alignment()));
        let exactly = |offset, alignment| Some(("tile".to_owned(), Offset::Exactly(offset), 1024 - offset, alignment));
        assert_eq!(seen(tile), exactly(0, 128));
        assert_eq!(seen(tile.at(4).at(k.lit(2u32) * 8).at(-1)), exactly(76, 4), "constants add up");
        assert_eq!(seen(tile.at(300)), exactly(1200, 16), "past the end");
        assert_eq!(seen((tile.address32() + 64).to_shared()), exactly(64, 64), "as bits and back");
        let some = |multiple| Some(("tile".to_owned(), Offset::MultipleOf(multiple), 1024, multiple));
        assert_eq!(seen(tile.at(k.tid() * 8).at(16)), some(32), "a multiple of what both are multiples of");
        assert_eq!(seen(tile.at((k.tid() >> 2) << 4)), some(64));
        assert_eq!(seen(tile.at(k.tid() & 0xfff0)), some(64));
        assert_eq!(seen(tile.at(k.tid())), some(4));
        assert_eq!(seen(k.global::<u32>("x").load().to_shared()), None, "a number from elsewhere");
    });
}

proptest::proptest! {
    #[test]
    fn an_offset_is_a_multiple_of_what_it_is_said_to_be(
        steps in proptest::collection::vec((0u32..4, 0u32..64, 0u32..7), 0..6),
        tid in 0u32..1024,
    ) {
        _ = recorded(|k| {
            let mut p = k.shared_aligned::<u8>("tile", 1 << 16, 1024);
            let mut offset = 0;
            for &(how, number, shift) in &steps {
                (p, offset) = match how {
                    0 => (p.at(number), offset + number),
                    1 => (p.at(k.tid() * number), offset + tid * number),
                    2 => (p.at((k.tid() + number) << shift), offset + ((tid + number) << shift)),
                    _ => (p.at((k.tid() & !number) * 4), offset + (tid & !number) * 4),
                };
            }
            let said = p.allocation().expect("it points into the tile");
            assert_eq!(offset % said.alignment(), 0, "{steps:?}");
            if let Offset::Exactly(exactly) = said.offset {
                assert_eq!(exactly, i64::from(offset), "{steps:?}");
            }
        });
    }
}

#[test]
fn what_is_known_is_not_recorded() {
    let kernel = recorded(|k| {
        let x = k.global::<u32>("x");
        let four = k.lit(2u32) + 2;
        k.if_else(four.eq(4), || x.at(four * 4).store(four << 1), || x.store(0));
        k.when(four.gt(9), || k.trap());
        x.at(1).store(x.at(0).load() * 1 + 0);
    });
    assert_snapshot!(kernel, @"
    kernel sample(p0 x: global) sm_80 threads(32, 1, 1) {
      v0 = param.global p0
      st.u32 global[v0+64], {8}
      v1 = ld.u32 global[v0]
      st.u32 global[v0+4], {v1}
    }
    ");
}

/// No identity is applied to floats: x + 0 is not x where x is −0, and a NaN may change its bits.
#[test]
fn floats_are_left_as_they_are_written() {
    let kernel = recorded(|k| {
        let x = k.global::<f32>("x");
        x.store(x.load() * 1.0 + 0.0);
    });
    assert_snapshot!(kernel, @"
    kernel sample(p0 x: global) sm_80 threads(32, 1, 1) {
      v0 = param.global p0
      v1 = ld.f32 global[v0]
      v2 = mul.f32 v1, 1.0
      v3 = add.f32 v2, 0.0
      st.f32 global[v0], {v3}
    }
    ");
}

#[test]
fn a_statement_knows_the_line_that_asked_for_it() {
    let line = line!() + 3;
    let kernel = recorded(|k| {
        let x = k.global::<u32>("x");
        let sum = x.load() + 1;
        x.store(sum);
    });
    let mut lines = Vec::new();
    kernel.walk(&mut |stmt| {
        assert_eq!(stmt.src.file(), file!());
        if let StmtKind::Inst(Inst::Arith(_) | Inst::Mem(MemOp::St { .. })) = stmt.op {
            lines.push(stmt.src.line());
        }
    });
    assert_eq!(lines, [line, line + 1]);
}

#[test]
fn constant_distances_end_up_in_the_address() {
    let kernel = recorded(|k| {
        let x = k.global::<f32>("x");
        let s = k.shared::<f32>("s", 64);
        x.at(k.tid()).at(3).at(-1).store(s.at(7).load());
    });
    assert_snapshot!(kernel, @"
    kernel sample(p0 x: global) sm_80 threads(32, 1, 1) {
      shared s0 s: 256 bytes at 0 align 16
      v0 = param.global p0
      v1 = shared s0
      v2 = special.tid.x
      v3 = mul.wide.u32 v2, 4
      v4 = ptr_add.global.u64 v0, v3
      v5 = ld.f32 shared[v1+28]
      st.f32 global[v4+8], {v5}
    }
    ");
}

/// A block of several axes counts its threads over all of them.
#[test]
fn threads_are_counted_over_all_axes() {
    let mut launch = block(8);
    launch.threads = [8, 4, 2];
    let kernel = record("axes", Arch::Sm80, launch, |k| k.global::<u32>("x").at(k.tid()).store(k.warp()));
    assert_snapshot!(kernel, @"
    kernel axes(p0 x: global) sm_80 threads(8, 4, 2) {
      v0 = param.global p0
      v1 = special.tid.x
      v2 = special.tid.y
      v3 = mul.u32 v2, 8
      v4 = add.u32 v1, v3
      v5 = special.tid.z
      v6 = mul.u32 v5, 32
      v7 = add.u32 v4, v6
      v8 = mul.wide.u32 v7, 4
      v9 = ptr_add.global.u64 v0, v8
      v10 = shr.u32 v7, 5
      st.u32 global[v9], {v10}
    }
    ");
}

/// A kernel of a hundred thousand statements is a matter of a moment: nothing is quadratic.
#[test]
fn large_kernels_are_recorded_checked_and_written_in_linear_time() {
    use tilewright_codegen::{ptx, verify::verify};
    let time = |n: u32| {
        let start = std::time::Instant::now();
        let kernel = recorded(|k| {
            let x = k.global::<u32>("x");
            for i in 0..n {
                k.when(k.tid().lt(i + 1), || x.at(i * 32).at(k.tid()).store(x.at(k.tid()).load() + i));
            }
        });
        let text = ptx::emit(&verify(kernel).unwrap());
        assert!(text.len() > n as usize);
        start.elapsed()
    };
    let best = |n| (0..3).map(|_| time(n)).min().unwrap();
    let small = best(2_000);
    let large = best(16_000);
    assert!(large < small * 8 * 4, "8 times the statements took {small:?} and {large:?}");
}

#[test]
fn a_quotient_by_a_power_of_two_is_a_shift() {
    let kernel = record("quotients", Arch::Sm80, block(32), |k| {
        let unsigned = k.param::<u32>("unsigned");
        let signed = k.param::<i32>("signed");
        let out = k.global::<u32>("out");
        for (i, value) in
            [unsigned / 8, unsigned % 8, unsigned / k.lit(1), unsigned % k.lit(1), unsigned / 6].into_iter().enumerate()
        {
            out.at(i).store(value);
        }
        out.at(5).store((signed / 8).bits::<u32>());
    });
    let text = kernel.to_string();
    assert_eq!((text.matches("shr.u32").count(), text.matches("and.u32").count()), (1, 1), "{text}");
    assert_eq!((text.matches("div.u32").count(), text.matches("div.s32").count()), (1, 1), "{text}");
}

/// The launch of a kernel of one warp that writes `out` gives these numbers.
fn gives(build: impl Fn(&Builder), x: &[f32], expected: &[f32]) {
    let kernel = verify(record("sample", Arch::Sm90a, block(32), build)).expect("it verifies");
    let mut trial = Trial::new(kernel, 1);
    let x = trial.input("x", x);
    let out = trial.output("out", Expected::exact(expected));
    let outcome = trial.pass(x).pass(out).run(&sim::open(0)).expect("it runs");
    assert!(outcome.is_right(), "{outcome}");
}

#[test]
fn loops_carry_values_from_one_iteration_to_the_next() {
    let x: Vec<f32> = (0..128).map(|i| i as f32).collect();
    let sums: Vec<f32> = (0..32).map(|lane| (0..4).map(|i| (i * 32 + lane) as f32).sum()).collect();
    let carried = |k: &Builder| {
        let x = k.global::<f32>("x");
        let out = k.global::<f32>("out");
        let p = x.at(k.lane());
        out.at(k.lane()).store(k.carry(0, 4u32, k.lit(0.0f32), |i, sum| sum + p.at(i * 32).load()));
    };
    gives(carried, &x, &sums);
    let pairs = |k: &Builder| {
        let x = k.global::<f32>("x");
        let out = k.global::<f32>("out");
        let (sum, [at, step]) = k.carry(0, 4u32, (k.lit(0.0f32), [k.lane(), k.lit(32)]), |_, (sum, [at, step])| {
            (sum + x.at(at).load(), [at + step, step])
        });
        k.when((at + step).eq(160 + k.lane()), || out.at(k.lane()).store(sum));
    };
    gives(pairs, &x, &sums);
}

#[test]
fn what_a_branch_changes_is_a_register() {
    let x: Vec<f32> = (0..32).map(|i| i as f32).collect();
    let expected: Vec<f32> = (0..32).map(|lane| if lane < 3 { 7.0 } else { lane as f32 }).collect();
    let build = |k: &Builder| {
        let x = k.global::<f32>("x");
        let out = k.global::<f32>("out");
        let v = k.var(x.at(k.lane()).load());
        k.when(k.lane().lt(3), || v.set(7.0));
        out.at(k.lane()).store(v);
    };
    gives(build, &x, &expected);
}

#[test]
fn a_value_that_leaves_its_loop_is_named_with_both_lines() {
    let kernel = recorded(|k| {
        let x = k.global::<u32>("x");
        let last = Cell::new(None);
        k.for_(0, 4u32, |i| last.set(Some(x.at(i).load())));
        last.take().into_iter().for_each(|v| x.store(v));
    });
    let said = verify(kernel).unwrap_err().to_string();
    assert!(said.contains("(recorded at codegen/tests/build.rs:"), "{said}");
    assert!(said.contains("`k.var`") && said.contains("`k.carry`"), "{said}");
}

/// Unrecorded values are not found: a constant or a pointer at a constant distance that leaves its
/// branch in a `Cell` is the same in every thread.
#[test]
fn constants_that_leave_their_branch_are_the_same_everywhere() {
    let kernel = recorded(|k| {
        let x = k.global::<u32>("x");
        let last = Cell::new(None);
        k.when(k.tid().eq(0), || last.set(Some((x.at(4), k.lit(7u32)))));
        last.take().into_iter().for_each(|(place, constant)| place.store(constant));
    });
    assert!(kernel.to_string().contains("{7}"), "{kernel}");
    verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
}
