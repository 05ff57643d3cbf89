//! From opcodes to device functions: classes become calls, records become their arguments.

use tilewright_codegen::build::{Global, Ptr, Val};
use tilewright_kernels::decode::{
    Argmax, Array, Attention, Best, Embed, Float, HeadNorm, Input, Keys, Linear, Merged, Output, Pages, Qkv, Rope,
    Rotation, Sample, Weights, argmax, attention, embed, linear, qkv, rope, sample,
};
use tilewright_kernels::sample::Scratch;

use super::Kit;
use super::table::TaskView;
use crate::vm::device::{Class, InputClass, KeysClass, OutputClass, PoolClass, RotationClass, Storage};

/// Runs a task, whose opcode was checked.
///
/// `now` counts the steps before this one, over all launches.
pub(super) fn dispatch<'k>(kit: Kit<'k, '_>, task: TaskView<'k>, now: Val<'k, u32>, weights: &dyn Weights<'k>) {
    choose(Call { kit, task, now }, task.opcode(), 0, weights);
}

/// The pages of the pool that is this operand of a task.
pub(super) fn task_pages<'k>(kit: Kit<'k, '_>, task: TaskView<'k>, slot: u32, pools: PoolClass) -> Pages<'k> {
    pages_of(kit, Array::new(task.operand(kit.memory.pools, slot), pools.float), pools)
}

fn pages_of<'k>(kit: Kit<'k, '_>, pool: Array<'k>, pools: PoolClass) -> Pages<'k> {
    let (position, table) = kit.cells.of(pools);
    let PoolClass { pages, page_tokens, dim, table_width, split_pages, .. } = pools;
    Pages { pool, pages, page_tokens, dim, position, table, table_width, split_pages }
}

/// Tries the classes from `first` on.
fn choose<'k>(call: Call<'k, '_>, opcode: Val<'k, u32>, first: usize, weights: &dyn Weights<'k>) {
    if let Some(class) = call.kit.plan.classes.get(first) {
        call.kit.k.if_else(
            opcode.eq(first as u32),
            || call.run(class, weights),
            || choose(call, opcode, first + 1, weights),
        );
    }
}

/// A call of a device function with the arguments of a task.
#[derive(Clone, Copy)]
struct Call<'k, 'p> {
    kit: Kit<'k, 'p>,
    task: TaskView<'k>,
    now: Val<'k, u32>,
}

/// Which generation of a task.
#[derive(Clone, Copy)]
enum Generation {
    Input,
    Residual,
    Output,
}

