//! PTX that the back end avoids because `ptxas` compiles it wrongly. docs/sim.md has the minimal
//! PTX of each case.

use half::f16;
use std::collections::HashMap;
use tilewright_codegen::build::{Bf16x2, Builder, F16x2, Load, Val, block, record};
use tilewright_codegen::ir::attr::{
    AtomOp, AtomOrder, Clamp, Eviction, Fp8, LdCache, LdOrder, Prefetch, RedOrder, Round, Scope, VoteMode,
};
use tilewright_codegen::ir::{Arch, BitsOp, ConvertOp, Inst, Operand, StmtId, StmtKind, Ty, ValueId};
use tilewright_codegen::ptx;
use tilewright_codegen::verify::verify;

fn emit(body: impl Fn(&Builder)) -> String {
    let kernel = record("case", Arch::Sm90a, block(32), body);
    ptx::emit(&verify(kernel).unwrap_or_else(|errors| panic!("{errors}")))
}

/// Two factors of a product.
type Pair = fn(&Builder) -> [Val<'_, F16x2>; 2];

/// A kernel's use of a value.
type Uses<'a> = &'a dyn Fn(&Builder, Val<'_, u32>);

/// The text of a product of two factors, to which a third number is added.
fn product(factors: Pair) -> String {
    emit(|k| {
        let [a, b] = factors(k);
        let y = k.global::<u32>("y");
        y.at(1).store(a.fma(b, y.load().bits::<F16x2>()).bits::<u32>());
    })
}

/// An acquiring load whose result is never read made `ptxas` drop the policy that other accesses
/// name: their descriptor was whatever the register held, and the hardware ended the kernel with an
/// illegal instruction.
#[test]
fn an_acquiring_load_has_no_policy() {
    let text = |order: LdOrder| {
        emit(|k| {
            let x = k.global::<u32>("x");
            let how = Load::WEAK.order(order);
            let v = x.at(k.tid()).load_as::<1>(how.policy(k.policy(Eviction::First)));
            x.at(k.tid()).store(v[0]);
        })
    };
    for scope in [Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys] {
        let acquire = text(LdOrder::Acquire(scope));
        assert!(acquire.contains("ld.acquire.") && !acquire.contains("cache_hint"), "{acquire}");
        let relaxed = text(LdOrder::Relaxed(scope));
        assert!(relaxed.contains(".L2::cache_hint"), "{relaxed}");
    }
}

/// Around an acquiring load whose result is never read `ptxas` lost what computes the branch. A
/// relaxed load and a fence give the same order. A value counts as unread if it only goes into
/// another unread value, an unread register or an empty loop.
#[test]
fn an_unread_acquiring_load_is_a_relaxed_one_and_a_fence() {
    let text = |use_it: Uses<'_>| {
        emit(|k| {
            let x = k.global::<u32>("x");
            let way = x.at(1).load().gt(7);
            k.when(way, || use_it(k, x.at(k.tid()).load_as::<1>(Load::WEAK.order(LdOrder::Acquire(Scope::Gpu)))[0]));
        })
    };
    let unread: [Uses<'_>; 4] = [
        &|_, _| {},
        &|_, v| {
            let _ = (v + 1) * 3;
        },
        &|k, v| {
            let r = k.var(0u32);
            k.for_(0, 4, |_| r.set(r.get() + v));
        },
        &|k, v| {
            let r = k.var(0u32);
            k.when(v.gt(9), || r.set(v));
        },
    ];
    for (case, use_it) in unread.iter().enumerate() {
        let text = text(use_it);
        assert!(text.contains("ld.relaxed.gpu.global.u32") && !text.contains("ld.acquire"), "{case}: {text}");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| line.starts_with("ld.relaxed")).unwrap_or_default();
        assert_eq!(lines[at + 1], "fence.acq_rel.gpu;", "{case}: {text}");
    }
    let read: [Uses<'_>; 4] = [
        &|k, v| k.global::<u32>("y").store(v + 1),
        &|k, v| k.when(v.gt(9), || k.global::<u32>("y").store(1u32)),
        &|k, v| k.for_(0, v, |_| k.global::<u32>("y").store(1u32)),
        &|k, v| {
            let r = k.var(0u32);
            k.for_(0, 4, |_| {
                k.global::<u32>("y").store(r.get());
                r.set(v);
            });
        },
    ];
    for (case, use_it) in read.iter().enumerate() {
        let text = text(use_it);
        assert!(text.contains("ld.acquire.gpu.global.u32") && !text.contains("fence"), "{case}: {text}");
    }
}

