//! Faults of registers and `wgmma`: `verify` leaves no kernel that has them, so the machine runs
//! kernels here that it never sees elsewhere.

use super::mutate::mutants;
use super::run::run_unverified;
use super::{Arg, Fault, Launch, Memory, Outcome, TensorElem, TensorMapDescriptor, TensorSwizzle};
use crate::gallery;
use crate::ir::{Arch, Const, Kernel};
use crate::verify::verify;
use half::bf16;

/// The report of a kernel like `specialised`, without its lines.
fn report(kernel: &Kernel) -> Option<String> {
    let mut memory = Memory::new();
    let mut map = |name, rows: usize| {
        let at = memory.upload(name, &vec![bf16::ONE; rows * 64]);
        Arg::TensorMap(TensorMapDescriptor::plain(
            at,
            TensorElem::BF16,
            &[64, rows as u64],
            &[64, rows as u32],
            TensorSwizzle::B128,
        ))
    };
    let a = map("a", 64);
    let b = map("b", 128);
    let launch =
        Launch::new([1, 1, 1], vec![Arg::Scalar(Const::u32(1)), a, b, Arg::Ptr(memory.alloc("c", 64 * 128 * 4))]);
    let fault: Option<Box<Fault>> = match run_unverified(kernel, &launch, &mut memory, 0).expect("it launches") {
        Outcome::Finished(_) => None,
        Outcome::Fault(fault) => Some(fault),
    };
    let line = |line: &str| match (line.find(" (codegen/"), line.find("), block")) {
        (Some(from), Some(to)) => format!("{}{}", &line[..from], &line[to + 1..]),
        _ => line.into(),
    };
    fault.map(|fault| fault.to_string().lines().map(line).collect::<Vec<_>>().join("\n"))
}

/// `specialised` without the first instruction of that name.
fn without(instruction: &str) -> Kernel {
    let kernel = gallery::named("specialised").expect("the gallery has it").record(Arch::Sm90a);
    assert_eq!(report(&kernel), None, "the kernel as it is");
    let all = mutants(&kernel);
    let mutant = all.iter().find(|m| m.inst.starts_with(instruction) && m.change == "removed").expect("there is one");
    verify(mutant.kernel.clone()).expect_err("the verifier refuses it");
    mutant.kernel.clone()
}

#[test]
fn a_missing_wgmma_fence_is_told() {
    insta::assert_snapshot!(report(&without("wgmma.fence")).unwrap(), @"
    no wgmma fence in kernel specialised, seed 0
    at #115 `wgmma.ss.M64N128K16_F32_BF16_BF16.k.k r0[0..64], v25, v33, true`, block (0, 0, 0) warp 2
      register r0[0] was touched since the last wgmma.fence; put one before this wgmma
    ");
}

#[test]
fn a_register_of_a_wgmma_in_flight_is_told() {
    insta::assert_snapshot!(report(&without("wgmma.wait_group")).unwrap(), @"
    wgmma in flight in kernel specialised, seed 0
    at #182 `v91 = get.f32 r0[0]`, block (0, 0, 0) warp 2
      touches register r0[0] of a wgmma in flight; wait for its group before
    ");
}
