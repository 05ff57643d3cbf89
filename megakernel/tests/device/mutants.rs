//! The mutation harness over the megakernel's synchronisation: an instruction removed or weakened must be found out.
//!
//! The kernel is that of the least model on two blocks with two warps each, and a launch has two steps, so that counters
//! go on, the ring wraps, and tokens are fed back. Every mutant runs a healthy launch under several seeds, one whose rows end,
//! and the ways in which a launch fails: an unknown opcode, a counter that nobody signals, tables that were written over.
//! Aborts are not among them: `faults` has them, under many seeds. Who finds it out: the verifier, the simulator (a fault), other tokens or logits, or another report.
//!
//! Choices at random are not in this kernel: all of their synchronisation is of the room `sample`, whose harness is in
//! `kernels/tests/small`.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;

use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::sim::HostOrder;
use tilewright_codegen::sim::mutate::{Equivalent, Survey, mutants};
use tilewright_codegen::verify::Verified;
use tilewright_megakernel::lower::LOGITS;
use tilewright_megakernel::program::{Argmax, Embed, Op, Sample, TaskId};
use tilewright_megakernel::vm::device::{DeviceFault, DeviceMachine, DeviceOptions, NO_TOKEN, record};

use super::lab::{Cells, chain, least, load, sampling, splitting, weights};

// Why mutants are not found out.
const SHOWN: &str = "the host reads tokens behind the steps that are released, and these order them";
const REPORT: &str = "the host reads a report when the launch is over";
const ONE_GROUP: &str = "of tasks whose units fit one group of sums, which never come here; found out in the others";
const OWN: &str = "thread 0 looks at what it alone writes; the producer's look is found out";
const ELSEWHERE: &str = "in a place where no scenario reports while another thread looks; found out in the others";
const UNSEEN: &str = "in a place where no scenario comes to look; found out in the others";
const LAYERS: &str = "what only a second layer overwrites; two layers on three blocks (of partial results: on eight, `merges`) race without it";
const START: &str = "before the block's first barrier, by one thread; nobody else looks before that";
const AHEAD: &str = "for producers that look ahead at pages, which is where no tokens come through the ring";
const OTHERWISE: &str =
    "in a place where another wait of the least model orders the same accesses; found out in the others";
const ARRIVAL: &str = "it orders partial results, relaxed atomics where their merge is tagged, which the simulator's blocks see at once; found out in kernels/tests/decode, where they are weak";

/// Mutants that nothing here can find out. An entry that nothing survives under is a failure too.
const EQUIVALENT: &[Equivalent] = &[
    Equivalent::new("tile/array.rs", "ld.relaxed.gpu.u32 global", "weak", LAYERS),
    Equivalent::new("tile/array.rs", "ld.relaxed.gpu.u64 global", "weak", OTHERWISE),
    Equivalent::new("split/device.rs", "bar.sync", "removed", ARRIVAL),
    Equivalent::new("linear/device.rs", "bar.sync", "one warp fewer", ONE_GROUP),
    Equivalent::new("linear/device.rs", "bar.sync", "only arrives", ONE_GROUP),
    Equivalent::new("linear/device.rs", "bar.sync", "removed", ONE_GROUP),
    Equivalent::new("linear/device.rs", "st.relaxed.gpu.f32 global", "weak", LAYERS),
    Equivalent::new("split/merge.rs", "atom.add.acq_rel.gpu.u32 global", "acquire", ARRIVAL),
    Equivalent::new("split/merge.rs", "atom.add.acq_rel.gpu.u32 global", "release", ARRIVAL),
    Equivalent::new("split/merge.rs", "ld.relaxed.gpu.f32 global", "weak", LAYERS),
    Equivalent::new("split/merge.rs", "st.relaxed.gpu.f32 global", "weak", LAYERS),
    Equivalent::new("linear/qkv.rs", "st.relaxed.gpu.f32 global", "weak", LAYERS),
    Equivalent::new("kernel/advance.rs", "st.relaxed.gpu.s32 global", "weak", AHEAD),
    Equivalent::new("kernel/advance.rs", "st.relaxed.sys.u32 global", "weak", SHOWN),
    Equivalent::new("kernel/cells.rs", "ld.acquire.cta.u32 shared", "relaxed", OTHERWISE),
    Equivalent::new("kernel/cells.rs", "st.relaxed.cta.u32 shared", "weak", START),
    Equivalent::new("kernel/cells.rs", "st.release.cta.u32 shared", "relaxed", OTHERWISE),
    Equivalent::new("kernel/sync.rs", "ld.relaxed.cta.u32 shared", "weak", OWN),
    Equivalent::new("kernel/sync.rs", "ld.relaxed.gpu.u32 global", "weak", ELSEWHERE),
    Equivalent::new("kernel/sync.rs", "ld.relaxed.sys.u32 global", "weak", UNSEEN),
    Equivalent::new("kernel/sync.rs", "st.relaxed.cta.u32 shared", "weak", ELSEWHERE),
    Equivalent::new("kernel/sync.rs", "st.relaxed.gpu.u32 global", "weak", ELSEWHERE),
    Equivalent::new("kernel/sync.rs", "st.relaxed.sys.u32 global", "weak", REPORT),
];

/// Healthy launches of each mutant, each under another seed.
const LAUNCHES: usize = 5;
const STEPS: usize = 2;
const ROWS: usize = 2;
const SMS: usize = 2;
const SPLITS: usize = 2;