/// An election was moved down to where its predicate is read: in a loop that lanes leave one by
/// one, each iteration elected.
#[test]
fn an_election_stays_where_it_is() {
    let text = emit(|k| {
        let x = k.global::<u32>("x");
        let chosen = k.elect();
        k.for_(0, k.tid() & 3, |i| k.when(chosen, || x.at(i).store(1u32)));
    });
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.starts_with("elect.sync")).unwrap_or_else(|| panic!("{text}"));
    assert!(lines[at + 1].starts_with("vote.sync.ballot.b32"), "{text}");
    assert!(lines[at + 2].ends_with("%lanemask_eq;") && lines[at + 3].starts_with("setp.eq.u32"), "{text}");
}

/// Program 43695 of run 260707: a vote on a predicate that `ptxas` 13.0 knows was moved into the
/// loop that reads its result. Lanes leave that loop one by one, and the vote waited for all.
#[test]
fn a_vote_on_a_known_predicate_is_made_of_ballots() {
    for (mode, ballots, tests) in [
        (VoteMode::Any, 1, ["setp.ne.u32", ""]),
        (VoteMode::All, 1, ["not.pred", "setp.eq.u32"]),
        (VoteMode::Uni, 2, ["or.pred", "setp.eq.u32"]),
    ] {
        let text = emit(|k| {
            let x = k.global::<u32>("x");
            let word = x.at(k.tid()).load();
            let never = k.var(word.lt(word));
            let vote = (never.get() & word.lt(9)).vote(mode, u32::MAX);
            k.for_(0, word & 3, |i| k.when(vote, || x.at(i).store(1u32)));
        });
        let count = |part: &str| text.matches(part).count();
        assert_eq!([count("vote.sync.ballot.b32"), count("vote.sync")], [ballots, ballots], "{text}");
        let before_loop = text.split("$loop").next().unwrap_or_default();
        assert!(tests.iter().all(|test| before_loop.contains(test)), "{text}");
    }
    let unknown = emit(|k| {
        let x = k.global::<u32>("x");
        let word = x.at(k.tid()).load();
        x.store((word.lt(9) & word.gt(3)).any().select(1u32, 0u32));
    });
    assert!(unknown.contains("vote.sync.any.pred") && !unknown.contains("ballot"), "{unknown}");
}

/// Program 98435 of run 260902: a vote that only a branch reads was moved into it, where the lanes
/// that take the branch voted alone.
#[test]
fn a_vote_that_inner_blocks_alone_read_is_made_of_ballots() {
    let inner: [Uses<'_>; 4] = [
        &|k, x| {
            let vote = x.lt(9).any();
            k.when(x.gt(3), || k.when(vote, || k.global::<u32>("y").store(x)));
        },
        &|k, x| {
            // A computation on the result moves with it.
            let one = x.lt(9).any().select(1u32, 0u32);
            k.for_(0, x, |_| k.global::<u32>("y").store(one));
        },
        &|k, x| {
            let kept = k.var(x.gt(7));
            kept.set(x.lt(9).any());
            k.when(x.gt(3), || k.when(kept.get(), || k.global::<u32>("y").store(x)));
        },
        &|k, x| {
            k.when(x.gt(1), || {
                let vote = x.lt(9).any();
                k.when(x.gt(3), || k.when(vote, || k.global::<u32>("y").store(x)));
            });
        },
    ];
    let own: [Uses<'_>; 4] = [
        &|k, x| k.when(x.lt(9).any(), || k.global::<u32>("y").store(x)),
        &|k, x| k.global::<u32>("y").store(x.lt(9).any().select(1u32, 0u32)),
        &|k, x| k.for_(0, x.lt(9).any().select(4u32, 2u32), |_| k.global::<u32>("y").store(x)),
        &|k, x| {
            let vote = x.lt(9).any();
            let y = k.global::<u32>("y");
            k.when(!vote, || y.store(x));
            k.when(x.gt(3), || k.when(vote, || y.at(1).store(x)));
        },
    ];
    let text = |use_it: Uses<'_>| emit(|k| use_it(k, k.global::<u32>("x").at(k.tid()).load()));
    for (case, use_it) in inner.iter().enumerate() {
        let text = text(use_it);
        assert!(text.contains("vote.sync.ballot.b32") && !text.contains("vote.sync.any"), "{case}: {text}");
    }
    for (case, use_it) in own.iter().enumerate() {
        let text = text(use_it);
        assert!(text.contains("vote.sync.any.pred") && !text.contains("ballot"), "{case}: {text}");
    }
}

