//! The gallery verifies, is as it was, and assembles for every target that has what it needs.

#[path = "ptxas/mod.rs"]
mod ptxas;

use std::fmt::Write as _;
use tilewright_codegen::gallery;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ptx;
use tilewright_codegen::verify::{ErrorKind, verify};

#[test]
fn a_kernel_verifies_exactly_where_its_needs_are_met() {
    for entry in gallery::all() {
        for arch in Arch::ALL {
            match verify(entry.record(arch)) {
                Ok(_) => assert!(entry.needs.met_by(arch), "{} verifies on {arch}", entry.name),
                Err(errors) => {
                    assert!(!entry.needs.met_by(arch), "{errors}");
                    assert!(errors.kinds().any(|kind| matches!(kind, ErrorKind::Unsupported { .. })), "{errors}");
                }
            }
        }
    }
}

#[test]
fn text_and_ptx_are_as_they_were() {
    for entry in gallery::all() {
        let arch = if entry.needs.met_by(Arch::Sm80) { Arch::Sm80 } else { Arch::Sm90a };
        let verified = verify(entry.record(arch)).unwrap_or_else(|errors| panic!("{errors}"));
        insta::assert_snapshot!(entry.name, format!("{}\n{}", verified.kernel(), ptx::emit(&verified)));
    }
}

/// Registers, shared memory and spills of every kernel on every target; the table is printed, spills and warnings fail.
#[test]
fn every_kernel_assembles_without_spills_or_warnings() {
    let Some(ptxas) = ptxas::find() else { return };
    let mut table = format!("{:12} {:8} {:>9} {:>8} {:>6}\n", "kernel", "target", "registers", "shared", "spills");
    for entry in gallery::all() {
        for arch in Arch::ALL.into_iter().filter(|&arch| entry.needs.met_by(arch)) {
            let verified = verify(entry.record(arch)).unwrap_or_else(|errors| panic!("{errors}"));
            let said = ptxas::assemble(&ptxas, arch, &ptx::emit(&verified));
            assert!(said.warnings.is_empty(), "{} on {arch}: {:#?}", entry.name, said.warnings);
            let [report] = said.entries.as_slice() else { panic!("{} on {arch}: {:?}", entry.name, said.entries) };
            let shared = report.shared.max(verified.kernel().shared_bytes());
            let (name, registers, spills) = (entry.name, report.registers, report.spills);
            writeln!(table, "{name:12} {:8} {registers:>9} {shared:>8} {spills:>6}", arch.name()).unwrap();
            assert_eq!(spills, 0, "{name} on {arch} spills");
        }
    }
    println!("{table}");
}