impl<'k> Call<'k, '_> {
    fn state(self, slot: u32) -> Ptr<'k, Global, u8> {
        self.task.operand(self.kit.memory.state, slot)
    }

    fn plain(self, slot: u32, float: Float) -> Array<'k> {
        Array::new(self.task.operand(self.kit.memory.plain, slot), float)
    }

    fn array(self, slot: u32, float: Float) -> Array<'k> {
        Array::new(self.state(slot), float).strong()
    }

    /// An array that may be tagged.
    fn stored(self, slot: u32, storage: Storage, generation: Generation) -> Array<'k> {
        let array = self.array(slot, storage.float);
        if storage.period == 0 {
            return array;
        }
        let within = match generation {
            Generation::Input => self.task.reads() & 0xffff,
            Generation::Residual => self.task.reads() >> 16,
            Generation::Output => self.task.writes() & 0xffff,
        };
        array.tagged(self.now * storage.period + within)
    }

    fn pages(self, slot: u32, pools: PoolClass) -> Pages<'k> {
        task_pages(self.kit, self.task, slot, pools)
    }

    fn rotation(self, RotationClass { table, half }: RotationClass) -> Rotation<'k> {
        let table = self.kit.memory.plain.at(self.kit.k.lit(table).mul_wide(16u32)).cast::<f32>();
        Rotation { table, half }
    }

    fn input(self, input: InputClass) -> Input<'k> {
        match input {
            InputClass::Plain { x } => Input::Plain(self.stored(0, x, Generation::Input)),
            InputClass::RmsNorm { x, weight, eps } => Input::RmsNorm {
                x: self.stored(0, x, Generation::Input),
                weight: self.plain(1, weight),
                eps: f32::from_bits(eps),
            },
        }
    }

    fn run(self, class: &Class, weights: &dyn Weights<'k>) {
        let Call { kit, task, .. } = self;
        let (team, scratch, first_row) = (kit.team, kit.scratch, task.first_row());
        match *class {
            Class::Embed { unit, rows, columns, out } => embed(
                team,
                Embed {
                    ids: self.state(0).cast(),
                    position: self.state(1).cast(),
                    table: kit.memory.image.at(task.weights().mul_wide(512u32)).cast(),
                    unit,
                    out: self.stored(2, out, Generation::Output),
                    rows,
                    first_row,
                    first: task.first(),
                    columns,
                },
            ),
            Class::Linear { unit, rows, input, path, bias, output, width } => {
                let output = self.output(output, width);
                let (first, end) = (task.first(), task.end());
                let bias = bias.map(|bias| self.plain(2, bias));
                let input = self.input(input);
                let tile = Linear { unit, rows, first_row, first, end, input, path, bias, output };
                linear(team, scratch, weights, tile);
            }
            Class::Qkv { unit, rows, input, path, heads, bias, q, keys, pools } => {
                let keys = match keys {
                    KeysClass::Rotated(rotation) => {
                        Keys::Rotated { rotation: self.rotation(rotation), pages: self.pages(3, pools) }
                    }
                    KeysClass::Raw { out } => Keys::Raw(self.array(3, out)),
                };
                let [b0, b1, b2] = bias;
                let bias = [(5, b0), (6, b1), (7, b2)].map(|(slot, bias)| bias.map(|bias| self.plain(slot, bias)));
                let tile = Qkv {
                    unit,
                    rows,
                    first_row,
                    first: task.first(),
                    units: task.end(),
                    kv_head: task.index(),
                    heads: heads.heads,
                    kv_heads: heads.kv_heads,
                    dim: heads.dim,
                    input: self.input(input),
                    path,
                    bias,
                    q: self.array(2, q),
                    keys,
                    v: self.pages(4, pools),
                };
                qkv(team, scratch, weights, tile);
            }
            Class::Rope { rows, heads, count, x, norm, rotation, out, pools } => {
                let pages = match out {
                    Some(_) => pages_of(kit, self.array(0, x), pools),
                    None => self.pages(2, pools),
                };
                let norm =
                    norm.map(|(weight, eps)| HeadNorm { weight: self.plain(1, weight), eps: f32::from_bits(eps) });
                let (x, out) = (self.array(0, x), out.map(|out| self.array(2, out)));
                let (rotation, first_head) = (self.rotation(rotation), task.first());
                rope(team, Rope { x, norm, rotation, heads, first_head, count, rows, first_row, pages, out });
            }
            Class::Attention { rows, heads, scale, q, pools, out, streamed } => attention(
                team,
                scratch,
                weights,
                Attention {
                    heads,
                    rows,
                    first_row,
                    kv_head: task.index(),
                    split: task.split(),
                    scale: f32::from_bits(scale),
                    q: self.array(0, q),
                    keys: self.pages(1, pools),
                    values: self.pages(2, pools),
                    acc: self.state(3).cast(),
                    stats: self.state(4).cast(),
                    merged: Merged { out: self.stored(5, out, Generation::Output), arrivals: self.state(6).cast() },
                    streamed: streamed.and_then(|stage| kit.cells.streamed(stage)),
                },
                || self.signal(out),
            ),
            Class::Argmax { rows, tiles } => self.argmax(rows, tiles),
            Class::Sample { rows, tiles, vocab } => self.sample(rows, tiles, vocab),
        }
    }

    /// Signals where what the task stores from now on is tagged: who waits for it looks at the tags next.
    fn signal(self, out: Storage) {
        if out.period > 0 {
            self.kit.sync.signal_early(self.kit.table, self.task);
        }
    }

    fn argmax(self, rows: u32, tiles: u32) {
        let (value, index, out) = (self.state(0).cast(), self.state(1).cast(), self.state(2).cast());
        argmax(self.kit.team, Argmax { value, index, tiles, out, rows, first_row: self.task.first_row() });
    }

    fn sample(self, rows: u32, tiles: u32, vocab: u32) {
        let choice = Sample {
            logits: self.state(0).cast(),
            vocab,
            value: self.state(1).cast(),
            index: self.state(2).cast(),
            tiles,
            position: self.state(3).cast(),
            requests: self.state(4),
            out: self.state(5).cast(),
            rows,
            first_row: self.task.first_row(),
        };
        // No task's activations are in shared memory now.
        sample(self.kit.team, Scratch::new(self.kit.scratch.operand.cast()), choice);
    }

    fn output(self, output: OutputClass, width: u32) -> Output<'k> {
        match output {
            OutputClass::Store { out } => Output::Store { out: self.stored(5, out, Generation::Output), width },
            OutputClass::Add { residual, out } => {
                let residual = self.stored(3, residual, Generation::Residual);
                Output::Add { residual, out: self.stored(5, out, Generation::Output), width }
            }
            OutputClass::SiluMul { up_bias, out } => {
                let up_bias = up_bias.map(|bias| self.plain(3, bias));
                Output::SiluMul { up_bias, out: self.stored(5, out, Generation::Output), width }
            }
            OutputClass::Logits { tiles } => {
                let (value, index) = (self.state(3).cast(), self.state(4).cast());
                let best = Best { value, index, tiles, tile: self.task.index() };
                Output::Logits { out: self.array(5, Float::F32), width, best }
            }
        }
    }
}