/// The difference of a zero and the least signed half was taken for one of 16 bits.
#[test]
fn signed_halves_are_subtracted_as_unsigned_ones() {
    let text = emit(|k| {
        let x = k.global::<i16>("x");
        let y = k.global::<i16>("y");
        y.store((x.at(0).load() - x.at(1).load()) / x.at(2).load());
    });
    assert!(text.contains("sub.u16") && !text.contains("sub.s16") && text.contains("div.s16"), "{text}");
}

/// `or(lop3(a, b, b, a ^ b ^ c), a)` became `a | b` where the second `b` was a copy.
#[test]
fn lop3_knows_an_operand_by_its_copies() {
    let mut kernel = record("case", Arch::Sm90a, block(32), |k| {
        let x = k.global::<u32>("x");
        let a = x.at(0).load();
        let b = x.at(1).load();
        x.at(2).store(a.lop3(b, k.tid(), 0x96));
    });
    // A copy that the recorder would not have made.
    let copy = ValueId(kernel.values.len() as u32);
    kernel.values.push(Ty::S32);
    let again = ValueId(copy.0 + 1);
    let last = StmtId(10_000);
    kernel.values.push(Ty::U32);
    kernel.edit(&mut |block| {
        let Some(at) = block.iter().position(|stmt| matches!(stmt.op, StmtKind::Inst(Inst::Bits(BitsOp::Lop3 { .. }))))
        else {
            return;
        };
        let mut made = vec![block[at].clone(), block[at].clone()];
        if let StmtKind::Inst(Inst::Bits(BitsOp::Lop3 { b, c, .. })) = &mut block[at].op {
            made[0].op = StmtKind::Inst(ConvertOp::Bitcast { ty: Ty::S32, from: Ty::U32, d: copy, a: *b }.into());
            made[1].op =
                StmtKind::Inst(ConvertOp::Bitcast { ty: Ty::U32, from: Ty::S32, d: again, a: copy.into() }.into());
            *c = Operand::Value(again);
        }
        (made[0].id, made[1].id) = (last, StmtId(last.0 + 1));
        block.splice(at..at, made);
    });
    let text = ptx::emit(&verify(kernel).unwrap_or_else(|errors| panic!("{errors}")));
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let loads: Vec<&str> = lines.iter().filter(|line| line.starts_with("ld.global")).copied().collect();
    let register = |line: &str| line.split([' ', ',']).nth(1).unwrap_or_default().to_owned();
    let store = lines.iter().find(|line| line.starts_with("st.global")).unwrap_or_else(|| panic!("{text}"));
    let stored = store.split(", ").nth(1).unwrap_or_default().trim_end_matches(';');
    // a ^ b ^ b is a.
    assert!(lines.contains(&format!("mov.b32 {stored}, {};", register(loads[0])).as_str()), "{text}");
}

/// The loop that an atomic operation on shared memory becomes, first in another loop: `ptxas`
/// assumed that all lanes had reconverged after it, and a following `ballot` saw only some.
#[test]
fn an_atomic_that_is_a_loop_is_never_first_in_another() {
    let text = |body: &dyn Fn(&Builder)| emit(|k| k.for_(0, 5, |_| body(k)));
    let kept = |text: &str, atomic: &str| {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| line.contains(atomic)).unwrap_or_else(|| panic!("{text}"));
        lines[at - 1].starts_with("ld.volatile.shared.u32 ")
    };
    let order = AtomOrder::Relaxed(Scope::Cta);
    let floats = text(&|k| {
        k.shared::<f32>("s", 1).atom(AtomOp::Add, 1.0, order);
    });
    assert!(kept(&floats, "shared.add.f32"), "{floats}");
    let longs = text(&|k| k.shared::<u64>("s", 1).red(AtomOp::Add, 1u64, RedOrder::Relaxed(Scope::Cta)));
    assert!(kept(&longs, "shared.add.u64"), "{longs}");
    // One instruction each.
    let words = text(&|k| {
        k.shared::<u32>("s", 1).atom(AtomOp::Add, 1u32, order);
        k.shared::<u64>("t", 1).atom(AtomOp::Exch, 1u64, order);
        k.global::<f32>("x").atom(AtomOp::Add, 1.0, order);
    });
    assert!(!words.contains("volatile"), "{words}");
}

