//! An attention layer of a world as programs: prompts in chunks, decode steps, on the reference
//! machine.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use tilewright_codegen::target::Target;
use tilewright_flow::memory::Budget;
use tilewright_flow::program::{Score, Select, Summarise, register};
use tilewright_flow::{BoundFlow, Traced};
use tilewright_layout::DType;
use tilewright_megakernel::ops::{Attention, Op, RowCells, SLOT_WORDS, Selection};
use tilewright_megakernel::program::{BufferId, BufferKind, CounterId, Program, Source, Span, Wait};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::testing::{Combine, KvAppend, register_plain_ops};
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::vm::{RequestSlot, StepCells};
use tilewright_megakernel::weights::{WeightTensor, Weights};

use crate::world::{World, convert};

/// No checkpoint: weights are the program's own.
struct Nothing;

impl Weights for Nothing {
    fn tensor(&self, _: &str) -> Option<WeightTensor> {
        None
    }
}

/// The flow under a name of its own, with fields in f32, as the host's executions keep them.
pub fn renamed(mut traced: Traced) -> Traced {
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    traced.name = format!("{}-{}", traced.name, NAMES.fetch_add(1, Ordering::Relaxed));
    for field in &mut traced.declared.fields {
        field.dtype = DType::F32;
    }
    register(traced.clone()).expect("a name of its own");
    traced
}

/// The splits and chunks of a world's programs.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Splits of the scores, where the flow allows several.
    pub score_splits: usize,
    /// Splits of attention.
    pub splits: usize,
    /// Rows of a prompt's chunk.
    pub chunk: usize,
    /// The slot of each request.
    pub slots: Vec<usize>,
    /// An idle row comes before those of the requests.
    pub idle: bool,
    /// The number of the first request.
    pub first_request: i32,
}

/// The results of a step for a request: for each kv head the selected blocks and the index of the
/// last token; the attention's output `[heads, head_dim]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Stepped {
    pub blocks: Vec<Vec<u32>>,
    pub last: Vec<i32>,
    pub out: Vec<f32>,
}

/// The programs of a layer.
pub struct Layer<'w> {
    world: &'w World,
    cut: Cut,
    prompt: Machine,
    decode: Machine,
    pub kv: KvState,
    width: usize,
    most: usize,
}

/// The buffers that the tasks of a step share.
#[derive(Clone)]
struct Kept {
    at: RowCells,
    k_pool: BufferId,
    v_pool: BufferId,
    fields: Vec<BufferId>,
    parameters: Vec<BufferId>,
    flow: String,
    /// Blocks that a row may have.
    blocks: usize,
    rows: usize,
}

/// A program whose tasks come one after the other.
struct Chain {
    program: Program,
    last: Option<CounterId>,
}

impl Chain {
    fn task(&mut self, op: impl Into<Op>) {
        let next = self.program.add_counter(format!("after {}", self.program.tasks.len()));
        let waits = self.last.replace(next).into_iter().map(|counter| Wait { counter, threshold: 1 }).collect();
        self.program.add_task("task", op.into(), waits, vec![next]).expect("an op that fits its operands");
    }

    fn buffer(&mut self, name: &str, kind: BufferKind, dtype: DType, shape: &[usize]) -> BufferId {
        self.program.add_buffer(name, kind, dtype, shape)
    }
}

