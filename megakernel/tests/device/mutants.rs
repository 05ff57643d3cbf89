//! The mutation harness over the megakernel's synchronisation: an instruction removed or weakened
//! must be found out.
//!
//! The kernel is that of the least model on two blocks with two warps each, and a launch has two
//! steps, so that counters go on, the ring wraps, and tokens are fed back. Every mutant runs
//! healthy launches under several seeds, one whose rows end, and the ways in which a launch fails:
//! an unknown opcode, a counter that no task signals, tables that were written over, a block that
//! does not come, an abort. Who finds it out: the verifier, the simulator (a fault), other tokens
//! or logits, or another report. What survives there runs as it is recorded for other programs,
//! which come to the places that the least one does not (`Recording`).
//!
//! Choices at random are not in this kernel: all of their synchronisation is of the room `sample`,
//! whose harness is in `kernels/tests/small`.

mod launches;

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tilewright_codegen::ir::Kernel;
use tilewright_codegen::sample::Sample;
use tilewright_codegen::sim::mutate::{Equivalent, Mutant, Survey, mutants};
use tilewright_codegen::verify::{Verified, verify};
use tilewright_megakernel::ops::{self, Argmax, Embed, Route};
use tilewright_megakernel::program::{Op, Task, TaskId};
use tilewright_megakernel::testing::small_family;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{DeviceFault, DeviceOptions, record};

use self::launches::{Launch, Recording};
use super::devices::shared;
use super::lab::{least, load, sampling, splitting};

// Why mutants are not found out.
const SHOWN: &str = "the host reads tokens after the steps that are released, and these order them";
const OWN: &str = "thread 0 looks at what it alone writes; the producer's look is found out";
const START: &str = "before the block's first barrier, by one thread; no other thread reads it before that";
const OPENED: &str = "where a block waits for a step to begin: block 0, which alone looks at the host's word, opened the step itself and never waits for it";
const UNSEEN: &str = "at the start, as the words of `cells`; where tables are wrong, whose block runs neither consumers nor producer; and where block 0 would hear an abort while it waits for a step that it opened itself";
const LOGITS: &str = "a logit is stored by the same thread in every step; within a launch only tasks that draw read it, after a counter that is released";

/// Mutants that nothing can find out, and how many: an entry under which another number survives is
/// a failure too.
const EQUIVALENT: &[Equivalent] = &[
    Equivalent::new("gemv/task/linear.rs", "st.relaxed.gpu.f32 global", "weak", LOGITS).times(1),
    Equivalent::new("kernel/advance.rs", "st.relaxed.sys.u32 global", "weak", SHOWN).times(1),
    Equivalent::new("kernel/cells.rs", "st.relaxed.cta.u32 shared", "weak", START).times(2),
    Equivalent::new("kernel/sync.rs", "ld.relaxed.cta.u32 shared", "weak", OWN).times(11),
    Equivalent::new("kernel/sync.rs", "ld.relaxed.sys.u32 global", "weak", OPENED).times(1),
    Equivalent::new("kernel/sync.rs", "st.relaxed.cta.u32 shared", "weak", UNSEEN).times(3),
    Equivalent::new("kernel/sync.rs", "st.relaxed.gpu.u32 global", "weak", OPENED).times(1),
];

/// Shape of the least program: of its rows, blocks and splits the fewest that race.
const ROWS: usize = 2;
const SMS: usize = 2;
const SPLITS: usize = 2;

/// The first task that does this, in the order of the program.
fn task(program: &Placed, what: fn(&Op) -> bool) -> TaskId {
    program.tasks.iter().find(|task| what(&task.op)).expect("the program has one").id
}

fn chooses(op: &Op) -> bool {
    op.is::<Argmax>() || op.is::<ops::Sample>()
}

/// Of four stages two land, one for the prefetched stage, while the producer waits for an empty
/// one, so that a launch that fails may end under a copy, and it runs ahead of what the consumers
/// read of a step. Tasks have more stages than are prefetched.
fn options() -> DeviceOptions {
    DeviceOptions {
        warps: 2,
        stage_bytes: 1024,
        prefetch_stages: 1,
        split_tokens: 16,
        polls: 1 << 10,
        ..DeviceOptions::default()
    }
    .with_thresholds(|limits| {
        limits.stages = 4;
        limits.sums_bytes = 256;
        limits.single_tokens = 0;
    })
}