/// A minimum or maximum of 64 bits in shared memory: the loop that `ptxas` makes of it lets lanes
/// go whose word would stay as it is, and forgot them in some kernels. The back end's loop has one
/// way out.
#[test]
fn an_atomic_loop_has_one_way_out() {
    for op in [AtomOp::Min, AtomOp::Max] {
        let text = emit(|k| {
            let word = k.shared::<u64>("s", 1);
            word.red(op, 1u64, RedOrder::Relaxed(Scope::Cta));
            let before = word.atom(op, 2u64, AtomOrder::AcqRel(Scope::Cta));
            k.global::<u64>("x").store(before);
        });
        let count = |part: &str| text.matches(part).count();
        assert_eq!([count("shared.cas.b64"), count("bra $swap_"), count("shared.m")], [2, 2, 0], "{text}");
        assert!(text.contains("atom.acq_rel.cta.shared.cas.b64"), "{text}");
        assert_eq!(count(&format!("{}.u64", op.name())), 2, "{text}");
    }
}

/// A loop over a 64-bit counter whose bound differs between lanes. `ptxas` 13.0 unrolled it by
/// four, and lanes that skipped the last part left a convergence barrier behind, so that a later
/// `match` saw a part of the warp. The pragma follows the label, so that it applies to that loop.
#[test]
fn a_loop_over_64_bits_with_an_unknown_bound_is_not_unrolled() {
    let text = |body: &dyn Fn(&Builder, Val<'_, u32>)| emit(|k| body(k, k.tid()));
    let add =
        |k: &Builder, word: Val<'_, u64>| k.global::<u64>("x").red(AtomOp::Add, word, RedOrder::Relaxed(Scope::Gpu));
    let is_marked = |text: &str| {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let label = lines.iter().position(|line| line.starts_with("$loop_")).unwrap_or_else(|| panic!("{text}"));
        lines[label + 1] == ".pragma \"nounroll\";"
    };
    let wide = text(&|k, tid| k.for_(2u64, tid.cast::<u64>(), |at| add(k, at)));
    let from_lane = text(&|k, tid| k.for_(tid.cast::<u64>(), 40u64, |at| add(k, at)));
    let known = text(&|k, _| k.for_(2u64, 40u64, |at| add(k, at)));
    let narrow = text(&|k, tid| k.for_(2u32, tid, |at| add(k, at.cast::<u64>())));
    assert_eq!([&wide, &from_lane, &known, &narrow].map(|text| is_marked(text)), [true, true, false, false], "{wide}");
}

/// Two 8-bit floats below another half as one word: the other half was lost where it was read
/// again.
#[test]
fn small_floats_are_not_packed_by_their_conversion() {
    for fp8 in [Fp8::E4M3, Fp8::E5M2] {
        let text = emit(|k| {
            let x = k.global::<f32>("x");
            let y = k.global::<u16>("y");
            y.at(k.tid()).store(x.load().pair_fp8(x.at(1).load(), fp8));
        });
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| line.starts_with("cvt.rn.satfinite")).unwrap_or_else(|| panic!("{text}"));
        let pair = lines[at].split([' ', ',']).nth(1).unwrap_or_default();
        let and = lines[at + 1];
        assert!(and.starts_with("and.b16 %h") && and.ends_with(&format!(", {pair}, 0xffff;")), "{text}");
    }
}

/// A conversion from a half to its own type, then one to an integer toward zero, became one that
/// rounds to nearest.
#[test]
fn a_half_becomes_its_own_type_by_a_multiplication() {
    let text = emit(|k| {
        let x = k.global::<f16>("x");
        let y = k.global::<i32>("y");
        let half = x.at(k.tid()).load().cast_as::<f16>(Round::Exact, Clamp::No);
        y.at(k.tid()).store(half.cast_as::<i32>(Round::Zero, Clamp::No));
    });
    assert!(!text.contains("cvt.f16.f16") && text.contains("fma.rn.f16") && text.contains("cvt.rzi.s32.f16"), "{text}");
}

#[test]
fn hints_are_as_the_load_says_elsewhere() {
    let text = emit(|k| {
        let x = k.global::<u32>("x");
        let how = Load::WEAK.cache(LdCache::EvictLast).prefetch(Prefetch::B128);
        let v = x.at(k.tid()).load_as::<1>(how.policy(k.policy(Eviction::First)));
        x.at(k.tid()).store(v[0]);
    });
    assert!(text.contains("ld.global.L1::evict_last.L2::cache_hint.L2::128B"), "{text}");
}

