//! A model on devices of several processes: each has its shard alone, and the host adds up what
//! simulated devices have. The processes are threads here.

use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use tilewright_megakernel::model::Architecture;
use tilewright_megakernel::testing::{Rng, small_mixtures};
use tilewright_megakernel::vm::graph::{Exchange, GraphShard, GraphWeights, Summand};
use tilewright_megakernel::vm::{LaunchError, LoadError};

use super::devices::{PAGES_OF, devices, drawn, peers_by, planned, small, step};
use super::lab::{Rows, device, gemma2, prompt, random};
use tilewright_codegen::ir::Arch;

/// The place where threads add up, in the order of devices.
struct Meeting {
    barrier: Barrier,
    parts: Vec<Mutex<Option<Summand>>>,
}

impl Meeting {
    fn new(count: usize) -> Meeting {
        Meeting { barrier: Barrier::new(count), parts: (0..count).map(|_| Mutex::default()).collect() }
    }

    fn add(&self, device: usize, own: &mut Summand) {
        *self.parts[device].lock().unwrap() = Some(own.clone());
        self.barrier.wait();
        let mut parts = self.parts.iter().map(|part| part.lock().unwrap().clone().expect("all are there"));
        let mut total = parts.next().expect("a device");
        parts.for_each(|part| total.add(part.values()));
        own.set(total.values());
        // No thread brings the next part before all have read these.
        self.barrier.wait();
    }
}

fn shard(spec: &impl Architecture, [rows, count]: [usize; 2], at: usize, seed: u64) -> Result<GraphShard, LoadError> {
    let mut weights = GraphWeights::new(device(Arch::Sm90a, seed), Arc::new(random(spec)));
    weights.shard(planned(spec, [rows, count], false), at, None, &mut |_, _| ())
}

