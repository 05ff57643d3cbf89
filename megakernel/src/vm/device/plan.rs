//! The plan: a placed program as the generated kernel wants it. Opcodes, tables, the order of the weights, memory.

use std::collections::HashMap;

use bytemuck::bytes_of;
use tilewright_codegen::ir::Arch;
use tilewright_kernels::decode::{Float, Heads, Unit};
use tilewright_layout::DType;

use super::class::{Class, InputClass, KeysClass, OutputClass, PoolClass, RotationClass};
use super::image::{CHUNK, Rows, Stream};
use super::place::{ALIGN, Places};
use super::record::{BlockRecord, OPERANDS, TaskRecord, WaitRecord, sum};
use super::{DeviceOptions, Unsupported};
use crate::program::{
    Attention, Buffer, BufferId, HeadOutput, KeyOutput, Linear, LinearInput, LinearOutput, Op, Place, Qkv, Rope,
    Rotation, Task,
};
use crate::validate::Placed;

/// A program as the generated kernel wants it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The choices it was made with; `stages` as shared memory allows.
    pub options: DeviceOptions,
    /// The architecture that code is generated for.
    pub arch: Arch,
    /// Blocks: one for each SM of the target.
    pub blocks: u32,
    /// Opcodes.
    pub classes: Vec<Class>,
    /// Counters of the program; two of the machine's own follow.
    pub counters: u32,
    /// Each block's share of the tables.
    pub directory: Vec<BlockRecord>,
    /// The tables of all blocks.
    pub tables: Vec<u8>,
    /// The weights that are streamed, and in which order.
    pub streams: Vec<Stream>,
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Where everything else lies.
    pub places: Places,
    /// Tables of rotations: frequencies, factor, positions, and where they begin in the plain weights, bytes.
    pub rotations: Vec<RotationTable>,
    /// Bytes of the plain weights with the tables of rotations.
    pub plain_bytes: u64,
    /// Bytes of shared memory for activations.
    pub operand_bytes: u32,
    /// Bytes of shared memory for the tables of a block.
    pub table_bytes: u32,
    /// Rows of the batch.
    pub rows: u32,
    /// The cells that a launch of many steps feeds back; `None` where the program makes no greedy choice.
    pub feedback: Option<Feedback>,
}

/// Where the cells lie that a launch of many steps feeds back, bytes of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The token of every row.
    pub token: u64,
    /// Its position.
    pub position: u64,
    /// The greedy choice of every row.
    pub next_token: u64,
}

/// Cosines and sines of every position.
#[derive(Clone, Debug, PartialEq)]
pub struct RotationTable {
    /// The weight buffer of frequencies.
    pub inv_freq: BufferId,
    /// Factor on both.
    pub scale: f32,
    /// Positions.
    pub positions: usize,
    /// Half the dimensions of a head.
    pub half: usize,
    /// Where it begins in the plain weights, bytes.
    pub start: u64,
}

impl Plan {
    /// Tasks of the longest queue.
    pub fn longest_queue(&self) -> u32 {
        self.directory.iter().map(|block| block.tasks).max().unwrap_or(0)
    }

    /// Plans a placed program.
    ///
    /// # Errors
    /// If the program has ops, shapes or types that the device functions do not have.
    pub fn new(placed: &Placed, options: DeviceOptions) -> Result<Plan, Unsupported> {
        Planner::new(placed, options)?.plan()
    }
}

struct Planner<'p> {
    placed: &'p Placed,
    options: DeviceOptions,
    arch: Arch,
    places: Places,
    streams: Vec<Stream>,
    by_rows: HashMap<Rows, usize>,
    rotations: Vec<RotationTable>,
    plain_bytes: u64,
    classes: Vec<Class>,
    opcodes: HashMap<Class, u32>,
}

/// A task's part of its stream.
struct Part {
    stream: usize,
    first: usize,
    units: usize,
}

