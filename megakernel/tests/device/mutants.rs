//! The mutation harness over the megakernel's synchronisation: an instruction removed or weakened must be found out.
//!
//! The kernel is that of the least model on two blocks with two warps each, and a launch has two steps, so that counters
//! go on, the ring wraps, and tokens are fed back. Every mutant runs a healthy launch under several seeds, one whose rows end,
//! and the ways in which a launch fails: an unknown opcode, a counter that nobody signals, tables that were written over, an
//! abort. Who finds it out: the verifier, the simulator (a fault), other tokens or logits, or another report.
//!
//! Choices at random are not in this kernel: all of their synchronisation is of the room `sample`, whose harness is in
//! `kernels/tests/small`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tilewright_codegen::ir::Kernel;
use tilewright_codegen::sim::mutate::{Mutant, mutants};
use tilewright_codegen::verify::verify;
use tilewright_megakernel::lower::LOGITS;
use tilewright_megakernel::program::{Op, TaskId};
use tilewright_megakernel::vm::device::{DeviceFault, DeviceMachine, DeviceOptions, NO_TOKEN, record};

use super::lab::{Cells, chain, least, load, sampling, splitting};

// Why mutants are not found out.
const HOST: &str = "the simulator exchanges mapped words when a launch is over, so the host sees no order in them (docs/device.md); a GPU needs it";
const ONE_GROUP: &str = "of tasks whose units fit one group of sums, which never come here; found out in the others";
const OWN: &str = "thread 0 looks at what it alone writes; the producer's look is found out";
const ELSEWHERE: &str = "in a place where no scenario reports while another thread looks; found out in the others";
const LAYERS: &str = "what only a second layer overwrites; two layers on three blocks (of partial results: on eight, `merges`) race without it";
const BEGIN: &str = "behind the wait for a step: of the least model only the leader's warp reads what comes next; found out in the others";
const OTHERWISE: &str =
    "in a place where another wait of the least model orders the same accesses; found out in the others";
const ARRIVAL: &str = "it orders partial results, relaxed atomics where their merge is tagged, which the simulator's blocks see at once; found out in kernels/tests/decode, where they are weak";

/// Mutants that nothing here can find out: the author's file, the instruction, what was done, and why. An entry that
/// nothing survives under is a failure too.
const EQUIVALENT: &[(&str, &str, &str, &str)] = &[
    ("decode/array.rs", "ld.relaxed.gpu.u32 global", "weak", LAYERS),
    ("decode/array.rs", "ld.relaxed.gpu.u64 global", "weak", OTHERWISE),
    ("decode/attention.rs", "bar.sync", "removed", ARRIVAL),
    ("decode/linear.rs", "bar.sync", "one warp fewer", ONE_GROUP),
    ("decode/linear.rs", "bar.sync", "only arrives", ONE_GROUP),
    ("decode/linear.rs", "bar.sync", "removed", ONE_GROUP),
    ("decode/linear.rs", "st.relaxed.gpu.f32 global", "weak", LAYERS),
    ("decode/merge.rs", "atom.add.acq_rel.gpu.u32 global", "acquire", ARRIVAL),
    ("decode/merge.rs", "atom.add.acq_rel.gpu.u32 global", "release", ARRIVAL),
    ("decode/merge.rs", "ld.relaxed.gpu.f32 global", "weak", LAYERS),
    ("decode/merge.rs", "st.relaxed.gpu.f32 global", "weak", LAYERS),
    ("decode/merge.rs", "st.relaxed.gpu.u64 global", "weak", OTHERWISE),
    ("decode/qkv.rs", "st.relaxed.gpu.f32 global", "weak", LAYERS),
    ("kernel/advance.rs", "st.relaxed.sys.u32 global", "weak", HOST),
    ("kernel/advance.rs", "st.release.sys.u32 global", "relaxed", HOST),
    ("kernel/advance.rs", "st.release.sys.u32 global", "weak", HOST),
    ("kernel/consume.rs", "bar.sync", "removed", BEGIN),
    ("kernel/pages.rs", "ld.relaxed.gpu.s32 global", "weak", OTHERWISE),
    (
        "kernel/ring.rs",
        "mbarrier.try_wait shared",
        "does not wait",
        "the end of a launch that failed: the simulator lets a block end under a copy; a GPU does not",
    ),
    ("kernel/sync.rs", "ld.relaxed.cta.u32 shared", "weak", OWN),
    ("kernel/sync.rs", "ld.relaxed.sys.u32 global", "weak", HOST),
    ("kernel/sync.rs", "st.relaxed.cta.u32 shared", "weak", ELSEWHERE),
    ("kernel/sync.rs", "st.relaxed.gpu.u32 global", "weak", ELSEWHERE),
    ("kernel/sync.rs", "st.relaxed.sys.u32 global", "weak", HOST),
];

