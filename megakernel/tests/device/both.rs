//! A device and the reference machine, step by step from the same history.

use half::bf16;
use tilewright_codegen::target::Target;
use tilewright_codegen::trial::Draw;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::program::{BufferKind, Program};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::reference::{KvState, Machine};

use tilewright_megakernel::weights::Weights;

use super::lab::{chain, device, relative, weights};

/// Tokens of a sequence, and pages of 16.
pub const CONTEXT: usize = 256;
pub const PAGES: usize = CONTEXT / 16;

/// Rows over that many splits on that many SMs.
pub fn lowered(spec: &Llama, rows: usize, splits: usize, sms: usize) -> Program {
    let target = Target { sms, ..Target::named("h100").unwrap() };
    let options = LowerOptions { rows, kv: DType::BF16, page_tokens: 16, ..LowerOptions::for_context(CONTEXT) };
    lower(spec, &|_| DType::BF16, target, &LowerOptions { splits: Some(splits), ..options }).unwrap()
}

fn placed(spec: &Llama, rows: usize, splits: usize, sms: usize) -> Placed {
    schedule(lowered(spec, rows, splits, sms), CONTEXT).unwrap()
}

/// Steps of a device and of the reference machine from the same history.
pub struct Both {
    pub device: DeviceMachine,
    pub reference: Machine,
    kv: KvState,
    rows: usize,
}

impl Both {
    /// Machines whose pools hold the same random numbers.
    pub fn new(spec: &Llama, [rows, splits, sms]: [usize; 3], draw: &mut Draw, options: DeviceOptions) -> Both {
        let program = placed(spec, rows, splits, sms);
        Both::of(program, &weights(spec), draw, options)
    }

    /// Both machines of a program with these weights.
    pub fn of(program: Placed, weights: &dyn Weights, draw: &mut Draw, options: DeviceOptions) -> Both {
        let sms = program.target.sms;
        let reference = Machine::new(program.clone(), weights, 1).unwrap();
        let rows = reference.program().buffers.iter().find(|buffer| buffer.name == LOGITS).unwrap().shape[0];
        let mut kv = KvState::new(reference.program()).unwrap();
        let device = device(draw.between(0..=1 << 20).into(), sms);
        let mut device = DeviceMachine::load(program, weights, &device, options, &mut |_, _| ()).unwrap();
        for pool in reference.program().buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool) {
            let values = draw.floats(pool.elements().unwrap(), bf16::from_f64);
            kv.write(&pool.name, 0, &values.iter().map(|value| value.to_f32()).collect::<Vec<_>>()).unwrap();
            match kv.codes(&pool.name) {
                Some(codes) => device.set_pool_codes(&pool.name, &codes).unwrap(),
                None => device.set_pool(&pool.name, &values).unwrap(),
            }
        }
        Both { device, reference, kv, rows }
    }

    /// A step at these positions of sequences of their own, which must agree.
    pub fn step(&mut self, positions: &[i32], most: f64) {
        let sequences: Vec<usize> = (0..self.rows).collect();
        self.step_of(&sequences, positions, most);
    }

    /// Steps both with rows of these sequences, whose pages lie in reverse order.
    pub fn step_of(&mut self, sequences: &[usize], positions: &[i32], most: f64) {
        let tokens: Vec<i32> = (0..self.rows as i32).map(|row| row * 5 + positions[0].rem_euclid(7)).collect();
        let page = |sequence: usize, at: usize| ((self.rows - sequence) * PAGES - 1 - at) as i32;
        let pages = |&sequence: &usize| (0..PAGES).map(|at| page(sequence, at)).collect::<Vec<_>>();
        let page_table: Vec<i32> = sequences.iter().flat_map(pages).collect();
        let cells = StepCells { tokens: &tokens, positions, page_table: &page_table };
        self.device.step(&cells).unwrap_or_else(|error| panic!("{positions:?}: {}", chain(&error)));
        let output = self.reference.step(&mut self.kv, &cells).unwrap();
        for row in (0..self.rows).filter(|&row| positions[row] >= 0) {
            let found = self.device.f32_row(LOGITS, row).unwrap();
            let expected = output.f32_row(LOGITS, row).unwrap();
            let error = relative(&found, &expected);
            assert!(error < most, "{positions:?}, row {row}: {error}");
        }
    }
}