impl<'p> Planner<'p> {
    fn new(placed: &'p Placed, options: DeviceOptions) -> Result<Planner<'p>, Unsupported> {
        let arch = match placed.target.arch.as_str() {
            "sm_90a" => Arch::Sm90a,
            _ => return Err(Unsupported::Target { target: placed.target.name.clone() }),
        };
        let plain = plain_weights(placed);
        let places = Places::new(placed, |buffer| plain[buffer.id.index()]);
        let plain_bytes = places.plain;
        Ok(Planner {
            placed,
            options,
            arch,
            places,
            streams: Vec::new(),
            by_rows: HashMap::new(),
            rotations: Vec::new(),
            plain_bytes,
            classes: Vec::new(),
            opcodes: HashMap::new(),
        })
    }

    fn plan(mut self) -> Result<Plan, Unsupported> {
        let mut records = Vec::new();
        for task in &self.placed.tasks {
            let record = self.task(task).map_err(|source| Unsupported::Task {
                task: task.id,
                label: task.label.clone(),
                source: Box::new(source),
            })?;
            records.push(record);
        }
        let image_bytes = self.streams.last().map_or(0, |last| (last.start + last.chunks()) * CHUNK);
        let (directory, tables) = tables(self.placed, &mut records);
        let table_bytes = directory.iter().map(|block| block.bytes).max().unwrap_or(0);
        let operand_bytes =
            self.classes.iter().map(|c| c.operand_bytes(self.options.warps)).max().unwrap_or(0).next_multiple_of(128);
        let rows = self.placed.tasks.iter().map(|task| rows_of(&task.op)).max().unwrap_or(1);
        let options = self.stages(table_bytes, operand_bytes)?;
        let feedback = self.feedback();
        Ok(Plan {
            options,
            arch: self.arch,
            blocks: directory.len() as u32,
            counters: self.placed.counters.len() as u32,
            classes: self.classes,
            directory,
            tables,
            streams: self.streams,
            image_bytes,
            places: self.places,
            rotations: self.rotations,
            plain_bytes: self.plain_bytes,
            operand_bytes,
            table_bytes,
            rows,
            feedback,
        })
    }

    /// The cells that the embedding reads and the argmax decides, where the program has one of each kind.
    fn feedback(&self) -> Option<Feedback> {
        let tasks = || self.placed.tasks.iter().map(|task| &task.op);
        let embed = tasks().find_map(|op| if let Op::Embed(embed) = op { Some(embed) } else { None })?;
        let argmax = tasks().find_map(|op| if let Op::Argmax(argmax) = op { Some(argmax) } else { None })?;
        let [token, position, next_token] =
            [embed.ids, embed.position, argmax.out].map(|buffer| self.places.offset(buffer));
        Some(Feedback { token, position, next_token })
    }

    /// The options with as many stages as shared memory holds.
    fn stages(&self, table_bytes: u32, operand_bytes: u32) -> Result<DeviceOptions, Unsupported> {
        let options = self.options;
        let limit = self.placed.target.shared_bytes_per_block as u64;
        let fixed = u64::from(table_bytes + operand_bytes + options.sums_bytes + options.warps * 64 + 4096);
        let (stage, rest) = (u64::from(options.stage_bytes), limit.saturating_sub(fixed));
        let stages = (rest / stage).min(options.stages.into());
        if stages < 2 {
            return Err(Unsupported::Shared { needed: fixed + 2 * stage, limit });
        }
        Ok(DeviceOptions { stages: stages as u32, ..options })
    }

    fn buffer(&self, id: BufferId) -> Result<&'p Buffer, Unsupported> {
        self.placed.program().buffers.get(id.index()).ok_or(Unsupported::Cells)
    }

    /// Extents of a buffer from the last on: `extent(b, 0)` is the innermost.
    fn extent(&self, id: BufferId, from_last: usize) -> Result<u32, Unsupported> {
        let shape = &self.buffer(id)?.shape;
        let at = shape.len().checked_sub(from_last + 1);
        Ok(at.and_then(|at| shape.get(at)).map_or(0, |&extent| extent as u32))
    }

    fn float(&self, what: &'static str, id: BufferId) -> Result<Float, Unsupported> {
        match self.buffer(id)?.dtype {
            DType::F32 => Ok(Float::F32),
            DType::F16 => Ok(Float::F16),
            DType::BF16 => Ok(Float::Bf16),
            found => Err(Unsupported::DType { what, buffer: id, found, expected: "f32, f16 or bf16" }),
        }
    }

    fn unit(&self, k: u32) -> Result<Unit, Unsupported> {
        multiple("the length of a weight row", k, 4, "a multiple of 4")?;
        Ok(Unit::new(k, self.options.warps, self.options.stage_bytes)?)
    }