impl<'w> Layer<'w> {
    pub fn new(world: &'w World, bound: &BoundFlow<'_>, cut: Cut) -> Layer<'w> {
        register_plain_ops().expect("no other op has the name of a plain one");
        let width = world.tables.iter().map(Vec::len).max().unwrap_or(1).max(1);
        let decode = Layer::program(world, bound, &cut, width, None);
        let prompt = Layer::program(world, bound, &cut, width, Some(cut.chunk));
        let json = decode.to_json().expect("registered ops");
        assert_eq!(Program::from_json(&json).expect("what was written"), decode);
        let blocks = width * world.page_tokens / world.model.block_tokens;
        let most = world.budget.selected(blocks);
        let machine = |program| {
            let placed = schedule(program, 64).expect("a valid program");
            let mut machine = Machine::new(placed, &Nothing, 2).expect("a machine");
            machine.poison();
            machine
        };
        let prompt = machine(prompt);
        let decode = machine(decode);
        let mut kv = KvState::new(decode.program()).expect("memory");
        kv.poison();
        Layer { world, cut, prompt, decode, kv, width, most }
    }

    /// The step of `rows` rows of a prompt, or of one token of each request.
    fn program(world: &World, bound: &BoundFlow<'_>, cut: &Cut, width: usize, prompt: Option<usize>) -> Program {
        let model = world.model;
        let traced = bound.traced;
        let kv_heads = model.kv_heads;
        let dim = model.head_dim;
        let rows = prompt.unwrap_or(world.tokens.len() + usize::from(cut.idle));
        let mut chain = Chain { program: Program::new("layer", Target::host(2)), last: None };
        let position = chain.buffer("position", BufferKind::Cell, DType::I32, &[rows]);
        let page_table = chain.buffer("page_table", BufferKind::Cell, DType::I32, &[rows, width]);
        let at = RowCells { position, page_table };
        let all = Span::all(rows);
        let pools = ["k", "v"].map(|name| {
            let x = chain.buffer(&format!("new.{name}"), BufferKind::Input, DType::F32, &[rows, kv_heads, dim]);
            let shape = [kv_heads, world.pages, world.page_tokens, dim];
            let pool = chain.buffer(name, BufferKind::KvPool, DType::F32, &shape);
            chain.task(KvAppend { x, heads: Span::all(kv_heads), rows: all, at: at.clone(), pool });
            pool
        });
        let [k_pool, v_pool] = pools;
        let per_page = world.page_tokens / model.block_tokens;
        let mut fields = Vec::new();
        for (field, [d0, d1]) in traced.declared.fields.iter().zip(&bound.extents.fields) {
            let shape = [kv_heads, world.pages, per_page, d0 * d1];
            fields.push(chain.buffer(&format!("field.{}", field.name), BufferKind::KvPool, field.dtype, &shape));
        }
        let mut parameters = Vec::new();
        for (index, [d0, d1]) in bound.extents.parameters.iter().enumerate() {
            let id = chain.buffer(&format!("parameter.{index}"), BufferKind::Weight, DType::F32, &[kv_heads, d0 * d1]);
            let values = (0..kv_heads).flat_map(|head| bound.parameter(index, head)).map(|&x| x as f32).collect();
            chain.program.buffers[id.index()].source = Some(Source::Values(values));
            parameters.push(id);
        }
        let flow = traced.name.clone();
        let block_tokens = model.block_tokens;
        for kv_head in (0..kv_heads).filter(|_| !fields.is_empty()) {
            chain.task(Summarise {
                flow: flow.clone(),
                block_tokens,
                group: model.group,
                k_pool,
                v_pool,
                at: at.clone(),
                kv_head,
                rows: all,
                fields: fields.clone(),
                parameters: parameters.clone(),
            });
        }
        if prompt.is_some() {
            return chain.program;
        }
        let kept = Kept { at, k_pool, v_pool, fields, parameters, flow, blocks: width * per_page, rows };
        Layer::choose(world, bound, cut, &mut chain, &kept);
        chain.program
    }

    /// Scores, selection and attention of a decode step.
    fn choose(world: &World, bound: &BoundFlow<'_>, cut: &Cut, chain: &mut Chain, kept: &Kept) {
        let model = world.model;
        let traced = bound.traced;
        let budget = world.budget;
        let kv_heads = model.kv_heads;
        let dim = model.head_dim;
        let heads = model.kv_heads * model.group;
        let Kept { at, k_pool, v_pool, fields, parameters, flow, blocks, rows } = kept.clone();
        let all = Span::all(rows);
        let block_tokens = model.block_tokens;
        let mut states = Vec::new();
        for (state, [d0, d1]) in traced.declared.states.iter().zip(&bound.extents.states) {
            let slots = cut.slots.iter().max().map_or(1, |most| most + 1);
            let shape = [kv_heads, slots, blocks, 1 + d0 * d1];
            states.push(chain.buffer(&format!("state.{}", state.name), BufferKind::KvPool, DType::F32, &shape));
        }
        let slot =
            (!states.is_empty()).then(|| chain.buffer("slot", BufferKind::Cell, DType::I32, &[rows, SLOT_WORDS]));
        let q = chain.buffer("q", BufferKind::Input, DType::F32, &[rows, heads, dim]);
        let splits = cut.score_splits;
        let most = budget.selected(blocks);
        let scores = chain.buffer(
            "scores",
            BufferKind::Activation,
            DType::F32,
            &[rows, kv_heads, splits, blocks.div_ceil(splits)],
        );
        let selected = chain.buffer("blocks", BufferKind::Output, DType::I32, &[rows, kv_heads, most]);
        let last = chain.buffer("last", BufferKind::Output, DType::I32, &[kv_heads, rows]);
        let acc = chain.buffer("acc", BufferKind::Activation, DType::F32, &[rows, heads, cut.splits, dim]);
        let stats = chain.buffer("stats", BufferKind::Activation, DType::F32, &[rows, heads, cut.splits, 2]);
        let out = chain.buffer("out", BufferKind::Output, DType::F32, &[rows, heads, dim]);
        for kv_head in 0..kv_heads {
            for split in 0..splits {
                chain.task(Score {
                    flow: flow.clone(),
                    block_tokens,
                    budget,
                    q,
                    k_pool,
                    v_pool,
                    at: at.clone(),
                    kv_head,
                    rows: all,
                    split,
                    fields: fields.clone(),
                    parameters: parameters.clone(),
                    states: states.clone(),
                    slot,
                    scores,
                });
            }
            let at = at.clone();
            let rows = all;
            chain.task(Select { block_tokens, budget, k_pool, at, kv_head, rows, scores, blocks: selected, last });
        }
        let selection = Some(Selection { blocks: selected, last, block_tokens });
        let scale = (dim as f32).powf(-0.5);
        for (kv_head, split) in (0..kv_heads).flat_map(|head| (0..cut.splits).map(move |split| (head, split))) {
            let at = at.clone();
            let selection = selection.clone();
            let rows = all;
            let soft_cap = None;
            let window = None;
            chain.task(Attention {
                q,
                k_pool,
                v_pool,
                at,
                kv_head,
                rows,
                split,
                scale,
                soft_cap,
                window,
                sinks: None,
                acc,
                stats,
                selection,
            });
        }
        chain.task(Combine { acc, stats, out, rows: all, heads: Span::all(heads) });
    }

    /// Gives the slots to other requests, whose numbers go on from this one.
    pub fn set_first_request(&mut self, number: i32) {
        self.cut.first_request = number;
    }

    /// Feeds tokens of a request in chunks.
    pub fn feed(&mut self, request: usize, tokens: std::ops::Range<usize>) {
        let row = self.world.row();
        let chunk = self.cut.chunk;
        let mut begin = tokens.start;
        while begin < tokens.end {
            let count = chunk.min(tokens.end - begin);
            let mut positions = vec![-1; chunk];
            (0..count).for_each(|i| positions[i] = (begin + i) as i32);
            let table = self.table(request);
            for (name, all) in [("new.k", &self.world.keys), ("new.v", &self.world.values)] {
                let mut values: Vec<f32> = convert(&all[request][begin * row..(begin + count) * row]);
                values.resize(chunk * row, 0.0);
                self.prompt.set_input(name, &values).expect("an input");
            }
            let page_table = table.repeat(chunk);
            let cells = StepCells { tokens: &[], positions: &positions, page_table: &page_table };
            self.prompt.step(&mut self.kv, &cells).expect("a step");
            begin += count;
        }
    }

    fn table(&self, request: usize) -> Vec<i32> {
        let mut table: Vec<i32> = self.world.tables[request].iter().map(|&page| page as i32).collect();
        table.resize(self.width, -1);
        table
    }

    /// A decode step: the token at `lengths[request]` of each request.
    pub fn step(&mut self, step: usize, lengths: &[usize]) -> Vec<Stepped> {
        let world = self.world;
        let model = self.world.model;
        let row = world.row();
        let idle = usize::from(self.cut.idle);
        let requests = world.tokens.len();
        let mut positions = vec![-1; idle];
        let mut page_table = vec![-1; idle * self.width];
        let mut slots = vec![RequestSlot::NONE; idle];
        let mut keys = vec![f32::NAN; idle * row];
        let mut values = vec![f32::NAN; idle * row];
        let mut queries = vec![f32::NAN; idle * row * model.group];
        queries.extend(convert::<f32>(&world.queries[step]));
        for (request, &length) in lengths.iter().enumerate() {
            positions.push(length as i32);
            page_table.extend(self.table(request));
            let index = self.cut.slots[request] as i32;
            let number = self.cut.first_request + request as i32;
            slots.push(RequestSlot { index, request: number });
            let token = length * row..(length + 1) * row;
            keys.extend(convert::<f32>(&world.keys[request][token.clone()]));
            values.extend(convert::<f32>(&world.values[request][token]));
        }
        for (name, values) in [("new.k", &keys), ("new.v", &values), ("q", &queries)] {
            self.decode.set_input(name, values).expect("an input");
        }
        if self.decode.program().buffer_named("slot").is_some() {
            self.decode.set_slots(&slots).expect("slots");
        }
        let cells = StepCells { tokens: &[], positions: &positions, page_table: &page_table };
        let output = self.decode.step(&mut self.kv, &cells).expect("a step");
        let blocks = output.i32("blocks").expect("an output");
        let last = output.i32("last").expect("an output");
        let out = output.f32("out").expect("an output");
        let heads = model.kv_heads;
        let rows = idle + requests;
        assert!((0..heads * idle).all(|head| last[head * rows] == -1));
        let of = |request: usize| {
            let at = idle + request;
            let last: Vec<i32> = (0..heads).map(|head| last[head * rows + at]).collect();
            let of_head = |head: usize| {
                let count = usize::try_from(last[head] + 1).expect("tokens").div_ceil(model.block_tokens);
                blocks[(at * heads + head) * self.most..][..count].iter().map(|&block| block as u32).collect()
            };
            let width = row * model.group;
            Stepped { blocks: (0..heads).map(of_head).collect(), last, out: out[at * width..][..width].to_vec() }
        };
        (0..requests).map(of).collect()
    }
}

/// A budget's numbers, a world's tokens around every edge that a program has.
pub fn edges(budget: &Budget, block: usize, page: usize, chunk: usize) -> BTreeMap<usize, &'static str> {
    let fixed = budget.selected(usize::MAX / 2).min(1 << 10);
    let mut edges = BTreeMap::from([(0, "nothing"), (1, "one token")]);
    for (at, name) in [(fixed * block, "the budget"), (block, "a block"), (page, "a page"), (chunk, "a chunk")] {
        for tokens in [at.saturating_sub(1), at, at + 1] {
            edges.insert(tokens, name);
        }
    }
    edges.insert((fixed + 1) * block, "a block more than the budget");
    edges.insert((fixed + 3) * block + 1, "several blocks more");
    edges
}
