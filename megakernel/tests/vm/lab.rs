//! A laboratory: programs of a few tasks in a chain, random values, and a run on poisoned memory.

use std::collections::HashMap;

use half::{bf16, f16};
use proptest::prelude::*;
use tilewright_codegen::target::Target;
use tilewright_kernels::naive;
use tilewright_kernels::sample::Request;
use tilewright_layout::DType;
use tilewright_megakernel::ops::RowCells;
use tilewright_megakernel::program::{
    BufferId, BufferKind, CounterId, Op, Program, Region, Source, Span, TaskId, Wait,
};
use tilewright_megakernel::testing::register_plain_ops;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::reference::{KvState, Machine, StepError};
use tilewright_megakernel::weights::{SharedBytes, WeightTensor, Weights};

/// SplitMix64 (Steele, Lea and Flood, 2014): enough randomness for values and placements.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }

    /// Uniform in −1..1.
    pub fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (self.word() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    pub fn shuffled(&mut self, count: usize) -> Vec<i32> {
        let mut list: Vec<i32> = (0..count as i32).collect();
        for at in (1..count).rev() {
            list.swap(at, self.below(at + 1));
        }
        list
    }
}

pub fn floats() -> impl Strategy<Value = DType> {
    prop::sample::select(vec![DType::F32, DType::F16, DType::BF16])
}

/// A tensor of that type, its values rounded.
pub fn tensor(dtype: DType, shape: &[usize], values: &[f32]) -> WeightTensor {
    let bytes = match dtype {
        DType::BF16 => bytemuck::cast_slice(&values.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>()).to_vec(),
        DType::F16 => bytemuck::cast_slice(&values.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>()).to_vec(),
        _ => bytemuck::cast_slice(values).to_vec(),
    };
    WeightTensor::new(dtype, shape.to_vec(), SharedBytes::aligned_copy(&bytes)).unwrap()
}

#[derive(Default)]
pub struct Table(pub HashMap<String, WeightTensor>);

impl Weights for Table {
    fn tensor(&self, name: &str) -> Option<WeightTensor> {
        self.0.get(name).cloned()
    }
}

/// A program under construction; every task waits for the one before it.
pub struct Lab {
    pub program: Program,
    pub random: Random,
    weights: Table,
    inputs: Vec<(String, Vec<f32>)>,
    ints: Vec<(String, Vec<i32>)>,
    last: Option<CounterId>,
    /// The cells of its step.
    pub tokens: Vec<i32>,
    pub positions: Vec<i32>,
    pub page_table: Vec<i32>,
    /// The sampling requests of the rows.
    pub requests: Vec<Request>,
    /// The contents of the pools before the step, by name.
    pub pools: Vec<(BufferId, Vec<f32>)>,
}

/// The results of a run.
pub struct Ran {
    pub floats: HashMap<String, Vec<f32>>,
    pub ints: HashMap<String, Vec<i32>>,
    pub kv: KvState,
}

impl Ran {
    pub fn bits(&self, name: &str) -> Vec<u32> {
        self.floats[name].iter().map(|x| x.to_bits()).collect()
    }
}

impl Lab {
    pub fn new(seed: u64) -> Lab {
        register_plain_ops().expect("no other op has the name of a plain one");
        let program = Program::new("lab", Target::host(3));
        Lab {
            program,
            random: Random(seed),
            weights: Table::default(),
            inputs: vec![],
            ints: vec![],
            last: None,
            tokens: vec![],
            positions: vec![],
            page_table: vec![],
            requests: vec![],
            pools: vec![],
        }
    }

    pub fn buffer(&mut self, name: &str, kind: BufferKind, dtype: DType, shape: &[usize]) -> BufferId {
        self.program.add_buffer(name, kind, dtype, shape)
    }

    pub fn output(&mut self, name: &str, dtype: DType, shape: &[usize]) -> BufferId {
        self.buffer(name, BufferKind::Output, dtype, shape)
    }

    pub fn activation(&mut self, name: &str, dtype: DType, shape: &[usize]) -> BufferId {
        self.buffer(name, BufferKind::Activation, dtype, shape)
    }