    /// The stream of these rows, added where it is new.
    fn stream(&mut self, rows: Rows, unit: Unit, features: usize) -> usize {
        let start = self.streams.last().map_or(0, |last| last.start + last.chunks());
        let streams = &mut self.streams;
        *self.by_rows.entry(rows.clone()).or_insert_with(|| {
            streams.push(Stream { rows, unit, features, start });
            streams.len() - 1
        })
    }

    fn task(&mut self, task: &Task) -> Result<TaskRecord, Unsupported> {
        let (class, part, mut record) = match &task.op {
            Op::Embed(op) => {
                let (columns, hidden) = (op.cols.len() as u32, self.extent(op.table, 0)?);
                multiple("the columns of an embedding task", columns | op.cols.lo as u32, 4, "a multiple of 4")?;
                let unit = self.unit(hidden)?;
                let features = self.extent(op.table, 1)? as usize;
                let stream = self.stream(Rows::Matrix(op.table), unit, features);
                let out = self.float("out", op.out)?;
                let class = Class::Embed { unit, rows: rows(op.rows)?, columns, out };
                let operands = self.operands(&[Some(op.ids), Some(op.position), Some(op.out)])?;
                let weights = self.streams[stream].start as u32;
                let (first_row, first) = (op.rows.lo as u32, op.cols.lo as u32);
                (class, None, TaskRecord { weights, first_row, first, operands, ..TaskRecord::default() })
            }
            Op::Linear(op) => self.linear(op)?,
            Op::Qkv(op) => self.qkv(op)?,
            Op::Rope(op) => self.rope(op)?,
            Op::Attention(op) => self.attention(op)?,
            Op::Argmax(op) => {
                let class = Class::Argmax { rows: rows(op.rows)?, tiles: self.extent(op.value, 0)? };
                let operands = self.operands(&[Some(op.value), Some(op.index), Some(op.out)])?;
                (class, None, TaskRecord { first_row: op.rows.lo as u32, operands, ..TaskRecord::default() })
            }
            other => return Err(Unsupported::Op { op: other.name() }),
        };
        record.opcode = *self.opcodes.entry(class).or_insert_with(|| {
            self.classes.push(class);
            self.classes.len() as u32 - 1
        });
        if let Some(Part { stream, first, units }) = part {
            let stream = &self.streams[stream];
            record.weights = stream.at(first) as u32;
            record.stages = units as u32 * stream.unit.stages();
            record.stage_bytes = stream.unit.stage_bytes();
        }
        record.task = task.id.index() as u32;
        Ok(record)
    }

    fn operands(&self, buffers: &[Option<BufferId>]) -> Result<[u32; OPERANDS], Unsupported> {
        let mut operands = [0; OPERANDS];
        for (slot, buffer) in operands.iter_mut().zip(buffers) {
            if let Some(buffer) = buffer {
                *slot = self.places.operand(*buffer)?;
            }
        }
        Ok(operands)
    }

    /// The input's class and its two operands.
    fn input(&self, input: &LinearInput) -> Result<(InputClass, [Option<BufferId>; 2]), Unsupported> {
        Ok(match *input {
            LinearInput::Plain { x } => (InputClass::Plain { x: self.float("x", x)? }, [Some(x), None]),
            LinearInput::RmsNorm { x, weight, eps } => {
                let (x_float, weight_float) = (self.float("x", x)?, self.float("norm weight", weight)?);
                let class = InputClass::RmsNorm { x: x_float, weight: weight_float, eps: eps.to_bits() };
                (class, [Some(x), Some(weight)])
            }
            LinearInput::Combine { acc, stats } => {
                let [splits, heads] = [self.extent(acc, 1)?, self.extent(acc, 2)?];
                let heads = Heads { heads, kv_heads: heads, dim: self.extent(acc, 0)?, splits };
                multiple("the dimensions of a head", heads.dim, 8, "a multiple of 8")?;
                (InputClass::Merge { heads }, [Some(acc), Some(stats)])
            }
        })
    }