/// The least model on two blocks. The last row has tokens of two splits, the others of one, and
/// fills a page that later steps stream. All wait for signals, whose failures the launches have;
/// tasks that poll without a semaphore are in surveys of their own.
fn least_one() -> Recording {
    let program = splitting(&least(), ROWS, SMS, SPLITS);
    let chooses = task(&program, chooses);
    let embed = task(&program, |op| op.is::<Embed>());
    let opcode = Launch::fault(DeviceFault::Opcode { task: chooses, opcode: 99 });
    let silent = Launch::fault(DeviceFault::Silent { task: embed });
    let corrupt = Launch::fault(DeviceFault::Corrupt { block: 1, word: 3 });
    // After attention or queries, a block waits for the end of the step or the next one before the
    // other waits for anything.
    let quits = [(1, 4), (0, 2)].map(|(block, after)| Launch::fault(DeviceFault::Quits { block, after }));
    // The opcode's block gives up while its producer looks, or before it does: more than one order
    // of the two, as of blocks that quit.
    let failing = [&[silent.aborted(0), corrupt][..], &quits, &[opcode; 4], &[silent; 3], &quits, &quits].concat();
    // Rows that are idle from a step on, in more than one order.
    let ends = [Launch::WELL, Launch::ENDS, Launch::ENDS, Launch::ENDS];
    let launches = [&[Launch::WELL; 5], &[Launch::ENDS][..], &failing, &ends].concat();
    Recording::new("least", &least(), program, DeviceOptions { skip_semaphores: false, ..counted() }, launches)
}

/// Options by which splits are released and counted. Those that are packets are in the survey of
/// tasks that poll without a semaphore.
fn counted() -> DeviceOptions {
    DeviceOptions { merge_packets: false, ..options() }
}

/// A program on twelve blocks, of which block 0 embeds, multiplies and waits for nothing but the
/// end of the step, while its producer runs ahead. The second split of attention has no tokens in
/// the ring, and comes last in its block.
fn early() -> Recording {
    let spec = least().hidden(16).inner(16).vocab(16).heads(4, 1);
    let program = splitting(&spec, 1, 12, SPLITS);
    let opcodes = program.queues()[0].iter().map(|task| program.tasks[task.index()].op.name());
    assert_eq!(opcodes.collect::<Vec<_>>(), ["embed", "qkv"]);
    let chooses = task(&program, chooses);
    // In more than one order, as block 0 may see the other's report before it waits.
    let opcode = Launch::fault(DeviceFault::Opcode { task: chooses, opcode: 99 });
    let at_start = Launch::WELL.aborted(0);
    let later = Launch::WELL.aborted(1);
    let launches = vec![Launch::WELL, later, at_start, later, opcode, opcode, opcode, opcode];
    Recording::new("early", &spec, program, DeviceOptions { skip_semaphores: false, ..counted() }, launches)
}

/// Two layers whose splits of attention are on blocks of their own, which have no part in the
/// queries of the second: nothing but what the packets say orders what the layers read and write.
/// Of the numbers of blocks the least that keeps them apart.
fn wide(rows: usize, options: DeviceOptions, launches: fn(&Placed) -> Vec<Launch>) -> Recording {
    let spec = least().layers(2).vocab(16 * rows);
    let apart = |program: &Placed| {
        let has =
            |queue: &[TaskId], label: &str| queue.iter().any(|id| program.tasks[id.index()].label.starts_with(label));
        let first = |queue: &&Vec<TaskId>| has(queue, "layers.0.attention");
        let both = |queue: &Vec<TaskId>| has(queue, "layers.1.qkv") || has(queue, "layers.1.attention");
        let queues = program.queues();
        queues.iter().filter(first).count() >= SPLITS && !queues.iter().filter(first).any(both)
    };
    let program = (12..48).map(|sms| splitting(&spec, rows, sms, SPLITS)).find(apart);
    let program = program.expect("some number of blocks keeps them apart");
    let launches = launches(&program);
    Recording::new("wide", &spec, program, options, launches)
}

