//! Every instruction has a case; every case goes through the text form, the verifier, the PTX back
//! end and the assembler, for every target that has it.

mod arith;
mod bits;
mod case;
mod control;
mod convert;
mod copy;
mod mem;
mod mma;
mod results;
mod sync;
mod value;
mod warp;

#[path = "../devices/mod.rs"]
#[expect(dead_code, reason = "no trials here")]
mod devices;

use case::Case;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use tilewright_codegen::assemble::Ptxas;
use tilewright_codegen::ir::{Arch, StmtKind, rows};
use tilewright_codegen::ptx;
use tilewright_codegen::verify::{ErrorKind, verify};

type Family = (&'static str, fn() -> Vec<Case>);

const FAMILIES: [Family; 10] = [
    ("arith", arith::cases),
    ("bits", bits::cases),
    ("control", control::cases),
    ("convert", convert::cases),
    ("copy", copy::cases),
    ("mem", mem::cases),
    ("mma", mma::cases),
    ("sync", sync::cases),
    ("value", value::cases),
    ("warp", warp::cases),
];

fn cases() -> impl Iterator<Item = Case> {
    FAMILIES.into_iter().flat_map(|(_, cases)| cases())
}

#[test]
fn every_instruction_has_a_case() {
    let mut covered = BTreeSet::new();
    for case in cases() {
        case.record(case.since).walk(&mut |stmt| {
            if let StmtKind::Inst(inst) = &stmt.op {
                covered.insert(inst.row().mnemonic);
            }
        });
    }
    let missing: Vec<_> = rows().map(|row| row.mnemonic).filter(|word| !covered.contains(word)).collect();
    assert!(missing.is_empty(), "no case in tests/inst for {missing:?}");
}

#[test]
fn a_case_is_legal_where_it_says_and_unsupported_elsewhere() {
    for case in cases() {
        assert!(case.on(case.since), "{}: not on its own first target", case.name);
        for arch in Arch::ALL {
            match verify(case.record(arch)) {
                Ok(_) => assert!(case.on(arch), "{} verifies on {arch}, where it says it is not", case.name),
                Err(errors) => {
                    assert!(!case.on(arch), "{errors}");
                    let unsupported =
                        |kind: &ErrorKind| matches!(kind, ErrorKind::Unsupported { target, .. } if *target == arch);
                    let limit = |kind: &ErrorKind| matches!(kind, ErrorKind::BeyondLimit { .. });
                    assert!(errors.kinds().all(|kind| unsupported(kind) || limit(kind)), "{errors}");
                    assert!(errors.kinds().any(|kind| unsupported(kind) || limit(kind)), "{errors}");
                }
            }
        }
    }
}

#[test]
fn recording_twice_gives_the_same_bytes() {
    for case in cases() {
        let [once, again] = [0, 1].map(|_| verify(case.record(case.since)).unwrap());
        assert_eq!(once.kernel().to_string(), again.kernel().to_string());
        assert_eq!(ptx::emit(&once), ptx::emit(&again));
    }
}

/// The text and the PTX of each case on its first target; one snapshot a family.
#[test]
fn text_and_ptx_are_as_they_were() {
    for (family, cases) in FAMILIES {
        let mut out = String::new();
        for case in cases() {
            let verified = verify(case.record(case.since)).unwrap_or_else(|errors| panic!("{errors}"));
            let text = ptx::emit(&verified);
            let body = text.split_once("{\n").map_or("", |(_, body)| body);
            writeln!(out, "==== {}\n{}----\n{body}", case.name, verified.kernel()).unwrap();
        }
        insta::assert_snapshot!(family, out);
    }
}

#[test]
fn the_assembler_accepts_every_case_on_every_target() {
    let Some(ptxas) = Ptxas::find().unwrap() else { return };
    for (family, cases) in FAMILIES {
        for arch in Arch::ALL {
            let legal = cases().into_iter().filter(|case| case.on(arch));
            let kernels: Vec<String> = legal
                .map(|case| ptx::emit(&verify(case.record(arch)).unwrap_or_else(|errors| panic!("{errors}"))))
                .collect();
            if !kernels.is_empty() {
                let said = ptxas.assemble(arch, &module(&kernels)).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(said.entries.len(), kernels.len(), "{family} on {arch}");
                assert!(said.flaws().is_empty(), "{family} on {arch}: {:#?}", said.flaws());
            }
        }
    }
}

/// Several kernels of one target as one module.
fn module(kernels: &[String]) -> String {
    let mut out = String::new();
    for kernel in kernels {
        let head = kernel.find(".address_size 64\n").unwrap_or(0);
        out.push_str(if out.is_empty() { kernel } else { kernel[head..].trim_start_matches(".address_size 64\n") });
    }
    out
}