    fn linear(&mut self, op: &Linear) -> Result<(Class, Option<Part>, TaskRecord), Unsupported> {
        let (k, features) = (self.extent(op.weight, 0)?, self.extent(op.weight, 1)?);
        let unit = self.unit(k)?;
        multiple("the first feature of a tile", op.cols.lo as u32, Unit::ROWS, "a multiple of 8")?;
        let (input, [x, second]) = self.input(&op.input)?;
        let bias = op.bias.map(|bias| self.float("bias", bias)).transpose()?;
        let (rows_of, output, extra, out, index) = match op.output {
            LinearOutput::Store { out } => {
                (Rows::Matrix(op.weight), OutputClass::Store { out: self.float("out", out)? }, [None; 2], out, 0)
            }
            LinearOutput::Add { residual, out } => {
                let class =
                    OutputClass::Add { residual: self.float("residual", residual)?, out: self.float("out", out)? };
                (Rows::Matrix(op.weight), class, [Some(residual), None], out, 0)
            }
            LinearOutput::SiluMul { up, up_bias, out } => {
                let up_float = up_bias.map(|bias| self.float("up bias", bias)).transpose()?;
                let class = OutputClass::SiluMul { up_bias: up_float, out: self.float("out", out)? };
                (Rows::Turns(op.weight, up), class, [up_bias, None], out, 0)
            }
            LinearOutput::Logits { out, best_value, best_index, tile } => {
                let class = OutputClass::Logits { tiles: self.extent(best_value, 0)? };
                (Rows::Matrix(op.weight), class, [Some(best_value), Some(best_index)], out, tile as u32)
            }
        };
        let turns = if matches!(rows_of, Rows::Turns(..)) { 2 } else { 1 };
        let stream = self.stream(rows_of, unit, features as usize);
        let (first, units) = (op.cols.lo / 8 * turns, op.cols.len().div_ceil(8) * turns);
        let width = self.extent(out, 0)?;
        let class = Class::Linear { unit, rows: rows(op.rows)?, input, bias, output, width };
        let operands = self.operands(&[x, second, op.bias, extra[0], extra[1], Some(out)])?;
        let (first_row, lo, end) = (op.rows.lo as u32, op.cols.lo as u32, op.cols.hi as u32);
        let record = TaskRecord { first_row, first: lo, end, index, operands, ..TaskRecord::default() };
        Ok((class, Some(Part { stream, first, units }), record))
    }

    fn qkv(&mut self, op: &Qkv) -> Result<(Class, Option<Part>, TaskRecord), Unsupported> {
        let unit = self.unit(self.extent(op.wq.weight, 0)?)?;
        let (input, [x, second]) = self.input(&op.input)?;
        let (heads, kv_heads, dim) = (self.extent(op.q, 1)?, self.extent(op.v_pool, 3)?, self.extent(op.q, 0)?);
        let heads = Heads { heads, kv_heads, dim, splits: 1 };
        let biases = [&op.wq, &op.wk, &op.wv].map(|projection| projection.bias);
        let mut bias = [None; 3];
        for (float, buffer) in bias.iter_mut().zip(biases) {
            *float = buffer.map(|buffer| self.float("bias", buffer)).transpose()?;
        }
        let (keys, k_out) = match &op.k {
            KeyOutput::RopeAppend { rope, pool } => (KeysClass::Rotated(self.rotation(rope, &op.at, *pool)?), *pool),
            KeyOutput::Raw { out } => (KeysClass::Raw { out: self.float("k out", *out)? }, *out),
        };
        let pools = self.pools(op.v_pool, &op.at)?;
        let q = self.float("q", op.q)?;
        let group = (heads.heads / kv_heads.max(1)) as usize;
        let weights = [op.wq.weight, op.wk.weight, op.wv.weight];
        let rows_of = Rows::Group { weights, kv_head: op.kv_head, group, dim: dim as usize };
        let stream = self.stream(rows_of, unit, 0);
        let class = Class::Qkv { unit, rows: rows(op.rows)?, input, heads, bias, q, keys, pools };
        let [bq, bk, bv] = biases;
        let operands = self.operands(&[x, second, Some(op.q), Some(k_out), Some(op.v_pool), bq, bk, bv])?;
        let (first, end, index) = (op.units.lo as u32, op.units.len() as u32, op.kv_head as u32);
        let record = TaskRecord { first_row: op.rows.lo as u32, first, end, index, operands, ..TaskRecord::default() };
        Ok((class, Some(Part { stream, first: op.units.lo, units: op.units.len() }), record))
    }

