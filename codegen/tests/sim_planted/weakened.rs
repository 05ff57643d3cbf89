//! Kernels of the gallery with one instruction removed or weakened: the diagnosis that each must
//! get.

use crate::sim_cases;
use std::collections::BTreeMap;
use tilewright_codegen::sim::mutate::mutants;
use tilewright_codegen::sim::{self, Outcome};
use tilewright_codegen::verify::verify;

/// Case, the instruction's mnemonic, which of its kind, the change, the diagnosis.
const ROWS: &[(&str, &str, usize, &str, &str)] = &[
    ("block_sum", "bar.sync", 0, "removed", "race"),
    ("transpose", "bar.sync", 0, "removed", "race"),
    ("pipeline", "cp.async.wait_group", 0, "removed", "race with an asynchronous operation"),
    ("pipeline", "cp.async.wait_group", 0, "one more pending", "race with an asynchronous operation"),
    ("pipeline", "bar.sync", 0, "removed", "race"),
    ("bulk_ring", "fence.mbarrier_init", 0, "removed", "race between proxies"),
    ("bulk_ring", "mbarrier.init", 0, "one arrival more", "deadlock"),
    ("bulk_ring", "mbarrier.init", 1, "one arrival fewer", "race"),
    ("bulk_ring", "bar.sync", 0, "removed", "no mbarrier"),
    ("bulk_ring", "fence.proxy.async", 0, "removed", "race between proxies"),
    ("bulk_ring", "mbarrier.arrive", 0, "removed", "deadlock"),
    ("bulk_ring", "mbarrier.arrive.expect_tx", 0, "expects nothing", "race with an asynchronous operation"),
    ("bulk_ring", "mbarrier.arrive.expect_tx", 0, "16 bytes fewer", "deadlock"),
    ("tensor_tile", "fence.proxy.async", 0, "removed", "race between proxies"),
    ("tensor_tile", "fence.proxy.async", 0, "another space", "race between proxies"),
    ("tensor_tile", "mbarrier.try_wait", 0, "does not wait", "race with an asynchronous operation"),
    ("tensor_tile", "cp.async.bulk.wait_group", 0, "removed", "leaked copy"),
    ("tensor_tile", "bar.sync", 1, "removed", "race"),
    ("mma_tile", "bar.warp", 0, "removed", "race"),
    ("mma_tile", "cp.async.commit_group", 0, "removed", "race with an asynchronous operation"),
    ("wgmma_tile", "mbarrier.try_wait", 0, "the other parity", "race with an asynchronous operation"),
    ("wgmma_tile", "mbarrier.arrive.expect_tx", 0, "16 bytes more", "deadlock"),
    ("multicast", "barrier.cluster.arrive", 0, "relaxed", "race"),
    ("multicast", "barrier.cluster.wait", 0, "removed", "no mbarrier"),
    ("multicast", "mbarrier.arrive.expect_tx", 0, "expects nothing", "race with an asynchronous operation"),
    ("grid_sum", "red", 0, "relaxed", "race"),
    ("grid_sum", "red", 0, "scope of the block", "race of scopes"),
    ("grid_sum", "ld", 0, "relaxed", "race"),
    ("grid_sum", "ld", 0, "weak", "race"),
    ("grid_sum", "bar.sync", 1, "removed", "race"),
    ("specialised", "mbarrier.arrive", 0, "removed", "deadlock"),
    ("specialised", "mbarrier.init", 1, "one arrival fewer", "race with an asynchronous operation"),
];

/// The outcome of a row.
pub struct Row {
    pub name: String,
    pub expect: &'static str,
    /// Seeds of 20 under which anything was found, and under which it was the right thing.
    pub caught: usize,
    pub right: usize,
}

pub fn table() -> Vec<Row> {
    let cases = sim_cases::all();
    let mut rows = Vec::new();
    for &(case, mnemonic, nth, change, expect) in ROWS {
        let case = cases.iter().find(|c| c.name == case).expect("the case exists");
        let kernel = case.kernel();
        let mut seen = BTreeMap::new();
        let mutant = mutants(&kernel).into_iter().find(|mutant| {
            let inst = mutant.inst.split(" = ").last().unwrap_or_default();
            let word = inst.split(' ').next().unwrap_or_default();
            let stmt = kernel.stmt(mutant.stmt).expect("it is of the kernel");
            let tilewright_codegen::ir::StmtKind::Inst(of) = &stmt.op else { return false };
            if of.row().mnemonic != mnemonic || !word.starts_with(mnemonic) {
                return false;
            }
            let count = seen.len();
            let number = *seen.entry(mutant.stmt).or_insert(count);
            number == nth && mutant.change == change
        });
        let mutant = mutant.unwrap_or_else(|| panic!("{} has no {mnemonic} {nth} that is {change}", case.name));
        let kernel = verify(mutant.kernel).expect("the verifier lets it pass");
        let mut caught = 0;
        let mut right = 0;
        for seed in 0..20 {
            let (mut memory, launch, _) = (case.setup)();
            if let Outcome::Fault(fault) = sim::run(&kernel, &launch, &mut memory, seed).expect("it launches") {
                caught += 1;
                right += usize::from(fault.kind.name() == expect);
            }
        }
        rows.push(Row { name: format!("{} {mnemonic} {nth} {change}", case.name), expect, caught, right });
    }
    rows
}
