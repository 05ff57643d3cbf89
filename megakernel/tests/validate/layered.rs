//! Programs of the shape of a whole model: five levels a layer, a level's tiles over all SMs, one
//! counter a level, the activation buffers of one layer reused by the next.

use tilewright_codegen::target::Target;
use tilewright_kernels::activation::Activation;
use tilewright_layout::DType;
use tilewright_megakernel::ops::{
    Argmax, Attention, Embed, GroupShape, KeyOutput, Linear, LinearInput, LinearOutput, Projection, Qkv, Rotation,
    RowCells,
};
use tilewright_megakernel::program::{BufferId, BufferKind, CounterId, Op, Program, Source, Span, Wait};

/// The extents of a model and how it is cut.
#[derive(Clone, Debug)]
pub struct Shape {
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub inner: usize,
    pub vocab: usize,
    pub rows: usize,
    pub splits: usize,
    pub sms: usize,
}

impl Shape {
    /// Llama-3.1-70B on 132 SMs.
    pub fn llama_70b() -> Shape {
        Shape {
            layers: 80,
            hidden: 8192,
            heads: 64,
            kv_heads: 8,
            head_dim: 128,
            inner: 28_672,
            vocab: 128_256,
            rows: 1,
            splits: 16,
            sms: 132,
        }
    }

    /// A model that tests can afford, with levels as wide as `sms`.
    pub fn small(sms: usize) -> Shape {
        Shape {
            layers: 3,
            hidden: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            inner: 96,
            vocab: 80,
            rows: 2,
            splits: 3,
            sms,
        }
    }

    /// The program, placed level by level if `placed`, its activations in the arena with lifetimes
    /// apart if `shared`.
    pub fn program(&self, placed: bool, shared: bool) -> Program {
        let mut builder = Builder::new(self.clone());
        let mut x = builder.embed();
        for layer in 0..self.layers {
            x = builder.layer(layer, x);
        }
        builder.head(x);
        let mut program = builder.program;
        if shared {
            share(&mut program);
        }
        if placed {
            let mut queues = vec![Vec::new(); self.sms];
            program.tasks.iter().for_each(|task| queues[task.id.index() % self.sms].push(task.id));
            program.queues = Some(queues);
        }
        program
    }
}

/// Lays the activations into the arena: those of the attention and those of the MLP of a layer
/// share bytes.
fn share(program: &mut Program) {
    let size = |p: &Program, name: &str| p.buffer_named(name).map_or(0, |b| b.bytes().unwrap_or(0) as u64);
    let mut at = 0;
    for name in ["x0", "x1"] {
        set(program, name, at);
        at += size(program, name).next_multiple_of(256);
    }
    set(program, "mlp", at);
    for name in ["q", "acc", "stats"] {
        set(program, name, at);
        at += size(program, name).next_multiple_of(256);
    }
}

fn set(program: &mut Program, name: &str, offset: u64) {
    program.buffers.iter_mut().filter(|b| b.name == name).for_each(|b| b.arena = Some(offset));
}

struct Builder {
    shape: Shape,
    program: Program,
    place: RowCells,
    /// The level before: its counter and its tasks.
    before: Option<(CounterId, u32)>,
    q: BufferId,
    acc: BufferId,
    stats: BufferId,
    mlp: BufferId,
    x: [BufferId; 2],
    inv_freq: BufferId,
}

impl Builder {
    fn new(shape: Shape) -> Builder {
        let mut p = Program::new("layered", Target { sms: shape.sms, ..Target::named("h100").expect("a preset") });
        let rows = shape.rows;
        let act = BufferKind::Activation;
        let position = p.add_buffer("position", BufferKind::Cell, DType::I32, &[rows]);
        let page_table = p.add_buffer("page_table", BufferKind::Cell, DType::I32, &[rows, 8]);
        let q = p.add_buffer("q", act, DType::BF16, &[rows, shape.heads, shape.head_dim]);
        let acc = p.add_buffer("acc", act, DType::F32, &[rows, shape.heads, shape.splits, shape.head_dim]);
        let stats = p.add_buffer("stats", act, DType::F32, &[rows, shape.heads, shape.splits, 2]);
        let mlp = p.add_buffer("mlp", act, DType::BF16, &[rows, shape.inner]);
        let x = ["x0", "x1"].map(|name| p.add_buffer(name, act, DType::F32, &[rows, shape.hidden]));
        let place = RowCells { position, page_table };
        let mut builder =
            Builder { shape, program: p, place, before: None, q, acc, stats, mlp, x, inv_freq: BufferId(0) };
        builder.inv_freq = builder.weight("inv_freq", DType::F32, &[builder.shape.head_dim / 2]);
        builder
    }