    fn rope(&mut self, op: &Rope) -> Result<(Class, Option<Part>, TaskRecord), Unsupported> {
        let (heads, count) = (self.extent(op.x, 1)?, op.heads.len() as u32);
        // Without an append there is no pool to learn the pages from: any pool of the program has the same.
        let pool = match op.output {
            HeadOutput::Append { pool } => pool,
            HeadOutput::Store { .. } => self.any_pool()?,
        };
        let rotation = self.rotation(&op.rope, &op.at, pool)?;
        let (out, target) = match op.output {
            HeadOutput::Store { out } => (Some(self.float("out", out)?), out),
            HeadOutput::Append { pool } => (None, pool),
        };
        let norm = match &op.norm {
            Some(norm) => Some((self.float("norm weight", norm.weight)?, norm.eps.to_bits())),
            None => None,
        };
        let x = self.float("x", op.x)?;
        let pools = self.pools(pool, &op.at)?;
        let class = Class::Rope { rows: rows(op.rows)?, heads, count, x, norm, rotation, out, pools };
        let operands = self.operands(&[Some(op.x), op.norm.as_ref().map(|norm| norm.weight), Some(target)])?;
        let (first_row, first) = (op.rows.lo as u32, op.heads.lo as u32);
        Ok((class, None, TaskRecord { first_row, first, operands, ..TaskRecord::default() }))
    }

    fn attention(&self, op: &Attention) -> Result<(Class, Option<Part>, TaskRecord), Unsupported> {
        let (heads, kv_heads) = (self.extent(op.q, 1)?, self.extent(op.k_pool, 3)?);
        let heads = Heads { heads, kv_heads, dim: self.extent(op.q, 0)?, splits: self.extent(op.acc, 1)? };
        multiple("the dimensions of a head", heads.dim, 8, "a multiple of 8")?;
        let pools = self.pools(op.k_pool, &op.at)?;
        multiple("the tokens of a page", pools.page_tokens, 16, "a multiple of 16")?;
        if pools.float != Float::Bf16 {
            let (what, buffer, found) = ("the key pool", op.k_pool, self.buffer(op.k_pool)?.dtype);
            return Err(Unsupported::DType { what, buffer, found, expected: "bf16" });
        }
        let q = self.float("q", op.q)?;
        let class = Class::Attention { rows: rows(op.rows)?, heads, scale: op.scale.to_bits(), q, pools };
        let operands = self.operands(&[Some(op.q), Some(op.k_pool), Some(op.v_pool), Some(op.acc), Some(op.stats)])?;
        let (first_row, index, split) = (op.rows.lo as u32, op.kv_head as u32, op.split as u32);
        Ok((class, None, TaskRecord { first_row, index, split, operands, ..TaskRecord::default() }))
    }

    fn any_pool(&self) -> Result<BufferId, Unsupported> {
        use crate::program::BufferKind;
        let pool = self.placed.program().buffers.iter().find(|b| b.kind == BufferKind::KvPool);
        pool.map(|buffer| buffer.id).ok_or(Unsupported::Cells)
    }

    fn pools(&self, pool: BufferId, at: &Place) -> Result<PoolClass, Unsupported> {
        Ok(PoolClass {
            float: self.float("the pool", pool)?,
            pages: self.extent(pool, 2)?,
            page_tokens: self.extent(pool, 1)?,
            dim: self.extent(pool, 0)?,
            position: self.places.operand(at.position)?,
            table: self.places.operand(at.page_table)?,
            table_width: self.extent(at.page_table, 0)?,
        })
    }

    fn rotation(&mut self, rotation: &Rotation, at: &Place, pool: BufferId) -> Result<RotationClass, Unsupported> {
        let half = self.extent(rotation.inv_freq, 0)?;
        let positions = self.extent(at.page_table, 0)? as usize * self.extent(pool, 1)? as usize;
        let same = |t: &&RotationTable| {
            t.inv_freq == rotation.inv_freq && t.scale.to_bits() == rotation.scale.to_bits() && t.positions == positions
        };
        let start = match self.rotations.iter().find(same) {
            Some(table) => table.start,
            None => {
                let (inv_freq, scale, start) = (rotation.inv_freq, rotation.scale, self.plain_bytes);
                self.rotations.push(RotationTable { inv_freq, scale, positions, half: half as usize, start });
                self.plain_bytes = (start + positions as u64 * u64::from(half) * 8).next_multiple_of(ALIGN);
                start
            }
        };
        Ok(RotationClass { table: (start / 16) as u32, half })
    }
}

