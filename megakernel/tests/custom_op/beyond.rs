//! Planted bugs: an op that reads or writes one column more than it declares. The reference machine
//! refuses the access; on the simulated device it is a race with the task whose column it is.

use std::mem::discriminant;

use serde::{Deserialize, Serialize};
use tilewright_megakernel::ops::{Footprint, Op, OperandError, Operands, TaskOp, register};
use tilewright_megakernel::program::AccessKind;
use tilewright_megakernel::program::Span;
use tilewright_megakernel::vm::Unsupported;
use tilewright_megakernel::vm::device::{DeviceOp, Planned, Planner, register_device_op};
use tilewright_megakernel::vm::reference::{Context, KvState, Machine, StepError, TaskFault};

use super::{CELLS, NoWeights, SoftCap, WIDTH, placed, simulated, twice};

/// A soft cap that declares a tile and computes a column more, where there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Beyond(SoftCap);

impl Beyond {
    fn wider(&self) -> SoftCap {
        let Span { lo, hi } = self.0.cols;
        SoftCap { cols: Span::new(lo, WIDTH.min(hi + 1)), ..self.0.clone() }
    }
}

impl TaskOp for Beyond {
    fn name() -> &'static str {
        "beyond"
    }

    fn footprint(&self, buffers: &Operands) -> Result<Footprint, OperandError> {
        self.0.footprint(buffers)
    }

    fn oracle(&self, on: &Context) -> Result<(), TaskFault> {
        self.wider().oracle(on)
    }
}

impl DeviceOp for Beyond {
    fn rows(&self) -> Span {
        self.0.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        self.wider().plan(plan)
    }
}

/// A soft cap whose oracle writes what it declares as read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Backwards(SoftCap);

impl TaskOp for Backwards {
    fn name() -> &'static str {
        "backwards"
    }

    fn footprint(&self, buffers: &Operands) -> Result<Footprint, OperandError> {
        self.0.footprint(buffers)
    }

    fn oracle(&self, on: &Context) -> Result<(), TaskFault> {
        on.write(self.0.x, self.0.cols.lo, &[1.0])
    }
}

fn fault(op: fn(SoftCap) -> Op) -> TaskFault {
    let mut machine = Machine::new(placed(twice(op)), &NoWeights, 1).unwrap();
    let mut kv = KvState::new(machine.program()).unwrap();
    match machine.step(&mut kv, &CELLS) {
        Err(StepError::Task { source, .. }) => source,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the overflow was not reported"),
    }
}

#[test]
fn the_reference_machine_gives_a_task_what_it_declares_and_no_more() {
    register::<SoftCap>().unwrap();
    register::<Beyond>().unwrap();
    register_device_op::<Beyond>();
    register::<Backwards>().unwrap();
    // The first access beyond is a read; the program itself is valid, since declarations are.
    let TaskFault::Undeclared { access, start, end, .. } = fault(|cap| Beyond(cap).into()) else {
        panic!("another fault")
    };
    assert_eq!((access, start, end), (AccessKind::Read, 0, WIDTH / 2 + 1));
    let TaskFault::Undeclared { access, .. } = fault(|cap| Backwards(cap).into()) else { panic!("another fault") };
    assert_eq!(discriminant(&access), discriminant(&AccessKind::Write));
}

#[test]
fn the_simulator_finds_an_access_beyond_the_declared_regions_as_a_race() {
    register::<Beyond>().unwrap();
    register_device_op::<Beyond>();
    let program = placed(twice(|cap| Beyond(cap).into()));
    let mut found = 0;
    for seed in 0..8 {
        let Err(error) = simulated(program.clone(), seed).step(&CELLS) else { continue };
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        assert!(text.contains("race"), "seed {seed}: {text}");
        found += 1;
    }
    assert_eq!(found, 8, "seeds of 8 under which the race is seen");
}
