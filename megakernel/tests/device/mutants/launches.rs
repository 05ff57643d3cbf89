//! A recording of the megakernel, and the launches by which mutants of it are found out.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tilewright_codegen::device::sim::{self, Options};
use tilewright_codegen::ir::Kernel;
use tilewright_codegen::sim::HostOrder;
use tilewright_codegen::verify::Verified;
use tilewright_megakernel::lower::LOGITS;
use tilewright_megakernel::model::Architecture;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{DeviceFault, DeviceMachine, DeviceOptions, Plan, record};
use tilewright_megakernel::vm::{LaunchError, NO_TOKEN};
use tilewright_megakernel::weights::RandomWeights;

use crate::lab::{Cells, chain, weights};

/// The position at which the last row begins, the others at 0: in the second of its pages.
const LAST: i32 = 30;
/// Steps of a launch that fails: more than the producer runs ahead.
const AHEAD: usize = 6;

/// A launch, and how it ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Launch {
    /// Steps that are asked for.
    pub steps: usize,
    /// Whether rows end before.
    pub ends: bool,
    /// Whether all rows are idle.
    pub idle: bool,
    /// The fault of the tables.
    pub fault: Option<DeviceFault>,
    /// The steps after which the host asks for the end.
    pub abort: Option<u32>,
    /// The kind of report that it ends with; none where it ends well.
    pub report: Option<&'static str>,
}

impl Launch {
    /// A launch that ends well.
    pub const WELL: Launch = Launch { steps: 2, ends: false, idle: false, fault: None, abort: None, report: None };
    /// A launch that ends because its rows do, some before others.
    pub const ENDS: Launch = Launch { steps: 5, ends: true, ..Launch::WELL };
    /// A launch with idle rows.
    pub const IDLE: Launch = Launch { steps: 1, idle: true, ..Launch::WELL };

    /// A launch with a fault.
    pub fn fault(fault: DeviceFault) -> Launch {
        let report = match fault {
            DeviceFault::Opcode { .. } => "opcode",
            DeviceFault::Silent { .. }
            | DeviceFault::Quits { .. }
            | DeviceFault::Leaves { .. }
            | DeviceFault::Stale { .. } => "late",
            DeviceFault::Corrupt { .. } => "tables",
        };
        Launch { steps: AHEAD, fault: Some(fault), report: Some(report), ..Launch::WELL }
    }

    /// A launch whose rows are all idle.
    pub fn idle(self) -> Launch {
        Launch { idle: true, ..self }
    }

    /// A launch that the host aborts after `steps` steps.
    pub fn aborted(self, steps: u32) -> Launch {
        Launch { steps: AHEAD, abort: Some(steps), report: Some("aborted"), ..self }
    }
}

/// The outcome of a launch: tokens, and the bits of the last logits; or the kind of its report, or
/// the text of the machine's own error.
type Outcome = Result<(Vec<u32>, Vec<u32>), String>;

fn report(error: &LaunchError) -> String {
    match error {
        LaunchError::Opcode { .. } => "opcode".into(),
        LaunchError::Stuck { .. } | LaunchError::Blocks { .. } | LaunchError::Parts { .. } => "late".into(),
        LaunchError::Tables { .. } => "tables".into(),
        LaunchError::Aborted { .. } => "aborted".into(),
        error => chain(error).lines().next().unwrap_or_default().to_owned(),
    }
}

/// The kernel of a program, and what its launches do.
pub struct Recording {
    name: &'static str,
    program: Placed,
    weights: RandomWeights,
    options: DeviceOptions,
    kernel: Kernel,
    launches: Vec<Launch>,
    ends: Vec<u32>,
    well: Outcome,
    ended: Outcome,
    idle: Outcome,
}

/// A machine, and the steps after which its host asks for the end.
struct Subject {
    machine: DeviceMachine,
    abort: Arc<AtomicU32>,
}