/// A square whose factor has a half of −0 that `ptxas` 13.0 knows became −0 · +0: the sign of one
/// factor was dropped.
#[test]
fn a_square_of_a_pair_is_a_square_of_magnitudes() {
    for bf16 in [false, true] {
        let text = emit(|k| {
            let x = k.global::<u32>("x");
            let a = x.at(0).load();
            let c = x.at(1).load();
            if bf16 {
                let a = a.bits::<Bf16x2>();
                let c = c.bits::<Bf16x2>();
                x.at(2).store(a.fma(a, c).bits::<u32>());
            } else {
                // A copy is the same factor.
                let (a, b, c) = (a.bits::<F16x2>(), a.bits::<F16x2>(), c.bits::<F16x2>());
                x.at(2).store(a.fma(b, c).bits::<u32>());
            }
        });
        let name = if bf16 { "bf16x2" } else { "f16x2" };
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let at =
            lines.iter().position(|line| line.starts_with(&format!("abs.{name}"))).unwrap_or_else(|| panic!("{text}"));
        let magnitude = lines[at].split([' ', ',']).nth(1).unwrap_or_default();
        assert!(lines[at + 1].contains(&format!(", {magnitude}, {magnitude}, ")), "{text}");
    }
    let product = emit(|k| {
        let x = k.global::<u32>("x");
        let [a, b, c] = [0, 1, 2].map(|i| x.at(i).load().bits::<F16x2>());
        x.at(3).store(a.fma(b, c).bits::<u32>());
    });
    assert!(product.contains("fma.rn.f16x2") && !product.contains("abs."), "{product}");
}

/// Program 7036 of run 260707: the square of a constant that reached its factors through two
/// registers. `ptxas` looks through moves, packs and branches that agree.
#[test]
fn a_square_is_known_through_registers_and_packs() {
    let squares: [Pair; 5] = [
        |k| {
            let first = k.var(k.lit(0x8000_27afu32));
            let second = k.var(k.lit(0u32));
            let a = first.get();
            second.set(a);
            [second.get().bits(), a.bits()]
        },
        |k| {
            let half = k.global::<f16>("h").load();
            let zero = k.lit(f16::NEG_ZERO);
            [k.join(half, zero), k.join(half, zero)]
        },
        |k| {
            let half = k.global::<f16>("h").load();
            let zero = k.lit(f16::NEG_ZERO);
            let pair: Val<'_, F16x2> = k.join(half, zero);
            let (lo, hi) = pair.split();
            [k.join(lo, hi), pair]
        },
        |k| {
            let zero = k.var(k.lit(0u16));
            zero.set(k.lit(0x8000u16));
            [k.join(k.lit(f16::ONE), zero.get().bits::<f16>()), k.lit(0x8000_3c00u32).bits()]
        },
        |k| {
            // Unwritten by the branch and by the loop.
            let pair = k.var(k.global::<u32>("x").load());
            let other = k.var(k.lit(0u32));
            let a = pair.get();
            k.when(a.gt(9), || k.for_(0, 4, |i| other.set(i)));
            [pair.get().bits(), a.bits()]
        },
    ];
    let products: [Pair; 3] = [
        |k| {
            let x = k.global::<u32>("x");
            let pair = k.var(x.load());
            let a = pair.get();
            k.when(a.gt(9), || pair.set(x.at(1).load()));
            [pair.get().bits(), a.bits()]
        },
        |k| {
            let x = k.global::<u32>("x");
            let pair = k.var(x.load());
            let a = pair.get();
            k.for_(0, 4, |i| pair.set(x.at(i).load()));
            [pair.get().bits(), a.bits()]
        },
        |k| {
            let half = k.global::<f16>("h").load();
            let zero = k.lit(f16::NEG_ZERO);
            [k.join(half, zero), k.join(zero, half)]
        },
    ];
    for (case, factors) in squares.into_iter().enumerate() {
        let text = product(factors);
        assert_eq!(text.matches("abs.f16x2").count(), 1, "{case}: {text}");
    }
    for (case, factors) in products.into_iter().enumerate() {
        let text = product(factors);
        assert!(text.contains("fma.rn.f16x2") && !text.contains("abs."), "{case}: {text}");
    }
}