/// Healthy launches of each mutant, each under another seed.
const LAUNCHES: usize = 5;
const STEPS: usize = 2;
const ROWS: usize = 2;
const SMS: usize = 2;
const SPLITS: usize = 2;

fn fresh() -> DeviceMachine {
    let options = DeviceOptions {
        warps: 2,
        stage_bytes: 1024,
        stages: 2,
        in_flight: 1,
        sums_bytes: 256,
        split_tokens: 16,
        spin_limit: 1 << 11,
        ..DeviceOptions::default()
    };
    load(splitting(&least(), ROWS, SMS, SPLITS), &least(), 0, options)
}

/// What a launch leaves: tokens, and the bits of the last logits; or its report.
type Outcome = Result<(Vec<u32>, Vec<u32>), String>;

fn run(machine: &mut DeviceMachine) -> Outcome {
    until(machine, STEPS, &[])
}

fn until(machine: &mut DeviceMachine, steps: usize, ends: &[&[u32]]) -> Outcome {
    let (mut cells, mut tokens) = (Cells::at(machine.plan().rows as usize, 0), Vec::new());
    // The last row has tokens of two splits, the others of one.
    if let Some(last) = cells.positions.last_mut() {
        *last = 20;
    }
    let each = &mut |step: &[u32]| {
        tokens.extend_from_slice(step);
        ControlFlow::Continue(())
    };
    machine.run_until(&cells.view(), steps, ends, each).map_err(|error| chain(&error))?;
    let logits = machine.f32(LOGITS).map_err(|error| chain(&error))?;
    Ok((tokens, logits.into_iter().map(f32::to_bits).collect()))
}

/// Steps of a launch that ends before.
const MORE_STEPS: usize = 5;

/// A launch that ends since its rows do, row r at its token `ends[r]`, and a healthy one behind it.
fn ended(machine: &mut DeviceMachine, ends: &[u32]) -> [Outcome; 2] {
    let ends: Vec<&[u32]> = ends.chunks(1).collect();
    [until(machine, MORE_STEPS, &ends), run(machine)]
}

/// Tokens at which rows end, each the last that is new to its row: then some end before others.
fn ends(machine: &mut DeviceMachine) -> Vec<u32> {
    let rows = machine.plan().rows as usize;
    let tokens = until(machine, MORE_STEPS, &[]).unwrap().0;
    let of = |row: usize| tokens.iter().skip(row).step_by(rows).copied().take(MORE_STEPS - 1).collect::<Vec<_>>();
    let last_new = |row: Vec<u32>| (0..row.len()).rev().find(|&at| !row[..at].contains(&row[at])).map(|at| row[at]);
    (0..rows).map(|row| last_new(of(row)).unwrap()).collect()
}

/// What a launch with a fault reports, but for the values that depend on the moment.
fn suffer(machine: &mut DeviceMachine, fault: Option<DeviceFault>) -> String {
    match fault {
        Some(fault) => assert!(machine.inject(fault).unwrap()),
        None => machine.abort_handle().abort(),
    }
    let report = run(machine).err().unwrap_or_default();
    machine.mend().unwrap();
    machine.abort_handle().clear();
    report.split(" should reach").next().unwrap_or_default().to_owned()
}

/// Faults, and what a machine reports of them under any seed.
fn scenarios(machine: &mut DeviceMachine) -> Vec<(Option<DeviceFault>, Vec<String>)> {
    let find = |machine: &DeviceMachine, what: fn(&Op) -> bool| -> TaskId {
        machine.program().tasks.iter().find(|task| what(&task.op)).expect("the program has one").id
    };
    let chooses = find(machine, |op| matches!(op, Op::Argmax(_) | Op::Sample(_)));
    let embed = find(machine, |op| matches!(op, Op::Embed(_)));
    let faults = [
        Some(DeviceFault::Opcode { task: chooses, opcode: 99 }),
        Some(DeviceFault::Silent { task: embed }),
        Some(DeviceFault::Corrupt { block: 1, word: 3 }),
        None,
    ];
    let mut reports = |fault| (0..40).map(|_| suffer(machine, fault)).collect::<Vec<_>>();
    faults.into_iter().map(|fault| (fault, reports(fault))).collect()
}