/// The logits of steps: those of each device's part of the vocabulary, one after the other.
fn by_shards(
    spec: &(impl Architecture + Sync),
    [rows, count]: [usize; 2],
    steps: &[Rows],
    seed: u64,
) -> Vec<Vec<Vec<f32>>> {
    let meeting = Meeting::new(count);
    let run = |at: usize| {
        let mut machine = shard(spec, [rows, count], at, seed + at as u64).unwrap();
        let of_step = |step: &Rows| {
            let step = step.clone().idle(rows);
            let add = &mut |own: &mut Summand| {
                meeting.add(at, own);
                Ok::<(), LaunchError>(())
            };
            machine.step_by_host(&step.view(), add).unwrap();
            let mut logits = Vec::new();
            machine.logits(&step.active(), &mut |_, row| logits.push(row.to_vec())).unwrap();
            logits
        };
        steps.iter().map(of_step).collect::<Vec<_>>()
    };
    let parts: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|at| {
                let run = &run;
                scope.spawn(move || run(at))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let of_row =
        |step: usize, row: usize| parts.iter().flat_map(move |part: &Vec<Vec<Vec<f32>>>| part[step][row].clone());
    (0..steps.len()).map(|at| (0..parts[0][at].len()).map(|row| of_row(at, row).collect()).collect()).collect()
}

/// Bit for bit what the devices of one process compute by NCCL's order of sums.
fn agrees(spec: &(impl Architecture + Sync), size: [usize; 2], steps: &[Rows], seed: u64) {
    let [rows, count] = size;
    let found = by_shards(spec, size, steps, seed);
    let mut machine = peers_by(Exchange::Nccl, &devices(seed, count), spec, rows, false);
    for (at, (rows, found)) in steps.iter().zip(found).enumerate() {
        assert!(step(&mut machine, rows) == found, "step {at} on {count} devices, seed {seed}");
    }
}

/// Steps of two sequences: a chunk of each prompt, then tokens of both, and of one.
fn drawn_steps(rng: &mut Rng, rows: usize) -> Vec<Rows> {
    let mut lengths = [0, 0];
    let all = [0, 1].map(|at| prompt(100, at + rng.below(50) as i32));
    let chunks = [rng.within(1, rows - 1), rng.within(1, rows - 1)];
    let mut steps = Vec::new();
    for tokens in [[chunks[0], 0], [1, chunks[1]], [1, 1], [0, 1], [1, 1]] {
        let mut rows = Rows::default();
        for (at, count) in tokens.into_iter().enumerate() {
            rows.add(&all[at][lengths[at]..lengths[at] + count], lengths[at], &PAGES_OF[at]);
            lengths[at] += count;
        }
        steps.push(rows);
    }
    steps
}

/// `TILEWRIGHT_LONG` in the environment: 60 models instead of four.
#[test]
fn shards_of_random_models_have_the_bits_of_devices_of_one_process() {
    let models = if std::env::var_os("TILEWRIGHT_LONG").is_some() { 60 } else { 4 };
    let mut rng = Rng::new(2611);
    for at in 0..models {
        let count = [2, 4, 3, 8][at % 4];
        let spec = drawn(&mut rng, count);
        let rows = [17, 24, 32][rng.below(3)];
        let steps = drawn_steps(&mut rng, rows);
        println!("{count} devices, {rows} rows, {spec:?}");
        agrees(&spec, [rows, count], &steps, rng.below(1000) as u64);
    }
}

/// `TILEWRIGHT_LONG` in the environment: three mixtures besides.
#[test]
fn shards_of_gemma_2_and_of_mixtures_have_the_bits_of_devices_of_one_process() {
    let mut rows = Rows::default();
    rows.add(&prompt(12, 5), 0, &PAGES_OF[0]);
    let steps = [rows];
    agrees(&gemma2(64), [17, 2], &steps, 3);
    let mixtures = if std::env::var_os("TILEWRIGHT_LONG").is_some() { 3 } else { 0 };
    for (seed, spec) in (57..).zip(small_mixtures(64)).take(mixtures) {
        agrees(&spec, [17, 2], &steps, seed);
    }
}

/// A shard has the pools of its device alone, which a wider machine of it shares.
#[test]
fn pools_are_those_of_one_device_and_shared_by_its_machines() {
    let spec = small(32).layers(1);
    let mut weights = GraphWeights::new(device(Arch::Sm90a, 0), Arc::new(random(&spec)));
    let mut made = |rows, kv| weights.shard(planned(&spec, [rows, 2], false), 1, kv, &mut |_, _| ());
    let first = made(17, None).unwrap();
    let second = made(32, Some(first.kv())).unwrap();
    let whole = peers_by(Exchange::Nccl, &devices(0, 2), &spec, 17, false);
    assert_eq!((2 * first.kv().bytes(), first.kv().bytes()), (whole.kv().bytes(), second.kv().bytes()));
}

/// NCCL adds up one sum between two norms, and shared experts are a second.
#[test]
fn a_mixture_with_shared_experts_is_refused_by_the_name_of_the_sum() {
    let spec = small_mixtures(64).pop().expect("mixtures");
    let error = shard(&spec, [17, 2], 0, 0).err().expect("no launches add that up");
    assert!(matches!(&error, LoadError::Unsupported(_)) && error.to_string().contains("shared.down.sum"), "{error}");
}

#[test]
fn a_device_that_the_step_has_not_is_refused_and_so_is_a_step_of_one() {
    let spec = small(32).layers(1);
    let refused = |size, at| match shard(&spec, size, at, 0) {
        Ok(_) => panic!("there is no such shard"),
        Err(error) => error,
    };
    assert!(matches!(refused([17, 2], 2), LoadError::Devices { wanted: 2, found: 3 }));
    assert!(matches!(refused([17, 1], 0), LoadError::Devices { wanted: 1, found: 1 }));
}

/// Cells that do not fit are refused before any device adds up: the others would wait.
#[test]
fn cells_that_do_not_fit_are_refused_before_a_sum() {
    let mut machine = shard(&small(32).layers(1), [17, 2], 0, 0).unwrap();
    let mut rows = Rows::default();
    rows.add(&[1], 0, &PAGES_OF[0]);
    let rows = rows.idle(16);
    let add = &mut |_: &mut Summand| -> Result<(), LaunchError> { panic!("nothing runs") };
    assert!(machine.step_by_host(&rows.view(), add).is_err());
    assert!(machine.check(&rows.view()).is_err());
}