/// The wide program of one row, whose tasks poll all packets, in a ring of two stages, full of
/// weights where keys and values are to come.
fn polling() -> Recording {
    wide(1, options().with_thresholds(|limits| limits.stages = 2), looking)
}

/// Launches in which the packets of tasks of a name do not come, one for each, until the host wants
/// the end.
fn without(program: &Placed, label: &str) -> Vec<Launch> {
    let tasks = program.tasks.iter().filter(|task| task.label.starts_with(label));
    tasks.map(|task| Launch::fault(DeviceFault::Stale { task: task.id }).aborted(0)).collect()
}

/// Launches of one row, whose tasks look for all packets: idle ones too, and some in which those of
/// a task do not come.
fn looking(program: &Placed) -> Vec<Launch> {
    let qkv = without(program, "layers.0.qkv");
    let idle: Vec<Launch> = qkv.iter().map(|launch| launch.idle()).collect();
    let others = ["embed", "layers.0.attention", "layers.0.o", "layers.0.gate_up", "layers.0.down", "layers.1.down"];
    let others = others.map(|label| without(program, label)[0]);
    let last = others.map(|launch| Launch { steps: 1, ..launch });
    [&[Launch::WELL, Launch::IDLE][..], &qkv, &others, &idle, &last].concat()
}

/// No packets, no tokens in the ring, and tasks of more strips than a group of sums has.
fn plain() -> Recording {
    let spec = least().hidden(64).inner(64);
    let program = splitting(&spec, ROWS, SMS, SPLITS);
    let options = DeviceOptions { packets: false, stream_tokens: false, ..counted() };
    Recording::new("plain", &spec, program, options, vec![Launch::WELL])
}

#[test]
fn choices_at_random_bring_no_synchronisation_of_their_own() {
    let machine = load(sampling(&least(), ROWS + 1, SMS), &least(), 0, super::lab::options());
    let all = mutants(&record(machine.plan()));
    let of = |file: &str| all.iter().filter(|mutant| mutant.src.file().ends_with(file)).count();
    assert!(of("sample/search.rs") > 0, "the kernel chooses");
    assert_eq!(of("sample/tiles.rs"), 0);
}

/// A tenth of the mutants; with `TILEWRIGHT_LONG` in the environment all of them, as the numbers of
/// the ledger are.
#[test]
fn mutants_of_the_megakernel_are_found_out() {
    let recordings = [least_one(), early(), wide(ROWS, counted(), |_| vec![Launch::WELL]), plain()];
    let [first, others @ ..] = &recordings;
    let others: Vec<_> = others.iter().map(|recording| recording.kernel().clone()).collect();
    let judge = |number: usize, kernel: &Arc<Verified>| Ok::<_, Infallible>(recordings[number].finds_out(kernel));
    let survey = Survey::of_recordings(first.kernel(), &others, Sample::one_of(10), EQUIVALENT, judge);
    survey.unwrap_or_else(|never| match never {}).expect_no_holes();
}

/// Two devices of two SMs: what one stores for the other, results of the second on the first, the
/// next step opened on both.
///
/// A block that looks for packets of the other device times out only after more polls.
fn two_devices(options: DeviceOptions) -> Recording {
    let options = DeviceOptions { polls: 1 << 12, ..options };
    let spec = least().hidden(16).inner(16);
    let program = shared(&spec, ROWS, 2, SMS, false);
    let embed = task(&program, |op| op.is::<Embed>());
    let silent = Launch::fault(DeviceFault::Silent { task: embed });
    let leaves = Launch::fault(DeviceFault::Leaves { device: 1, after: 3 });
    let launches = [&[Launch::WELL; 4][..], &[Launch::ENDS, silent, leaves], &[Launch::WELL; 2]].concat();
    Recording::new("two devices", &spec, program, options, launches)
}