    fn weight(&mut self, name: &str, dtype: DType, shape: &[usize]) -> BufferId {
        let id = self.program.add_buffer(name, BufferKind::Weight, dtype, shape);
        self.program.buffers[id.index()].source = Some(Source::Tensor(name.to_owned()));
        id
    }

    /// A level: all of its tasks wait for all of the level before.
    fn level(&mut self, name: &str, ops: Vec<Op>) {
        let counter = self.program.add_counter(name);
        let waits: Vec<Wait> = self.before.iter().map(|&(counter, threshold)| Wait { counter, threshold }).collect();
        let count = ops.len() as u32;
        for (at, op) in ops.into_iter().enumerate() {
            let task = self.program.add_task(format!("{name}[{at}]"), op, waits.clone(), vec![counter]);
            task.expect("the builder's operands are right");
        }
        self.before = Some((counter, count));
    }

    /// `extent` cut into as many tiles as there are SMs, in steps.
    fn tiles(&self, extent: usize, step: usize) -> Vec<Span> {
        let steps = extent.div_ceil(step);
        let count = self.shape.sms.min(steps);
        let cut = |at: usize| (at * steps / count * step).min(extent);
        (0..count).map(|at| Span::new(cut(at), cut(at + 1))).collect()
    }

    fn embed(&mut self) -> BufferId {
        let Shape { vocab, hidden, rows, .. } = self.shape;
        let table = self.weight("embed", DType::BF16, &[vocab, hidden]);
        let ids = self.program.add_buffer("ids", BufferKind::Cell, DType::I32, &[rows]);
        let out = self.x[0];
        let position = self.place.position;
        let op = |cols| {
            Op::from(Embed {
                ids,
                position,
                table,
                scale: None,
                out,
                rows: Span::all(rows),
                cols,
                shard: None,
                sent: vec![],
            })
        };
        let ops = self.tiles(hidden, 8).into_iter().map(op).collect();
        self.level("embed", ops);
        out
    }

    fn layer(&mut self, layer: usize, x: BufferId) -> BufferId {
        let Shape { hidden, inner, .. } = self.shape;
        let name = |what: &str| format!("layers.{layer}.{what}");
        self.attention(layer, x);
        let middle = self.x[1];
        let o = self.weight(&name("o"), DType::BF16, &[hidden, self.shape.heads * self.shape.head_dim]);
        let input = LinearInput::Combine { acc: self.acc, stats: self.stats };
        self.linear(&name("o"), input, o, LinearOutput::Add { residual: x, out: middle });
        let norm = self.weight(&name("post_norm"), DType::BF16, &[hidden]);
        let gate = self.weight(&name("gate"), DType::BF16, &[inner, hidden]);
        let up = self.weight(&name("up"), DType::BF16, &[inner, hidden]);
        let input = LinearInput::RmsNorm { x: middle, weight: norm, eps: 1e-5 };
        self.linear(
            &name("gate_up"),
            input,
            gate,
            LinearOutput::Gated { activation: Activation::default(), up: Some(up), up_bias: None, out: self.mlp },
        );
        let down = self.weight(&name("down"), DType::BF16, &[hidden, inner]);
        let input = LinearInput::Plain { x: self.mlp };
        self.linear(&name("down"), input, down, LinearOutput::Add { residual: middle, out: x });
        x
    }

    fn linear(&mut self, name: &str, input: LinearInput, weight: BufferId, output: LinearOutput) {
        let n = self.program.buffers[weight.index()].shape[0];
        let rows = Span::all(self.shape.rows);
        let op =
            |cols| Op::from(Linear { input: input.clone(), weight, bias: None, rows, cols, output: output.clone() });
        let ops = self.tiles(n, 8).into_iter().map(op).collect();
        self.level(name, ops);
    }