/// A square (run 260707) of a constant that a loop of two iterations puts into a
/// register, and a product of two constants (run 260803): `ptxas` 13.0 dropped the
/// sign of one factor where the product of two halves that it knows has a factor of −0.
#[test]
fn factors_that_may_be_minus_zero_are_multiplied_as_magnitude_and_sign() {
    let zeros: [Pair; 6] = [
        |k| [k.lit(0x3db0_004bu32).bits(), k.lit(0x8000_007fu32).bits()],
        |k| {
            let first = k.var(k.lit(0x8000_27afu32));
            let second = k.var(k.lit(0u32));
            let b = first.get();
            k.for_(2, 6, |_| second.set(first.get()));
            [second.get().bits(), b.bits()]
        },
        |k| {
            let x = k.global::<u32>("x").load();
            [x.gt(9).select(x, k.lit(0x8000u32)).bits(), k.lit(0x7c00_3c00u32).bits()]
        },
        |k| {
            let h = k.global::<f16>("h");
            [k.join(h.load(), k.lit(f16::NEG_ZERO)), k.join(h.at(1).load(), k.lit(f16::ONE))]
        },
        |k| {
            // Written after its reader in the loop.
            let pair = k.var(k.lit(0u32));
            let product = k.var(k.lit(0u32));
            k.for_(0, 4, |_| {
                product.set(pair.get());
                pair.set(k.lit(0x8000_3c00u32));
            });
            [k.lit(0xbc00_bc00u32).bits(), product.get().bits()]
        },
        |k| {
            // Program 81788 of run 260903: computed from constants.
            let low = k.var(k.lit(0u32));
            let high = k.var(k.lit(0x8000u32));
            [(low.get() | high.get() << 16u32).bits(), k.lit(0x3c00_3c00u32).bits()]
        },
    ];
    let others: [Pair; 2] = [
        |k| [k.lit(0x3c00_3c00u32).bits(), k.lit(0xbc00_0000u32).bits()],
        |k| {
            // A computation on values that are not constants is not followed.
            let x = k.global::<u32>("x");
            [(x.load() & 0x8000_8000u32).bits(), x.at(1).load().bits()]
        },
    ];
    for (case, factors) in zeros.into_iter().enumerate() {
        let text = product(factors);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| line.contains("fma.rn.f16x2")).unwrap_or_else(|| panic!("{text}"));
        let before = ["and.b32", "xor.b32", "and.b32"];
        let written = &lines[at.saturating_sub(before.len())..at];
        assert!(written.iter().zip(before).all(|(line, name)| line.starts_with(name)), "{case}: {text}");
    }
    for (case, factors) in others.into_iter().enumerate() {
        let text = product(factors);
        assert!(text.contains("fma.rn.f16x2") && !text.contains("xor."), "{case}: {text}");
    }
}

/// A 16-bit maximum with a constant, compared with that constant, became one instruction whose
/// comparison was that of the high half.
#[test]
fn extremes_of_halves_are_taken_in_32_bits() {
    let text = emit(|k| {
        let x = k.global::<i16>("x");
        let y = k.global::<u16>("y");
        let a = x.load().max(x.at(1).load());
        let b = y.load().min(y.at(1).load());
        x.at(2).store(a);
        y.at(2).store(b);
        // A clamp is made of extremes.
        y.at(3).store(x.load().cast_as::<u16>(Round::Exact, Clamp::Sat));
    });
    let count = |part: &str| text.matches(part).count();
    assert_eq!([count("max.s32"), count("min.u32"), count("16 %th")], [2, 1, 0], "{text}");
    assert!(!text.contains("max.s16") && !text.contains("min.u16"), "{text}");
}

/// The count of a 16-bit shift is clamped by `ptxas`, which merged the clamp with the conversion
/// from a float before it: a negative float, whose count is 0, became a huge count.
#[test]
fn halves_are_shifted_in_32_bits() {
    let text = emit(|k| {
        let x = k.global::<i16>("x");
        let y = k.global::<u16>("y");
        let f = k.global::<f32>("f");
        let count = f.load().cast_as::<u32>(Round::Zero, Clamp::No);
        x.at(1).store(x.load() >> count);
        y.at(1).store(y.load() >> count);
        y.at(2).store(y.load() << count);
    });
    for shift in ["shr.s32", "shr.u32", "shl.b32"] {
        assert_eq!(text.matches(shift).count(), 1, "{text}");
    }
    assert!(!text.contains("shr.s16") && !text.contains("shr.u16") && !text.contains("shl.b16"), "{text}");
}