impl Recording {
    /// Of a program of a model.
    pub fn new(
        name: &'static str,
        spec: &impl Architecture,
        program: Placed,
        options: DeviceOptions,
        launches: Vec<Launch>,
    ) -> Recording {
        let kernel = record(&Plan::new(&program, options).unwrap());
        let unknown = || Err(String::new());
        let well = unknown();
        let ended = unknown();
        let idle = unknown();
        let weights = weights(spec);
        let mut new =
            Recording { name, program, weights, options, kernel, launches, ends: Vec::new(), well, ended, idle };
        let mut subject = new.subject();
        new.well = new.run(&mut subject, Launch::WELL);
        assert!(new.well.is_ok(), "{name}: {:?}", new.well);
        if new.launches.iter().any(|launch| launch.idle) {
            new.idle = new.run(&mut subject, Launch::IDLE);
            assert!(new.idle.is_ok(), "{name}: {:?}", new.idle);
        }
        if !new.launches.iter().any(|launch| launch.ends) {
            return new;
        }
        new.ends = new.last_new(&mut subject);
        new.ended = new.run(&mut subject, Launch::ENDS);
        let tokens = &new.ended.as_ref().unwrap().0;
        let steps = tokens.len() / new.rows(&subject);
        assert!(steps < Launch::ENDS.steps && tokens.contains(&NO_TOKEN), "some rows end before others: {tokens:?}");
        new
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    fn rows(&self, subject: &Subject) -> usize {
        subject.machine.plan().rows as usize
    }

    /// A new machine, whose launches have the same seeds every time.
    fn subject(&self) -> Subject {
        let abort = Arc::new(AtomicU32::new(0));
        let rows = self.program.buffer_named(LOGITS).map_or(1, |logits| logits.shape[0] as u64);
        let simulated =
            Options { sms: self.program.target.sms as u32, host: Some(host(rows, &abort)), ..Options::default() };
        let devices = sim::peers(&simulated, self.program.devices as u32);
        let program = self.program.clone();
        let options = self.options;
        let machine = DeviceMachine::load_on(program, &self.weights, &devices, options, &mut |_, _| ()).unwrap();
        Subject { machine, abort }
    }

    fn run(&self, subject: &mut Subject, launch: Launch) -> Outcome {
        let Subject { machine, abort } = subject;
        let mut cells = Cells::at(machine.plan().rows as usize, 0);
        let mut tokens = Vec::new();
        if let Some(last) = cells.positions.last_mut() {
            *last = LAST;
        }
        if launch.idle {
            cells.positions.fill(-1);
        }
        let each = &mut |step: &[u32]| {
            tokens.extend_from_slice(step);
            ControlFlow::Continue(())
        };
        match launch.abort {
            Some(0) => machine.abort_handle().abort(),
            after => abort.store(after.unwrap_or(0), Ordering::Relaxed),
        }
        let ends: Vec<&[u32]> = if launch.ends { self.ends.chunks(1).collect() } else { Vec::new() };
        let faulty = launch.fault.map(|fault| machine.inject(fault).unwrap());
        assert_ne!(faulty, Some(false), "the program has such a place");
        let ended = machine.run_until(&cells.view(), launch.steps, &ends, each);
        abort.store(0, Ordering::Relaxed);
        machine.abort_handle().clear();
        if faulty.is_some() {
            machine.mend().unwrap();
        }
        ended.map_err(|error| report(&error))?;
        let logits = machine.f32(LOGITS).map_err(|error| report(&error))?;
        Ok((tokens, logits.into_iter().map(f32::to_bits).collect()))
    }

    /// Tokens at which rows end, each the last that is new to its row: then some end before others.
    fn last_new(&self, subject: &mut Subject) -> Vec<u32> {
        let rows = self.rows(subject);
        let steps = Launch::ENDS.steps;
        let tokens = self.run(subject, Launch { ends: false, ..Launch::ENDS }).unwrap().0;
        let of = |row: usize| tokens.iter().skip(row).step_by(rows).copied().take(steps - 1).collect::<Vec<_>>();
        let last_new = |row: Vec<u32>| (0..row.len()).rev().find(|&at| !row[..at].contains(&row[at])).map(|at| row[at]);
        (0..rows).map(|row| last_new(of(row)).unwrap()).collect()
    }

    /// Returns the finding against a kernel, if there is one.
    pub fn finds_out(&self, kernel: &Verified) -> Option<String> {
        let mut subject = self.subject();
        if subject.machine.replace_kernel(kernel).is_err() {
            return Some("refused".into());
        }
        (0..).zip(&self.launches).find_map(|(number, &launch)| {
            let right = match (launch.report, launch.ends, launch.idle) {
                (Some(report), ..) => &Err(report.to_owned()),
                (None, _, true) => &self.idle,
                (None, true, false) => &self.ended,
                (None, false, false) => &self.well,
            };
            let found = self.run(&mut subject, launch);
            let wrong = || match &found {
                Ok(_) if right.is_ok() => "other tokens or logits",
                Ok(_) => "no report",
                Err(report) => report,
            };
            (found != *right).then(|| format!("{}, launch {number}: {}", self.name, wrong()))
        })
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The host's use of a launch's words: it sets the first status word for an abort, acquires the
/// eighth, which counts steps, and then reads the tokens of that number of steps, from the
/// seventeenth word on.
fn host(rows: u64, abort: &Arc<AtomicU32>) -> HostOrder {
    let opens = move |steps| 4 * 16..4 * (16 + steps * rows);
    let abort = Arc::clone(abort);
    // No step matches if the host does not abort.
    let answers = move |steps| {
        let asks = steps == u64::from(abort.load(Ordering::Relaxed));
        if asks { vec![(0, 1)] } else { Vec::new() }
    };
    HostOrder::new("status", 4 * 7, Arc::new(opens)).atomic(0).answering(Arc::new(answers))
}
