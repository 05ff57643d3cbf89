//! From tasks to opcodes and records.

use tilewright_kernels::decode::{Float, Heads, Operand, Path, Unit};
use tilewright_layout::DType;

use super::Unsupported;
use super::class::{Class, InputClass, KeysClass, OutputClass, PoolClass, RotationClass, Storage};
use super::image::{Rows, Stream};
use super::place::ALIGN;
use super::plan::RotationTable;
use super::planner::Planner;
use super::record::{OPERANDS, TaskRecord};
use crate::program::{
    Attention, Buffer, BufferId, BufferKind, HeadOutput, KeyOutput, Linear, LinearInput, LinearOutput, Op, Place, Qkv,
    Rope, Rotation, Span, Task,
};

/// Most tokens among which a device draws.
const MOST_VOCAB: u32 = 1 << 18;

/// A task's part of its stream.
struct Part {
    stream: usize,
    first: usize,
    units: usize,
}

impl<'p> Planner<'p> {
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

    /// How an activation is stored: as blocks hand it on without a release, in words of 32 bits and more.
    fn storage(&self, what: &'static str, id: BufferId) -> Result<Storage, Unsupported> {
        let storage = Storage { float: self.float(what, id)?, period: self.tags.period(id) };
        if storage.float != Float::F32 && storage.period == 0 {
            multiple(what, self.extent(id, 0)?, 4, "rows that are a multiple of 4, where they are of 16 bits")?;
        }
        Ok(storage)
    }

    /// How a residual is stored, of which single elements are read.
    fn residual(&self, id: BufferId) -> Result<Storage, Unsupported> {
        let (storage, buffer) = (self.storage("residual", id)?, self.buffer(id)?);
        if storage.float != Float::F32 && storage.period == 0 && buffer.kind.is_writable() {
            let (found, expected) = (buffer.dtype, "f32, since it cannot be tagged");
            return Err(Unsupported::DType { what: "residual", buffer: id, found, expected });
        }
        Ok(storage)
    }

    /// How the merge of partial sums is stored.
    fn merge(&self, acc: BufferId) -> Result<Storage, Unsupported> {
        let merge = self.merges.get(acc).ok_or(Unsupported::Splits { buffer: acc, found: "are of no attention" })?;
        Ok(Storage { float: merge.float, period: self.tags.period(acc) })
    }

    /// The operands of a task that lie in no buffer: which, and where.
    fn merged(&self, op: &Op) -> Result<Vec<(usize, u32)>, Unsupported> {
        let input = match op {
            Op::Linear(op) => &op.input,
            Op::Qkv(op) => &op.input,
            Op::Attention(op) => {
                let [out, arrivals] = self.places.merged(op.acc)?;
                return Ok(vec![(5, out), (6, arrivals)]);
            }
            _ => return Ok(Vec::new()),
        };
        match *input {
            LinearInput::Combine { acc, .. } => Ok(vec![(0, self.places.merged(acc)?[0])]),
            _ => Ok(Vec::new()),
        }
    }

    /// The way that activations take: of few rows they are copied, of more they are held in registers; what has no room is
    /// streamed.
    fn path(&self, rows: u32, unit: Unit, input: InputClass) -> Path {
        let packing = input.packing(rows);
        // A ring of less than half of the memory does not last while the team waits.
        let room = Operand::bytes(unit, packing) <= self.placed.target.shared_bytes_per_block as u32 / 2;
        match (rows >= self.options.held_rows, room) {
            (true, _) if Path::registers(unit, packing) <= self.options.held_registers => Path::Held,
            (false, true) => Path::Copied,
            _ => Path::Streamed { group: (self.options.streamed_units & !1).clamp(2, 64) },
        }
    }