/// A `lop3` two of whose operands `ptxas` finds to be equal, by whatever way, was merged wrongly
/// with what reads it: here `b | b` and a register that was set to `b` are copies of b.
#[test]
fn a_function_of_three_values_is_made_of_functions_of_two() {
    let text = emit(|k| {
        let x = k.global::<u32>("x");
        let a = x.at(0).load();
        let b = x.at(1).load();
        let copy = k.var(0u32);
        copy.set(b);
        x.at(2).store(a.lop3(b, copy.get(), 0xe8) | a);
        x.at(3).store(a.lop3(131072u32, b | b, 0xe8) ^ b);
        x.at(4).store(a.lop3(b, k.tid(), 0x00));
        // No bit of one value: a ^ a.
        x.at(5).store(a.lop3(b, a.lop3(a, 0u32, 0x96) ^ a, 0xe8));
    });
    assert!(!text.contains("lop3"), "{text}");
    let constants = emit(|k| {
        let x = k.global::<u32>("x");
        x.at(1).store(x.load().lop3(0x000f_000fu32, 0x4300_4300u32, 0xea));
    });
    assert!(constants.contains("lop3.b32") && constants.contains(", 983055, 1124090624, 234;"), "{constants}");
}

/// |x| > c was taken for true where c is negative, and |x| >= 0, also where x is not a number.
#[test]
fn magnitudes_are_compared_by_the_opposite() {
    let text = emit(|k| {
        let x = k.global::<f32>("x");
        let a = x.load().abs();
        let tests = [a.gt(-1.0), a.ge(0.0), k.lit(-1.0f32).lt(a), (-a).lt(1.0), a.gt(0.5), a.lt(-1.0), a.ne(-1.0)];
        for (i, test) in tests.into_iter().enumerate() {
            x.at(i as u32).store(test.select(1.0, 0.0));
        }
    });
    for (compare, count) in
        [(".leu.", 1), (".ltu.", 1), (".geu.", 2), (".gt.", 1), (".lt.", 1), (".neu.", 1), ("not.pred", 4)]
    {
        assert_eq!(text.matches(compare).count(), count, "{compare}: {text}");
    }
}

/// A product by a constant, shifted to the left by its whole width, became a product by the
/// constant.
#[test]
fn a_shift_by_the_whole_width_is_its_result() {
    let text = emit(|k| {
        let x = k.global::<u64>("x");
        let y = k.global::<i32>("y");
        x.at(1).store((x.load() * 13u64) << 69u32);
        x.at(2).store(x.load() >> 64u32);
        y.at(1).store(y.load() << 32u32);
        y.at(2).store(y.load() >> 40u32);
        // A count that only `ptxas` may know.
        x.at(3).store(x.load() << k.tid());
    });
    assert!(text.contains("min.u32") && text.contains("setp.gt.u32") && text.contains("selp.u64"), "{text}");
    assert!(text.matches("shl.").count() == 1 && !text.contains("shr.u64") && text.contains("shr.s32"), "{text}");
    assert_eq!([text.matches("mov.b64 %d").count(), text.matches(", 0;").count()], [2, 3], "{text}");
}

/// A byte extended by its sign and then converted to a float as an unsigned number was converted as
/// a signed one.
#[test]
fn bytes_are_extended_by_their_sign_without_a_conversion() {
    let text = emit(|k| {
        let x = k.global::<i8>("x");
        let y = k.global::<i32>("y");
        let z = k.global::<f32>("z");
        z.at(0).store(x.load().cast_as::<u32>(Round::Exact, Clamp::No).cast_as::<f32>(Round::Nearest, Clamp::No));
        for (i, pos) in (1u32..).zip([0u32, 8, 16, 24]) {
            z.at(i).store(y.load().bfe(pos, 8u32).bits::<u32>().cast_as::<f32>(Round::Nearest, Clamp::No));
        }
    });
    assert!(!text.contains(".s8 %r") && !text.contains("bfe"), "{text}");
    let shifts = |name: &str, by: u32| {
        text.lines().filter(|line| line.contains(name) && line.ends_with(&format!(", {by};"))).count()
    };
    assert_eq!([24, 16, 8].map(|by| shifts("shl.b32", by)), [2, 1, 1], "{text}");
    assert_eq!(shifts("shr.s32", 24), 5, "{text}");
}

/// The mask of a half that a conversion gives became 0xffff where the half was packed below
/// another.
#[test]
fn halves_are_masked_in_32_bits() {
    let text = emit(|k| {
        let x = k.global::<f32>("x");
        let y = k.global::<u16>("y");
        let half = x.load().cast_as::<f16>(Round::Nearest, Clamp::No).bits::<u16>();
        y.at(0).store(half & 0x4001u16);
        y.at(1).store(half & y.at(2).load());
    });
    assert!(text.contains("lop3.b32") && text.contains(", 16385, 0, 0xc0;"), "{text}");
    assert_eq!(text.matches("and.b16").count(), 1, "{text}");
}