    fn attention(&mut self, layer: usize, x: BufferId) {
        let Shape { hidden, heads, kv_heads, head_dim, rows, splits, sms, .. } = self.shape;
        let name = |what: &str| format!("layers.{layer}.{what}");
        let norm = self.weight(&name("input_norm"), DType::BF16, &[hidden]);
        let mut projection = |what: &str, count: usize| Projection {
            weight: self.weight(&name(what), DType::BF16, &[count * head_dim, hidden]),
            bias: None,
        };
        let wq = projection("q", heads);
        let wk = projection("k", kv_heads);
        let wv = projection("v", kv_heads);
        let mut pool = |what: &str| {
            self.program.add_buffer(name(what), BufferKind::KvPool, DType::BF16, &[kv_heads, 64, 16, head_dim])
        };
        let k_pool = pool("k_pool");
        let v_pool = pool("v_pool");
        let rows = Span::all(rows);
        let strips = GroupShape { group: heads / kv_heads, head_dim }.strips();
        let per_head = (sms / kv_heads).clamp(1, strips);
        let mut ops = Vec::new();
        for kv_head in 0..kv_heads {
            for at in 0..per_head {
                ops.push(Op::from(Qkv {
                    input: LinearInput::RmsNorm { x, weight: norm, eps: 1e-5 },
                    wq: wq.clone(),
                    wk: wk.clone(),
                    wv: wv.clone(),
                    kv_head,
                    strips: Span::new(at * strips / per_head, (at + 1) * strips / per_head),
                    rows,
                    q: self.q,
                    k: KeyOutput::RopeAppend { rope: Rotation { inv_freq: self.inv_freq, scale: 1.0 }, pool: k_pool },
                    v_pool,
                    at: self.place.clone(),
                }));
            }
        }
        self.level(&name("qkv"), ops);
        let tiles = (0..kv_heads).flat_map(|kv_head| (0..splits).map(move |split| (kv_head, split)));
        let ops = tiles.map(|(kv_head, split)| {
            let q = self.q;
            let at = self.place.clone();
            let acc = self.acc;
            let stats = self.stats;
            Op::from(Attention {
                q,
                k_pool,
                v_pool,
                at,
                kv_head,
                rows,
                split,
                scale: 0.125,
                soft_cap: None,
                window: None,
                sinks: None,
                acc,
                stats,
                selection: None,
            })
        });
        let ops = ops.collect();
        self.level(&name("attention"), ops);
    }

    fn head(&mut self, x: BufferId) {
        let Shape { vocab, hidden, rows, .. } = self.shape;
        let tiles = self.tiles(vocab, 8);
        let norm = self.weight("norm", DType::BF16, &[hidden]);
        let weight = self.weight("lm_head", DType::BF16, &[vocab, hidden]);
        let mut add = |name: &str, kind, dtype, shape: &[usize]| self.program.add_buffer(name, kind, dtype, shape);
        let logits = add("logits", BufferKind::Output, DType::F32, &[rows, vocab]);
        let value = add("best_value", BufferKind::Activation, DType::F32, &[rows, tiles.len()]);
        let index = add("best_index", BufferKind::Activation, DType::I32, &[rows, tiles.len()]);
        let out = add("token", BufferKind::Output, DType::I32, &[rows]);
        let input = LinearInput::RmsNorm { x, weight: norm, eps: 1e-5 };
        let op = |(tile, cols)| {
            let output = LinearOutput::Logits {
                soft_cap: None,
                out: logits,
                shard: None,
                best_value: value,
                best_index: index,
                tile,
            };
            let input = input.clone();
            let rows = Span::all(rows);
            Op::from(Linear { input, weight, bias: None, rows, cols, output })
        };
        let ops = tiles.into_iter().enumerate().map(op).collect();
        self.level("lm_head", ops);
        self.level("argmax", vec![Op::from(Argmax { value, index, out, rows: Span::all(rows) })]);
    }
}