/// Which weights are read as they are.
fn plain_weights(placed: &Placed) -> Vec<bool> {
    let mut plain = vec![false; placed.buffers.len()];
    let mut mark = |buffer: Option<BufferId>| {
        if let Some(mark) = buffer.and_then(|buffer| plain.get_mut(buffer.index())) {
            *mark = true;
        }
    };
    for task in &placed.tasks {
        let input = match &task.op {
            Op::Linear(op) => {
                mark(op.bias);
                if let LinearOutput::SiluMul { up_bias, .. } = op.output {
                    mark(up_bias);
                }
                Some(&op.input)
            }
            Op::Qkv(op) => {
                [&op.wq, &op.wk, &op.wv].into_iter().for_each(|projection| mark(projection.bias));
                Some(&op.input)
            }
            Op::Rope(op) => {
                mark(op.norm.as_ref().map(|norm| norm.weight));
                None
            }
            _ => None,
        };
        if let Some(LinearInput::RmsNorm { weight, .. }) = input {
            mark(Some(*weight));
        }
    }
    plain
}

/// Fills in waits and signals, and lays out each block's tables.
fn tables(placed: &Placed, records: &mut [TaskRecord]) -> (Vec<BlockRecord>, Vec<u8>) {
    let mut periods = vec![0u32; placed.counters.len()];
    for counter in placed.tasks.iter().flat_map(|task| &task.signals) {
        periods[counter.index()] += 1;
    }
    let (mut directory, mut tables) = (Vec::new(), Vec::new());
    for queue in placed.queues() {
        let start = tables.len();
        let (mut waits, mut signals) = (Vec::new(), Vec::<u32>::new());
        for id in queue {
            let (task, record) = (&placed.tasks[id.index()], &mut records[id.index()]);
            (record.waits, record.wait_count) = (waits.len() as u32, task.waits.len() as u32);
            (record.signals, record.signal_count) = (signals.len() as u32, task.signals.len() as u32);
            waits.extend(task.waits.iter().map(|wait| WaitRecord {
                counter: wait.counter.index() as u32,
                threshold: wait.threshold,
                period: periods[wait.counter.index()],
                unused: 0,
            }));
            signals.extend(task.signals.iter().map(|counter| counter.index() as u32));
            tables.extend_from_slice(bytes_of(record));
        }
        let waits_at = tables.len() - start;
        waits.iter().for_each(|wait| tables.extend_from_slice(bytes_of(wait)));
        let signals_at = tables.len() - start;
        signals.iter().for_each(|signal| tables.extend_from_slice(bytes_of(signal)));
        tables.resize(tables.len().next_multiple_of(16), 0);
        let mut block = BlockRecord {
            start: start as u32,
            bytes: (tables.len() - start) as u32,
            tasks: queue.len() as u32,
            waits: waits_at as u32,
            signals: signals_at as u32,
            ..BlockRecord::default()
        };
        block.sum = sum(&block, &tables);
        directory.push(block);
    }
    (directory, tables)
}

fn multiple(what: &'static str, found: u32, of: u32, expected: &'static str) -> Result<(), Unsupported> {
    if found.is_multiple_of(of) { Ok(()) } else { Err(Unsupported::Number { what, found: found as usize, expected }) }
}

/// Rows of a task: what an MMA's operand holds.
fn rows(span: crate::program::Span) -> Result<u32, Unsupported> {
    match span.len() {
        found if found <= 16 => Ok(found as u32),
        found => Err(Unsupported::Number { what: "the rows of a task", found, expected: "16 at most" }),
    }
}

fn rows_of(op: &Op) -> u32 {
    match op {
        Op::Embed(op) => op.rows.hi as u32,
        Op::Linear(op) => op.rows.hi as u32,
        Op::Argmax(op) => op.rows.hi as u32,
        _ => 1,
    }
}