/// Two devices where packets do not come although one has signalled them: others time out, or the
/// host aborts.
fn packets_missing() -> Recording {
    let options = DeviceOptions { polls: 1 << 10, ..options() };
    let spec = least().hidden(16).inner(16);
    let program = shared(&spec, ROWS, 2, SMS, false);
    let of = |label: &str| {
        let is = |task: &&Task| task.label.starts_with(label) && !task.label.contains("sum");
        let stale = |task: &Task| Launch::fault(DeviceFault::Stale { task: task.id });
        program.tasks.iter().filter(is).map(stale).collect::<Vec<_>>()
    };
    let [embed, o, down] = ["embed", "layers.0.o.", "layers.0.down."].map(of);
    let aborted = embed[0].aborted(0);
    let launches = [vec![Launch::WELL], embed, vec![Launch::WELL], o, down, vec![aborted, Launch::WELL]].concat();
    Recording::new("packets missing", &spec, program, options, launches)
}

/// Checks that nothing but the ledger's mutants of some instructions goes unnoticed: file,
/// instruction and change of each. A sixth of the mutants; with `TILEWRIGHT_LONG` in the
/// environment all of them, and those of the ledger are exactly the rest.
fn only_these_survive(recording: &Recording, of: impl Fn(&Mutant) -> bool, ledger: &[&str]) {
    let verified = |kernel: Kernel| verify(kernel).ok().map(Arc::new);
    let itself = verified(recording.kernel().clone()).expect("it verifies");
    assert_eq!(recording.finds_out(&itself), None);
    let all: Vec<Mutant> = mutants(recording.kernel()).into_iter().filter(of).collect();
    assert!(!all.is_empty(), "there is something to find out");
    let sample = Sample::one_of(6);
    let all = sample.of(&all);
    let next = AtomicUsize::new(0);
    let left = Mutex::new(Vec::new());
    let judge = || {
        while let Some(mutant) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            if verified(mutant.kernel.clone()).is_some_and(|kernel| recording.finds_out(&kernel).is_none()) {
                let file = mutant.src.file().rsplit('/').next().unwrap_or_default().to_owned();
                let inst = mutant.inst.rsplit(" = ").next().unwrap_or_default();
                let inst = inst.split('[').next().unwrap_or_default().trim().to_owned();
                left.lock().unwrap().push(format!("{file}: {inst}: {}", mutant.change));
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(judge)));
    });
    let mut left = left.into_inner().unwrap();
    left.sort();
    println!("{} of {} mutants are found out", all.len() - left.len(), all.len());
    let mut expected = ledger.to_vec();
    let unnoticed: Vec<&String> = left.iter().filter(|mutant| !take(&mut expected, mutant)).collect();
    assert!(unnoticed.is_empty(), "nothing finds these out: {unnoticed:#?}");
    assert!(!sample.is_all() || expected.is_empty(), "these are found out: {expected:#?}");
}

/// Removes one of the entries that equal a text; whether there was one.
fn take(entries: &mut Vec<&str>, text: &str) -> bool {
    entries.iter().position(|entry| *entry == text).map(|at| entries.remove(at)).is_some()
}

/// Tables by sections, more than have room, of two blocks: what the producer and the consumers tell
/// each other.
#[test]
fn mutants_of_sections_are_found_out() {
    let spec = least().layers(7);
    let program = splitting(&spec, 1, SMS, 1);
    let options = DeviceOptions { table_bytes: 0, polls: 1 << 14, ..options() };
    // A block that stops at the task that begins a section has asked for the next.
    let begins = program.queues()[1][16];
    let launches = vec![Launch::WELL, Launch::WELL, Launch::fault(DeviceFault::Opcode { task: begins, opcode: 99 })];
    let recording = Recording::new("sections", &spec, program, options, launches);
    // Words before the block's first barrier; and that the producer has done with a section, which
    // stages of the ring order here, too.
    only_these_survive(
        &recording,
        |mutant| mutant.src.file().ends_with("kernel/sections.rs"),
        &[
            "sections.rs: st.relaxed.cta.u32 shared: weak",
            "sections.rs: st.relaxed.cta.u32 shared: weak",
            "sections.rs: st.release.cta.u32 shared: relaxed",
        ],
    );
}