/// How the host looks at a launch: it sets the first of the status words for an abort, acquires the eighth, which counts steps, and
/// then reads the tokens of so many steps, from the seventeenth on.
fn host() -> HostOrder {
    let opens = |steps| 4 * 16..4 * (16 + steps * ROWS as u64);
    HostOrder::new("status", 4 * 7, Arc::new(opens)).atomic(0)
}

/// Of four stages two land, one for the stage that is held, while the producer waits for an empty one, so that a launch that
/// fails may end under a copy, and it runs ahead of what the team reads of a step. Tasks have more stages than are held.
fn fresh() -> DeviceMachine {
    let options = DeviceOptions {
        warps: 2,
        stage_bytes: 1024,
        stages: 4,
        hold: 1,
        sums_bytes: 256,
        split_tokens: 16,
        spin_limit: 1 << 11,
        ..DeviceOptions::default()
    };
    let simulated = Simulator::new(Options { sms: SMS as u32, host: Some(host()), ..Options::default() });
    let (program, weights) = (splitting(&least(), ROWS, SMS, SPLITS), weights(&least()));
    DeviceMachine::load(program, &weights, &simulated.device(), options, &mut |_, _| ()).unwrap()
}

/// What a launch leaves: tokens, and the bits of the last logits; or its report.
type Outcome = Result<(Vec<u32>, Vec<u32>), String>;

fn run(machine: &mut DeviceMachine) -> Outcome {
    until(machine, STEPS, &[])
}

fn until(machine: &mut DeviceMachine, steps: usize, ends: &[&[u32]]) -> Outcome {
    let (mut cells, mut tokens) = (Cells::at(machine.plan().rows as usize, 0), Vec::new());
    // The last row has tokens of two splits, the others of one, and fills a page that later steps stream.
    if let Some(last) = cells.positions.last_mut() {
        *last = 29;
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
fn suffer(machine: &mut DeviceMachine, fault: DeviceFault) -> String {
    assert!(machine.inject(fault).unwrap());
    let report = run(machine).err().unwrap_or_default();
    machine.mend().unwrap();
    report.split(" should reach").next().unwrap_or_default().to_owned()
}

/// Faults, and what a machine reports of them under any seed.
fn scenarios(machine: &mut DeviceMachine) -> Vec<(DeviceFault, Vec<String>)> {
    let find = |machine: &DeviceMachine, what: fn(&Op) -> bool| -> TaskId {
        machine.program().tasks.iter().find(|task| what(&task.op)).expect("the program has one").id
    };
    let chooses = find(machine, |op| op.is::<Argmax>() || op.is::<Sample>());
    let embed = find(machine, |op| op.is::<Embed>());
    let faults = [
        DeviceFault::Opcode { task: chooses, opcode: 99 },
        DeviceFault::Silent { task: embed },
        DeviceFault::Corrupt { block: 1, word: 3 },
    ];
    let mut reports = |fault| (0..40).map(|_| suffer(machine, fault)).collect::<Vec<_>>();
    let scenarios = faults.map(|fault| (fault, reports(fault)));
    // What the simulator reports of the machine itself is no way to fail.
    let told = scenarios.iter().flat_map(|(_, reports)| reports).find(|report| report.contains("the device failed"));
    assert_eq!(told, None);
    scenarios.into()
}

/// What the machine does.
struct Right {
    healthy: Outcome,
    ends: Vec<u32>,
    ended: [Outcome; 2],
    scenarios: Vec<(DeviceFault, Vec<String>)>,
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

    /// What finds a kernel out.
    fn finds_out(&self, kernel: &Verified) -> Option<String> {
        let mut machine = fresh();
        if machine.replace_kernel(kernel).is_err() {
            return Some("refused".into());
        }
        let healthy = |machine: &mut DeviceMachine| match run(machine) {
            Err(report) => Some(report.lines().next().unwrap_or_default().to_owned()),
            outcome if outcome != self.healthy => Some("other tokens or logits".into()),
            _ => None,
        };
        let failing = |machine: &mut DeviceMachine| {
            self.scenarios.iter().find_map(|(fault, reports)| {
                let report = suffer(machine, *fault);
                if reports.contains(&report) { healthy(machine) } else { Some(format!("another report: {report}")) }
            })
        };
        (0..LAUNCHES)
            .find_map(|_| healthy(&mut machine))
            .or_else(|| (ended(&mut machine, &self.ends) != self.ended).then(|| "another end".into()))
            .or_else(|| failing(&mut machine))
    }
}

#[test]
fn choices_at_random_bring_no_synchronisation_of_their_own() {
    let machine = load(sampling(&least(), ROWS + 1, SMS), &least(), 0, super::lab::options());
    let all = mutants(&record(machine.plan()));
    let of = |file: &str| all.iter().filter(|mutant| mutant.src.file().ends_with(file)).count();
    assert!(of("sample/search.rs") > 0, "the kernel chooses");
    assert_eq!(of("sample/tiles.rs"), 0);
}

#[test]
fn mutants_of_the_megakernel_are_found_out() {
    let right = Right::new();
    let judge = |kernel: &Arc<Verified>| Ok::<_, Infallible>(right.finds_out(kernel));
    let survey = Survey::of(&record(fresh().plan()), EQUIVALENT, judge);
    survey.unwrap_or_else(|never| match never {}).expect_no_holes();
}