    /// An input and its values, as they are stored.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> (BufferId, Vec<f32>) {
        let values = self.random.values(shape.iter().product());
        let values: Vec<f32> = values.into_iter().map(|x| naive::convert(x, dtype)).collect();
        (self.input_of(name, dtype, shape, &values), values)
    }

    pub fn input_of(&mut self, name: &str, dtype: DType, shape: &[usize], values: &[f32]) -> BufferId {
        self.inputs.push((name.into(), values.to_vec()));
        self.buffer(name, BufferKind::Input, dtype, shape)
    }

    pub fn input_i32_of(&mut self, name: &str, shape: &[usize], values: &[i32]) -> BufferId {
        self.ints.push((name.into(), values.to_vec()));
        self.buffer(name, BufferKind::Input, DType::I32, shape)
    }

    /// A weight and its values, as they are stored.
    pub fn weight(&mut self, name: &str, dtype: DType, shape: &[usize]) -> (BufferId, Vec<f32>) {
        let values = self.random.values(shape.iter().product());
        let values: Vec<f32> = values.into_iter().map(|x| naive::convert(x, dtype)).collect();
        (self.weight_of(name, dtype, shape, &values), values)
    }

    pub fn weight_of(&mut self, name: &str, dtype: DType, shape: &[usize], values: &[f32]) -> BufferId {
        let id = self.buffer(name, BufferKind::Weight, dtype, shape);
        self.program.buffers[id.index()].source = Some(Source::Tensor(name.into()));
        self.weights.0.insert(name.into(), tensor(dtype, shape, values));
        id
    }

    /// Rotary frequencies for heads of that many dimensions.
    pub fn inv_freq(&mut self, head_dim: usize) -> (BufferId, Vec<f32>) {
        let values: Vec<f32> = (0..head_dim / 2).map(|i| 10_000f32.powf(-(i as f32) / (head_dim / 2) as f32)).collect();
        let id = self.buffer("inv_freq", BufferKind::Weight, DType::F32, &[head_dim / 2]);
        self.program.buffers[id.index()].source = Some(Source::Values(values.clone()));
        (id, values)
    }

    /// A pool, and random values that it holds before the step.
    pub fn pool(&mut self, name: &str, dtype: DType, shape: [usize; 4]) -> (BufferId, Vec<f32>) {
        let values = self.random.values(shape.iter().product());
        let values: Vec<f32> = values.into_iter().map(|x| naive::convert(x, dtype)).collect();
        let id = self.buffer(name, BufferKind::KvPool, dtype, &shape);
        self.pools.push((id, values.clone()));
        (id, values)
    }

    /// Position and page table cells; every row a sequence with pages of its own, at random.
    pub fn place(&mut self, positions: &[i32], page_tokens: usize, pages: usize) -> RowCells {
        let rows = positions.len();
        let longest = positions.iter().map(|&p| p.max(0) as usize).max().unwrap_or(0);
        let width = longest / page_tokens + 1;
        assert!(rows * width <= pages, "{rows} sequences of {width} pages");
        let order = self.random.shuffled(pages);
        self.positions = positions.to_vec();
        self.page_table = order[..rows * width].to_vec();
        RowCells {
            position: self.buffer("position", BufferKind::Cell, DType::I32, &[rows]),
            page_table: self.buffer("page_table", BufferKind::Cell, DType::I32, &[rows, width]),
        }
    }

    /// The pages of a row.
    pub fn table(&self, row: usize) -> Vec<usize> {
        let width = self.page_table.len() / self.positions.len();
        self.page_table[row * width..][..width].iter().map(|&page| page as usize).collect()
    }

    /// Adds a task after all others.
    pub fn task(&mut self, op: Op) -> TaskId {
        let waits = self.waits();
        let done = self.program.add_counter("done");
        let label = format!("{}[{}]", op.name(), self.program.tasks.len());
        self.last = Some(done);
        self.program.add_task(label, op, waits, vec![done]).unwrap()
    }

    /// Adds tasks after all others, in no order among themselves.
    pub fn tasks(&mut self, ops: Vec<Op>) {
        let waits = self.waits();
        let done = self.program.add_counter("done");
        let mut labels = 0..;
        for op in ops {
            let label = format!("{}.{}", op.name(), labels.next().unwrap());
            self.program.add_task(label, op, waits.clone(), vec![done]).unwrap();
        }
        self.last = Some(done);
    }

    fn waits(&self) -> Vec<Wait> {
        let signals = |c| self.program.tasks.iter().filter(|t| t.signals.contains(&c)).count() as u32;
        self.last.map(|counter| Wait { counter, threshold: signals(counter) }).into_iter().collect()
    }

    /// A random split of `0..extent` into at most `most` intervals.
    pub fn tiles(&mut self, extent: usize, most: usize) -> Vec<Span> {
        let mut cuts: Vec<usize> = (1..most).map(|_| self.random.below(extent + 1)).chain([0, extent]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts.windows(2).map(|w| Span::new(w[0], w[1])).collect()
    }

    /// Queues at random: tasks in order, each to some SM.
    pub fn placed(&mut self) -> Placed {
        let mut program = self.program.clone();
        program.queues = Some(random_queues(&program, &mut self.random));
        Placed::new(program).unwrap_or_else(|rejected| panic!("{rejected}"))
    }

    pub fn machine(&mut self, workers: usize) -> Machine {
        let placed = self.placed();
        let mut machine = Machine::new(placed, &self.weights, workers).unwrap();
        for (name, values) in &self.inputs {
            machine.set_input(name, values).unwrap();
        }
        for (name, values) in &self.ints {
            machine.set_input_i32(name, values).unwrap();
        }
        machine.poison();
        machine.set_requests(&self.requests).unwrap();
        machine
    }

    /// The pools with what they hold before the step: filled by a program that copies inputs to
    /// them.
    pub fn kv(&mut self) -> KvState {
        let mut kv = KvState::new(&self.program).unwrap();
        let mut filler = Lab::new(1);
        for (id, values) in self.pools.clone() {
            let pool = self.program.buffers[id.index()].clone();
            let dst = filler.buffer(&pool.name, BufferKind::KvPool, pool.dtype, &pool.shape);
            let src = filler.input_of(&format!("{}.before", pool.name), pool.dtype, &pool.shape, &values);
            let src = Region::whole(src, &pool.shape);
            let dst = Region::whole(dst, &pool.shape);
            filler.task(Op::from(tilewright_megakernel::ops::Copy { src, dst }));
        }
        filler.machine(1).step(&mut kv, &StepCells::default()).unwrap();
        kv
    }

    pub fn try_run(&mut self, workers: usize) -> Result<Ran, StepError> {
        let mut machine = self.machine(workers);
        let mut kv = self.kv();
        let cells = StepCells { tokens: &self.tokens, positions: &self.positions, page_table: &self.page_table };
        let output = machine.step(&mut kv, &cells)?;
        let mut floats = HashMap::new();
        let mut ints = HashMap::new();
        for buffer in self.program.buffers.iter().filter(|b| b.kind == BufferKind::Output) {
            if buffer.dtype == DType::I32 {
                ints.insert(buffer.name.clone(), output.i32(&buffer.name).unwrap());
            } else {
                floats.insert(buffer.name.clone(), output.f32(&buffer.name).unwrap());
            }
        }
        Ok(Ran { floats, ints, kv })
    }

    pub fn run(&mut self) -> Ran {
        let workers = 1 + self.random.below(3);
        self.try_run(workers).unwrap_or_else(|error| panic!("{error:?}"))
    }
}

/// Tasks in the order of their ids (in which dependencies point forward), each to a random SM.
pub fn random_queues(program: &Program, random: &mut Random) -> Vec<Vec<TaskId>> {
    let mut queues = vec![Vec::new(); program.target.sms];
    for task in &program.tasks {
        let at = random.below(queues.len());
        queues[at].push(task.id);
    }
    queues
}

pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

/// `found` is within `relative · |expected| + absolute` of `expected`, element by element; NaN is
/// never.
#[track_caller]
pub fn close(found: &[f32], expected: &[f64], relative: f64, absolute: f64) {
    assert_eq!(found.len(), expected.len());
    for (at, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        let bound = relative * expected.abs() + absolute;
        assert!(error <= bound, "element {at}: {found} for {expected}, error {error:e}, bound {bound:e}");
    }
}

/// The relative error of one store in that type.
pub fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-24),
    }
}