/// Mutants of the flagged words by which one row's queries, keys and values are handed over; with
/// more rows there are none.
#[test]
fn mutants_of_the_newest_token_are_found_out() {
    let packets = |mutant: &Mutant| {
        let file = mutant.src.file();
        file.ends_with("task/qkv.rs") && mutant.inst.contains("global") || file.ends_with("tile/array.rs")
    };
    only_these_survive(&polling(), packets, &[]);
}

/// A mixture of two of four experts on two blocks: the producer waits for the choice, as flagged
/// words or released.
fn mixture(options: DeviceOptions) -> Recording {
    let own = serde_json::json!({
        "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": null,
        "intermediate_size": 16, "vocab_size": 32, "num_hidden_layers": 1,
    });
    let spec = small_family(8, &own);
    let program = splitting(&spec, ROWS, SMS, SPLITS);
    let route = task(&program, |op| op.is::<Route>());
    let silent = Launch::fault(DeviceFault::Silent { task: route });
    let launches = [&[Launch::WELL; 4][..], &[silent, silent.aborted(0)]].concat();
    Recording::new("mixture", &spec, program, options, launches)
}

/// Mutants of the barriers of the choice of experts, and of those after which slots are counted. The
/// kernel `route_slots` has a survey of its own; the producer's wait for the choice has none yet.
#[test]
fn mutants_of_the_choice_of_experts_are_found_out() {
    let of_choice = |mutant: &Mutant| {
        let file = mutant.src.file();
        let rooms = ["experts/route.rs", "functions/route.rs"];
        rooms.iter().any(|room| file.ends_with(room)) && mutant.inst.starts_with("bar")
    };
    only_these_survive(&mixture(options()), of_choice, &[]);
}

/// Mutants of a block's abort polling while it waits for flagged words that do not arrive: the
/// words that it polls, and the flags from its threads to the leader.
#[test]
fn mutants_of_leaving_are_found_out() {
    let leaves = |mutant: &Mutant| mutant.src.file().ends_with("sync/leave.rs");
    // The host's word, which block 0 alone looks at: it attends to nothing here, and never waits
    // for cells or with tokens to come.
    only_these_survive(
        &polling(),
        leaves,
        &["leave.rs: ld.relaxed.sys.u32 global: weak", "leave.rs: ld.relaxed.sys.u32 global: weak"],
    );
    // On two devices, which look for sums alone, places where a producer waits are not all come to;
    // those of one device are the same text.
    only_these_survive(
        &packets_missing(),
        leaves,
        &[
            "leave.rs: ld.relaxed.sys.u32 global: weak",
            "leave.rs: ld.relaxed.sys.u32 global: weak",
            "leave.rs: st.relaxed.cta.u32 shared: weak",
            "leave.rs: st.relaxed.cta.u32 shared: weak",
        ],
    );
}

/// Mutants of the exchange between devices: instructions of scope `.sys` that are not the host's.
/// Activations are flagged words if possible; otherwise there are counters, releases and step
/// inputs. The end of a launch by a report is the same code as on one device, whose survey covers
/// it.
#[test]
fn mutants_of_the_exchange_are_found_out() {
    let sys = |mutant: &Mutant| mutant.inst.contains(".sys");
    let packets = |mutant: &Mutant| sys(mutant) && !mutant.src.file().contains("vm/device/kernel");
    // A logit, as on one device.
    only_these_survive(&two_devices(options()), packets, &["linear.rs: st.relaxed.sys.f32 global: weak"]);
    let counters = ["red.", "ld.acquire", "st.relaxed.sys.s32"];
    let counts = |mutant: &Mutant| sys(mutant) && counters.iter().any(|inst| mutant.inst.contains(inst));
    let released = DeviceOptions { packets: false, stream_tokens: false, ..options() };
    // The end of a step: here the first block chooses, and has waited for the releases of all
    // logits. And a signal to the second device: those of the first device come after one of its
    // own, after which the simulator lets stores arrive.
    only_these_survive(
        &two_devices(released),
        counts,
        &[
            "sync.rs: ld.acquire.sys.u32 global: relaxed",
            "sync.rs: red.add.release.sys.u32 global: relaxed",
            "sync.rs: red.add.release.sys.u32 global: relaxed",
        ],
    );
}
