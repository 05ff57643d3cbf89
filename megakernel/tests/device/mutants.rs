//! The mutation harness over the megakernel's synchronisation: an instruction removed or weakened must be found out.
//!
//! The kernel is that of the least model on two blocks with two warps each, and a launch has two steps, so that counters
//! go on, the ring wraps, and tokens are fed back. Every mutant runs a healthy launch under several seeds, and the ways
//! in which a launch fails: an unknown opcode, a counter that nobody signals, tables that were written over, an abort. Who
//! finds it out: the verifier, the simulator (a fault), other tokens or logits, or another report.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tilewright_codegen::sim::mutate::{Mutant, mutants};
use tilewright_codegen::verify::verify;
use tilewright_megakernel::lower::LOGITS;
use tilewright_megakernel::program::{Op, TaskId};
use tilewright_megakernel::vm::device::{DeviceFault, DeviceMachine, DeviceOptions, record};

use super::lab::{Cells, chain, device, least, placed, weights};

// Why mutants are not found out.
const HOST: &str = "the simulator exchanges mapped words when a launch is over, so the host sees no order in them (docs/device.md); a GPU needs it";
const ONE_GROUP: &str = "of tasks whose units fit one group of sums, which never come here; found out in the others";
const OWN: &str = "thread 0 looks at what it alone writes; the producer's look is found out";
const ELSEWHERE: &str = "in a place where no scenario reports while another thread looks; found out in the others";
const LAYERS: &str = "what only a second layer overwrites; two layers on three blocks race without it";
const OTHERWISE: &str =
    "in a place where another wait of the least model orders the same accesses; found out in the others";

/// Mutants that nothing here can find out: the author's file, the instruction, what was done, and why. An entry that
/// nothing survives under is a failure too.
const EQUIVALENT: &[(&str, &str, &str, &str)] = &[
    ("decode/array.rs", "ld.relaxed.gpu.u32 global", "weak", LAYERS),
    ("decode/array.rs", "ld.relaxed.gpu.u64 global", "weak", OTHERWISE),
    ("decode/attention.rs", "bar.sync", "removed", "the team meets behind every task anyway"),
    ("decode/attention.rs", "st.relaxed.gpu.f32 global", "weak", LAYERS),
    ("decode/input.rs", "ld.relaxed.gpu.f32 global", "weak", LAYERS),
    ("decode/linear.rs", "bar.sync", "one warp fewer", ONE_GROUP),
    ("decode/linear.rs", "bar.sync", "only arrives", ONE_GROUP),
    ("decode/linear.rs", "bar.sync", "removed", ONE_GROUP),
    ("decode/linear.rs", "st.relaxed.gpu.f32 global", "weak", LAYERS),
    ("decode/qkv.rs", "st.relaxed.gpu.f32 global", "weak", LAYERS),
    ("kernel/advance.rs", "st.relaxed.sys.u32 global", "weak", HOST),
    ("kernel/advance.rs", "st.release.sys.u32 global", "relaxed", HOST),
    ("kernel/advance.rs", "st.release.sys.u32 global", "weak", HOST),
    ("kernel/pages.rs", "ld.relaxed.gpu.s32 global", "weak", OTHERWISE),
    (
        "kernel/ring.rs",
        "mbarrier.try_wait shared",
        "does not wait",
        "the end of a launch that failed: the simulator lets a block end under a copy; a GPU does not",
    ),
    ("kernel/sync.rs", "ld.relaxed.cta.u32 shared", "weak", OWN),
    ("kernel/sync.rs", "ld.relaxed.gpu.u32 global", "weak", ELSEWHERE),
    ("kernel/sync.rs", "ld.relaxed.sys.u32 global", "weak", HOST),
    ("kernel/sync.rs", "st.relaxed.cta.u32 shared", "weak", ELSEWHERE),
    ("kernel/sync.rs", "st.relaxed.gpu.u32 global", "weak", ELSEWHERE),
    ("kernel/sync.rs", "st.relaxed.sys.u32 global", "weak", HOST),
];

/// Healthy launches of each mutant, each under another seed.
const LAUNCHES: usize = 3;
/// Launches with each fault, each under another seed.
const SUFFERINGS: usize = 3;
const STEPS: usize = 2;
const ROWS: usize = 2;
const SMS: usize = 2;

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
    let spec = least();
    DeviceMachine::load(placed(&spec, ROWS, SMS), &weights(&spec), &device(0, SMS), options, &mut |_, _| ()).unwrap()
}

/// What a launch leaves: tokens, and the bits of the last logits; or its report.
type Outcome = Result<(Vec<u32>, Vec<u32>), String>;

fn run(machine: &mut DeviceMachine) -> Outcome {
    let tokens = machine.run(&Cells::at(ROWS, 0).view(), STEPS).map_err(|error| chain(&error))?;
    let logits = machine.f32(LOGITS).map_err(|error| chain(&error))?;
    Ok((tokens, logits.into_iter().map(f32::to_bits).collect()))
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
    let argmax = find(machine, |op| matches!(op, Op::Argmax(_)));
    let embed = find(machine, |op| matches!(op, Op::Embed(_)));
    let faults = [
        Some(DeviceFault::Opcode { task: argmax, opcode: 99 }),
        Some(DeviceFault::Silent { task: embed }),
        Some(DeviceFault::Corrupt { block: 1, word: 3 }),
        None,
    ];
    let mut reports = |fault| (0..12).map(|_| suffer(machine, fault)).collect::<Vec<_>>();
    faults.into_iter().map(|fault| (fault, reports(fault))).collect()
}

/// Whether a mutant is found out.
fn found_out(mutant: &Mutant, right: &Outcome, scenarios: &[(Option<DeviceFault>, Vec<String>)]) -> bool {
    let Ok(kernel) = verify(mutant.kernel.clone()) else { return true };
    let mut machine = fresh();
    if machine.replace_kernel(&kernel).is_err() || (0..LAUNCHES).any(|_| run(&mut machine) != *right) {
        return true;
    }
    (0..SUFFERINGS)
        .flat_map(|_| scenarios)
        .any(|(fault, reports)| !reports.contains(&suffer(&mut machine, *fault)) || run(&mut machine) != *right)
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
fn mutants_of_the_megakernel_are_found_out() {
    let mut machine = fresh();
    let right = run(&mut machine);
    assert!(right.is_ok(), "{right:?}");
    let scenarios = scenarios(&mut machine);
    let all = mutants(&record(machine.plan()));
    let (next, survivors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(mutant) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !found_out(mutant, &right, &scenarios) {
                        survivors.lock().unwrap().push(mutant.clone());
                    }
                }
            });
        }
    });
    let survivors = survivors.into_inner().unwrap();
    println!("killed {} of {}", all.len() - survivors.len(), all.len());
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