    /// The type of an activation that is never tagged.
    fn plain_float(&self, what: &'static str, id: BufferId) -> Result<Float, Unsupported> {
        match self.float(what, id)? {
            Float::F32 => Ok(Float::F32),
            _ => Err(Unsupported::DType { what, buffer: id, found: self.buffer(id)?.dtype, expected: "f32" }),
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

    /// The record of a task; adds its opcode and its stream where they are new.
    pub(super) fn task(&mut self, task: &Task) -> Result<TaskRecord, Unsupported> {
        let (class, part, mut record) = match &task.op {
            Op::Embed(op) => {
                let (columns, hidden) = (op.cols.len() as u32, self.extent(op.table, 0)?);
                multiple("the columns of an embedding task", columns | op.cols.lo as u32, 4, "a multiple of 4")?;
                let unit = self.unit(hidden)?;
                let features = self.extent(op.table, 1)? as usize;
                let stream = self.stream(Rows::Matrix(op.table), unit, features);
                let out = self.storage("out", op.out)?;
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
            Op::Sample(op) => {
                let (tiles, vocab) = (self.extent(op.value, 0)?, self.extent(op.logits, 0)?);
                if vocab > MOST_VOCAB {
                    let (what, found) = ("the vocabulary of a choice at random", vocab as usize);
                    return Err(Unsupported::Number { what, found, expected: "2^18 at most" });
                }
                let class = Class::Sample { rows: rows(op.rows)?, tiles, vocab };
                let buffers = [op.logits, op.value, op.index, op.position, op.request, op.out];
                let operands = self.operands(&buffers.map(Some))?;
                (class, None, TaskRecord { first_row: op.rows.lo as u32, operands, ..TaskRecord::default() })
            }
            other => return Err(Unsupported::Op { op: other.name() }),
        };
        for (slot, units) in self.merged(&task.op)? {
            record.operands[slot] = units;
        }
        record.opcode = *self.opcodes.entry(class).or_insert_with(|| {
            self.classes.push(class);
            self.classes.len() as u32 - 1
        });
        if let Some(Part { stream, first, units }) = part {
            let stream = &self.streams[stream];
            record.weights = stream.at(first) as u32;
            record.stages = units as u32 * stream.unit.stages();
            record.stage_bytes = stream.unit.stage_bytes();
            if let Class::Linear { path: Path::Streamed { group }, .. }
            | Class::Qkv { path: Path::Streamed { group }, .. } = class
            {
                record.split = stream.unit.stages() | group << 16;
            }
        }
        record.task = task.id.index() as u32;
        let tags = self.tags.task(task.id);
        record.reads = tags.input | tags.residual << 16;
        record.writes = tags.output | u32::from(tags.release) << 16;
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
            LinearInput::Plain { x } => (InputClass::Plain { x: self.storage("x", x)? }, [Some(x), None]),
            LinearInput::RmsNorm { x, weight, eps } => {
                let (storage, weight_float) = (self.storage("x", x)?, self.float("norm weight", weight)?);
                let class = InputClass::RmsNorm { x: storage, weight: weight_float, eps: eps.to_bits() };
                (class, [Some(x), Some(weight)])
            }
            LinearInput::Combine { acc, .. } => (InputClass::Plain { x: self.merge(acc)? }, [None; 2]),
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
                (Rows::Matrix(op.weight), OutputClass::Store { out: self.storage("out", out)? }, [None; 2], out, 0)
            }
            LinearOutput::Add { residual, out } => {
                let class = OutputClass::Add { residual: self.residual(residual)?, out: self.storage("out", out)? };
                (Rows::Matrix(op.weight), class, [Some(residual), None], out, 0)
            }
            LinearOutput::SiluMul { up, up_bias, out } => {
                let up_float = up_bias.map(|bias| self.float("up bias", bias)).transpose()?;
                let class = OutputClass::SiluMul { up_bias: up_float, out: self.storage("out", out)? };
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
        let rows = rows(op.rows)?;
        let path = self.path(rows, unit, input);
        let class = Class::Linear { unit, rows, input, path, bias, output, width };
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
            KeyOutput::Raw { out } => (KeysClass::Raw { out: self.plain_float("k out", *out)? }, *out),
        };
        let pools = self.pools(op.v_pool, &op.at)?;
        let q = self.plain_float("q", op.q)?;
        let group = (heads.heads / kv_heads.max(1)) as usize;
        let weights = [op.wq.weight, op.wk.weight, op.wv.weight];
        let rows_of = Rows::Group { weights, kv_head: op.kv_head, group, dim: dim as usize };
        let stream = self.stream(rows_of, unit, 0);
        let rows = rows(op.rows)?;
        let path = self.path(rows, unit, input);
        let class = Class::Qkv { unit, rows, input, path, heads, bias, q, keys, pools };
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
            HeadOutput::Store { out } => (Some(self.plain_float("out", out)?), out),
            HeadOutput::Append { pool } => (None, pool),
        };
        let norm = match &op.norm {
            Some(norm) => Some((self.float("norm weight", norm.weight)?, norm.eps.to_bits())),
            None => None,
        };
        let x = self.plain_float("x", op.x)?;
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
        let q = self.plain_float("q", op.q)?;
        let (rows, scale, out) = (rows(op.rows)?, op.scale.to_bits(), self.merge(op.acc)?);
        let class = Class::Attention { rows, heads, scale, q, pools, out, streamed: None };
        let operands = self.operands(&[Some(op.q), Some(op.k_pool), Some(op.v_pool), Some(op.acc), Some(op.stats)])?;
        let (first_row, index, split) = (op.rows.lo as u32, op.kv_head as u32, op.split as u32);
        Ok((class, None, TaskRecord { first_row, index, split, operands, ..TaskRecord::default() }))
    }

    fn any_pool(&self) -> Result<BufferId, Unsupported> {
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
            split_pages: self.options.split_tokens.div_ceil(self.extent(pool, 1)?.max(1)),
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

fn multiple(what: &'static str, found: u32, of: u32, expected: &'static str) -> Result<(), Unsupported> {
    if found.is_multiple_of(of) { Ok(()) } else { Err(Unsupported::Number { what, found: found as usize, expected }) }
}

/// Rows of a task: what an MMA's operand holds.
fn rows(span: Span) -> Result<u32, Unsupported> {
    match span.len() {
        found if found <= 16 => Ok(found as u32),
        found => Err(Unsupported::Number { what: "the rows of a task", found, expected: "16 at most" }),
    }
}
