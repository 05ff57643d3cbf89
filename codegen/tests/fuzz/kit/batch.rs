//! Many programs as one kernel: block i of the grid runs program i. On the simulator; compared
//! result by result.

use super::approx;
use super::program::{Gen, INPUT_BYTES, OUTPUT_BYTES, PARAM_BYTES, SCRATCH_BYTES, SLOTS, Slot, THREADS, word};
use std::collections::BTreeMap;
use tilewright_codegen::ir::attr::Cmp;
use tilewright_codegen::ir::{ArithOp, Block, InstRow, Kernel, Stmt, StmtKind, Ty};
use tilewright_codegen::sim::{self, Arg, Launch, Memory, Outcome};
use tilewright_codegen::verify::{Verified, verify};

/// The plan of a program: many instructions, or one row alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Plan {
    Mixed(u64),
    Single(u64, &'static InstRow),
}

/// A kernel of programs with their inputs, and what their results are.
pub struct Batch {
    pub kernel: Verified,
    pub input: Vec<u8>,
    pub slots: Vec<Vec<Slot>>,
    pub counts: BTreeMap<&'static str, u64>,
}

/// The bytes of the parameter that is passed by value.
pub fn param_bytes() -> [u8; PARAM_BYTES] {
    core::array::from_fn(|i| (i as u8).wrapping_mul(151) ^ 0x3c)
}

impl Batch {
    /// The programs of these plans. An error is a fault of the generator: the verifier's report.
    pub fn new(rows: &[&'static InstRow], plans: &[Plan]) -> Result<Batch, String> {
        let mut program = Gen::new(rows);
        let mut input = Vec::new();
        let mut slots = Vec::new();
        for (number, plan) in (0..).zip(plans) {
            let block = program.base.block;
            let mine =
                program.made(Ty::Pred, |d| ArithOp::Setp { ty: Ty::U32, d, a: block, b: word(number), cmp: Cmp::Eq });
            let body = match *plan {
                Plan::Mixed(seed) => program.program(seed),
                Plan::Single(seed, row) => program.single(seed, row),
            };
            program.push(StmtKind::If { cond: mine, then: body, otherwise: Block::new() });
            input.append(&mut program.input);
            slots.push(core::mem::take(&mut program.slots));
        }
        let counts = program.counts.clone();
        let kernel = verify(program.finish()).map_err(|errors| errors.to_string())?;
        Ok(Batch { kernel, input, slots, counts })
    }

    /// Replaces the kernel of the programs, which is what the shrinker makes.
    pub fn with(&self, kernel: Kernel) -> Option<Batch> {
        let kernel = verify(kernel).ok()?;
        let input = self.input.clone();
        let slots = self.slots.clone();
        let counts = self.counts.clone();
        Some(Batch { kernel, input, slots, counts })
    }

    pub fn programs(&self) -> usize {
        self.slots.len()
    }

    pub fn output_words(&self) -> usize {
        self.programs() * OUTPUT_BYTES as usize / 8
    }

    pub fn scratch_bytes(&self) -> usize {
        self.programs() * SCRATCH_BYTES as usize
    }

    /// The results by the simulator.
    pub fn simulate(&self, seed: u64) -> Result<Vec<u64>, String> {
        let mut memory = Memory::new();
        debug_assert_eq!(self.input.len(), self.programs() * INPUT_BYTES as usize);
        let input = memory.upload_read_only("input", &self.input);
        let output = memory.zeros("output", self.output_words() * 8);
        let scratch = memory.zeros("scratch", self.scratch_bytes());
        let args = vec![Arg::Ptr(input), Arg::Ptr(output), Arg::Ptr(scratch), Arg::Bytes(param_bytes().to_vec())];
        let launch = Launch::new([self.programs() as u32, 1, 1], args);
        match sim::run(&self.kernel, &launch, &mut memory, seed).map_err(|error| error.to_string())? {
            Outcome::Finished(_) => {
                memory.download::<u64>(output, self.output_words()).map_err(|error| error.to_string())
            }
            Outcome::Fault(fault) => Err(fault.to_string()),
        }
    }

    /// The result of a slot of a program, of every thread.
    pub fn slot<'a>(&self, results: &'a [u64], program: usize, slot: usize) -> &'a [u64] {
        let start = (program * SLOTS as usize + slot) * THREADS as usize;
        &results[start..start + THREADS as usize]
    }

    /// The differences of two machines: by bits, or beyond the bound if a row has one.
    pub fn differences(&self, expected_all: &[u64], found: &[u64]) -> Vec<Difference> {
        let mut all = Vec::new();
        for (program, slots) in self.slots.iter().enumerate() {
            for (index, slot) in slots.iter().enumerate() {
                let a = self.slot(expected_all, program, index);
                let b = self.slot(found, program, index);
                // Lanes that went another way leave zeros on both machines.
                let differs = |thread: &usize| match slot.approx {
                    _ if a[*thread] == b[*thread] => false,
                    None => true,
                    Some((row, count)) => {
                        let args: Vec<u64> = (0..count as usize)
                            .map(|i| self.slot(expected_all, program, index - count as usize + i)[*thread])
                            .collect();
                        !approx::within(row, slot.ty, &args, b[*thread])
                            || !approx::within(row, slot.ty, &args, a[*thread])
                    }
                };
                let threads: Vec<usize> = (0..THREADS as usize).filter(differs).collect();
                if let Some(&thread) = threads.first() {
                    let expected = a[thread];
                    let found = b[thread];
                    let label = slot.label.clone();
                    let threads = threads.len();
                    // The results that this one was made from are mostly among those before it.
                    let earlier: Vec<String> = (index.saturating_sub(6)..index)
                        .map(|i| format!("{}={:#x}", slots[i].label, self.slot(expected_all, program, i)[thread]))
                        .collect();
                    let before = earlier.join(" ");
                    all.push(Difference { program, slot: index, label, thread, threads, expected, found, before });
                }
            }
        }
        all
    }

    /// The statement that holds a program.
    fn statement(&self, program: usize) -> Option<&Stmt> {
        let ifs = self.kernel.kernel().body.iter().filter(|stmt| matches!(stmt.op, StmtKind::If { .. }));
        // The first belongs to the beginning.
        ifs.skip(1).nth(program)
    }

    /// The text of one program, without the beginning that all share.
    pub fn text(&self, program: usize) -> String {
        let Some(stmt) = self.statement(program) else { return String::new() };
        let alone = Kernel {
            body: vec![stmt.clone()],
            params: Vec::new(),
            shared: Vec::new(),
            vars: Vec::new(),
            ..self.kernel.kernel().clone()
        };
        alone.to_string()
    }
}

/// A result on which two machines disagree.
#[derive(Clone, Debug)]
pub struct Difference {
    pub program: usize,
    pub slot: usize,
    pub label: String,
    /// The first thread that differs, and how many do.
    pub thread: usize,
    pub threads: usize,
    pub expected: u64,
    pub found: u64,
    /// Results of the same thread before it.
    pub before: String,
}