/// Evaluates the PTX lines that permute the bytes of two words.
fn permuted(lines: &[&str], words: [(&str, u32); 2]) -> Option<u32> {
    let mut registers: HashMap<&str, u32> = HashMap::from(words);
    let mut last = None;
    for line in lines {
        let (d, [a, b, selector]) = parts_of_prmt(line)?;
        let a = registers.get(a)?;
        let b = registers.get(b)?;
        let selector = selector.parse::<u32>().ok()?;
        let bytes = (u64::from(*b) << 32 | u64::from(*a)).to_le_bytes();
        let byte = |field: u32| {
            let byte = bytes[(field & 7) as usize];
            if field & 8 == 0 { byte } else { (byte.cast_signed() >> 7).cast_unsigned() }
        };
        let result = u32::from_le_bytes([0, 4, 8, 12].map(|at| byte(selector >> at & 0xf)));
        registers.insert(d, result);
        last = Some(result);
    }
    last
}

/// The result and the operands of a line that permutes bytes.
fn parts_of_prmt(line: &str) -> Option<(&str, [&str; 3])> {
    let mut parts = line.trim().strip_prefix("prmt.b32 ")?.strip_suffix(';')?.split(", ");
    Some((parts.next()?, [parts.next()?, parts.next()?, parts.next()?]))
}

/// `ptxas` 13.0 took the first operand of a permutation for unused if only the lowest bytes are
/// read, and they hold signs of it but no byte of it. The lowest byte in run 260505, the lower two
/// in run 260801.
#[test]
fn the_lowest_bytes_of_a_permutation_are_never_signs_of_its_first_operand_alone() {
    let selectors: Vec<u32> = (0..0x1_0000).step_by(7).chain([0x3210, 0x3269, 0xbb9c, 0xffff_ffe9]).collect();
    let words = [0x12f4_c678, 0xa987_b5d4];
    let text = emit(|k| {
        let x = k.global::<u32>("x");
        let [a, b] = [0, 1].map(|i| x.at(i).load());
        selectors.iter().for_each(|&selector| x.store(a.prmt(b, selector)));
    });
    // The lines of each permutation end with its store.
    let groups: Vec<Vec<&str>> = text
        .split("st.global")
        .map(|group| group.lines().filter(|line| line.contains("prmt")).collect())
        .filter(|group: &Vec<&str>| !group.is_empty())
        .collect();
    assert_eq!(groups.len(), selectors.len());
    let plain = groups[selectors.iter().position(|&selector| selector == 0x3210).unwrap_or_default()][0];
    let (_, [a, b, _]) = parts_of_prmt(plain).unwrap_or_else(|| panic!("{plain}"));
    let bytes = |word: u32| word.to_le_bytes();
    let both = [bytes(words[0]), bytes(words[1])].concat();
    for (lines, &selector) in groups.iter().zip(&selectors) {
        let want = [0, 4, 8, 12].map(|at| {
            let byte = both[(selector >> at & 7) as usize];
            if selector >> at & 8 == 0 { byte } else { (byte.cast_signed() >> 7).cast_unsigned() }
        });
        assert_eq!(permuted(lines, [(a, words[0]), (b, words[1])]), Some(u32::from_le_bytes(want)), "{selector:#x}");
        for line in lines {
            let written: u32 = parts_of_prmt(line).and_then(|(_, parts)| parts[2].parse().ok()).unwrap_or(u32::MAX);
            let fields = [0, 4, 8, 12].map(|at| written >> at & 0xf);
            for read in 1..4 {
                let signs = fields[..read].iter().any(|field| (8..12).contains(field));
                assert!(!signs || fields[..read].iter().any(|&field| field < 4), "{selector:#x}: {line}");
            }
        }
    }
    let count = |selector: u32| selectors.iter().position(|&other| other == selector).map(|at| groups[at].len());
    assert_eq!([0x3210, 0x3269, 0xbb9c].map(count), [Some(1), Some(1), Some(2)], "{text}");
}

/// 32 bits, extended to a signed number of 64 and shifted to the left, were extended by a sign.
#[test]
fn unsigned_numbers_become_signed_ones_of_64_bits_as_unsigned_ones() {
    let text = emit(|k| {
        let x = k.global::<u32>("x");
        let y = k.global::<i64>("y");
        y.store(x.load().cast_as::<i64>(Round::Exact, Clamp::No) << 8u32);
    });
    assert!(text.contains("cvt.u64.u32") && !text.contains("cvt.s64"), "{text}");
}