/// What the machine does.
struct Right {
    healthy: Outcome,
    ends: Vec<u32>,
    ended: [Outcome; 2],
    scenarios: Vec<(Option<DeviceFault>, Vec<String>)>,
}

impl Right {
    fn new() -> Right {
        let mut machine = fresh();
        let healthy = run(&mut machine);
        assert!(healthy.is_ok(), "{healthy:?}");
        let ends = ends(&mut machine);
        let ended = ended(&mut machine, &ends);
        let tokens = &ended[0].as_ref().unwrap().0;
        let steps = tokens.len() / machine.plan().rows as usize;
        assert!(steps < MORE_STEPS && tokens.contains(&NO_TOKEN), "some rows end before others: {tokens:?}");
        assert_eq!(ended[1], healthy);
        Right { healthy, ends, ended, scenarios: scenarios(&mut machine) }
    }

    /// Whether a kernel is found out.
    fn finds_out(&self, kernel: &Kernel) -> bool {
        let Ok(kernel) = verify(kernel.clone()) else { return true };
        let mut machine = fresh();
        machine.replace_kernel(&kernel).is_err()
            || (0..LAUNCHES).any(|_| run(&mut machine) != self.healthy)
            || ended(&mut machine, &self.ends) != self.ended
            || self.scenarios.iter().any(|(fault, reports)| {
                !reports.contains(&suffer(&mut machine, *fault)) || run(&mut machine) != self.healthy
            })
    }

    /// The mutants that are not found out.
    fn survivors(&self, all: &[Mutant]) -> Vec<Mutant> {
        let (next, survivors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some(mutant) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if !self.finds_out(&mutant.kernel) {
                            survivors.lock().unwrap().push(mutant.clone());
                        }
                    }
                });
            }
        });
        let survivors = survivors.into_inner().unwrap();
        println!("killed {} of {}", all.len() - survivors.len(), all.len());
        survivors
    }
}

/// File, instruction and change: what entries of the ledger say.
fn entry(mutant: &Mutant) -> (String, String, String) {
    let file = mutant.src.file();
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let file = format!("{}/{name}", folder.rsplit('/').next().unwrap_or_default());
    let text = mutant.inst.split(" = ").last().unwrap_or_default().trim();
    let inst = text.split('[').next().unwrap_or_default();
    let inst = inst.split_whitespace().filter(|word| word.parse::<u64>().is_err()).collect::<Vec<_>>().join(" ");
    (file, inst, mutant.change.clone())
}

#[test]
fn choices_at_random_bring_no_synchronisation_of_their_own() {
    let machine = load(sampling(&least(), ROWS + 1, SMS), &least(), 0, super::lab::options());
    let all = mutants(&record(machine.plan()));
    let of = |file: &str| all.iter().filter(|mutant| mutant.src.file().ends_with(file)).count();
    assert!(of("sample/search.rs") > 0, "the kernel chooses");
    assert_eq!(of("decode/sample.rs"), 0);
}

#[test]
fn mutants_of_the_megakernel_are_found_out() {
    let right = Right::new();
    let kernel = record(fresh().plan());
    assert!(!right.finds_out(&kernel), "the kernel is found out without any change");
    let survivors = right.survivors(&mutants(&kernel));
    let mut kinds: BTreeMap<(String, String, String), Vec<u32>> = BTreeMap::new();
    for mutant in &survivors {
        kinds.entry(entry(mutant)).or_default().push(mutant.src.line());
    }
    for ((file, inst, change), lines) in &kinds {
        println!("(\"{file}\", \"{inst}\", \"{change}\", \"\"), {lines:?}");
    }
    let known =
        |file: &str, inst: &str, change: &str| EQUIVALENT.iter().any(|&(f, i, c, _)| (f, i, c) == (file, inst, change));
    let holes: Vec<_> = kinds.keys().filter(|(file, inst, change)| !known(file, inst, change)).collect();
    assert!(holes.is_empty(), "nothing finds these out: {holes:#?}");
    for &(file, inst, change, _) in EQUIVALENT {
        let key = (file.to_owned(), inst.to_owned(), change.to_owned());
        assert!(kinds.contains_key(&key), "found out after all: {key:?}");
    }
}
