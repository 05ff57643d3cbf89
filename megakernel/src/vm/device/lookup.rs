//! Queries of the planner by ops: types, extents, offsets, streams, tables.

use crate::edges::SplitActivations;
use std::mem::offset_of;

use tilewright_codegen::ir::Arch;
use tilewright_codegen::target::Target;
use tilewright_kernels::gemv::activations::{Reordering, ScaledForm};
use tilewright_kernels::kv::{PoolType, SplitPages};
use tilewright_kernels::tile::{Float, MAX_DEVICES};
use tilewright_kernels::weights::{Codes, CodesError, StagePlacement, Strip};
use tilewright_layout::DType;

use super::planner::Planner;
use super::record::{PAIRS, PART, PHASES, PREFETCH_COUNT_BITS, TaskRecord};
use super::storage::{KvPools, RotationRows, ScaledCode, Storage};
use super::{DeviceOptions, Planned, Stretch, Taken};
use crate::ops::{Rotation, RowCells};
use crate::program::{Buffer, BufferId, BufferKind, Source, Task, float_of};
use crate::vm::resident::kv::ALIGN;
use crate::vm::resident::{RotationTable, Rows, StageOrder, Stream, pool_fits};
use crate::vm::{Lengths, Unsupported, multiple};

/// Buffers on several devices that get one result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    /// Their devices, ascending.
    pub devices: Vec<u32>,
    /// Their operands, as records hold them.
    pub operands: Vec<u32>,
}

impl Destinations {
    /// The operands as fields of a record, zeros after the last.
    pub fn fields(&self) -> [u32; MAX_DEVICES] {
        std::array::from_fn(|at| self.operands.get(at).copied().unwrap_or(0))
    }
}

impl Planner<'_> {
    /// The choices of speed.
    pub fn options(&self) -> &DeviceOptions {
        &self.options
    }

    /// The device.
    pub fn target(&self) -> &Target {
        &self.placed.target
    }

    /// A buffer of the program.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn buffer(&self, id: BufferId) -> Result<&Buffer, Unsupported> {
        self.placed.program().buffers.get(id.index()).ok_or(Unsupported::Cells)
    }

    /// Extents of a buffer from the last on: `extent(b, 0)` is the innermost.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn extent(&self, id: BufferId, from_last: usize) -> Result<u32, Unsupported> {
        let shape = &self.buffer(id)?.shape;
        let at = shape.len().checked_sub(from_last + 1);
        Ok(at.and_then(|at| shape.get(at)).map_or(0, |&extent| extent as u32))
    }

    /// The floating-point type of a buffer; `what` names it in a refusal.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn float(&self, what: &'static str, id: BufferId) -> Result<Float, Unsupported> {
        let found = self.buffer(id)?.dtype;
        float_of(found).ok_or(Unsupported::DType { what, buffer: id, found, expected: "f32, f16 or bf16" })
    }

    /// The storage of an activation that blocks hand over without a release, in words of 32 bits or
    /// more.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn storage(&self, what: &'static str, id: BufferId) -> Result<Storage, Unsupported> {
        let storage = Storage { float: self.float(what, id)?, period: self.edges.period(id) };
        if storage.float != Float::F32 && storage.period == 0 {
            multiple(what, self.extent(id, 0)?, 4, "rows that are a multiple of 4, where they are of 16 bits")?;
        }
        Ok(storage)
    }

    /// The storage of a residual that is read by single elements.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn residual(&self, id: BufferId) -> Result<Storage, Unsupported> {
        let storage = self.storage("residual", id)?;
        let buffer = self.buffer(id)?;
        if storage.float != Float::F32 && storage.period == 0 && buffer.kind.is_writable() {
            let found = buffer.dtype;
            let expected = "f32, since it cannot be packets";
            return Err(Unsupported::DType { what: "residual", buffer: id, found, expected });
        }
        Ok(storage)
    }

    /// The storage of the merge of partial sums.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn merge(&self, acc: BufferId) -> Result<Storage, Unsupported> {
        let merge =
            self.edges.merge_of(acc).ok_or(Unsupported::Splits { buffer: acc, found: "are of no attention" })?;
        Ok(Storage { float: merge.float, period: self.edges.period(acc) })
    }

    /// The type of an activation that is never packets.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn plain_float(&self, what: &'static str, id: BufferId) -> Result<Float, Unsupported> {
        match self.float(what, id)? {
            Float::F32 => Ok(Float::F32),
            Float::F16 | Float::Bf16 => {
                Err(Unsupported::DType { what, buffer: id, found: self.buffer(id)?.dtype, expected: "f32" })
            }
        }
    }

    /// The shape of a strip of weight rows of that length, which are rows of one of these: bf16, or
    /// the form of codes that holds all of them.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn strip(&self, k: u32, weights: &[BufferId]) -> Result<Strip, Unsupported> {
        multiple("the length of a weight row", k, 4, "a multiple of 4")?;
        let DeviceOptions { warps, stage_bytes, .. } = self.options;
        match self.codes(weights)? {
            None => Ok(Strip::new(k, warps, stage_bytes)?),
            Some(codes) => Ok(Strip::of_codes(k, warps, stage_bytes, codes)?),
        }
    }

    /// The form of codes that holds all of these weights, or that none of them is quantised.
    fn codes(&self, weights: &[BufferId]) -> Result<Option<Codes>, Unsupported> {
        let form = |&id: &BufferId| -> Result<(&Buffer, Option<Codes>), Unsupported> {
            let buffer = self.buffer(id)?;
            let named = |source| self.refused_codes(buffer, source);
            Ok((buffer, buffer.quantised.map(|form| form.codes().map_err(named)).transpose()?))
        };
        let forms = weights.iter().map(form).collect::<Result<Vec<_>, _>>()?;
        let Some((&(first, mut all), rest)) = forms.split_first() else { return Ok(None) };
        for &(buffer, form) in rest {
            let mixed = || Unsupported::Mixed { first: first.name.clone(), second: buffer.name.clone() };
            all = match (all, form) {
                (None, None) => None,
                (Some(a), Some(b)) => Some(a.join(b).ok_or_else(mixed)?),
                _ => return Err(mixed()),
            };
        }
        Ok(all)
    }

    /// The error for codes that no device supports. It names a cut between devices if the cut
    /// splits a group.
    fn refused_codes(&self, buffer: &Buffer, source: CodesError) -> Unsupported {
        let columns = |buffer: &Buffer| match &buffer.source {
            Some(Source::Part { tensor, index, .. }) => index.get(1).map(|&columns| (tensor.clone(), columns)),
            Some(Source::Experts { tensor, index, .. }) => index.get(1).map(|&columns| (tensor.clone(), columns)),
            Some(Source::Tensor(_) | Source::Heads { .. } | Source::Random(_) | Source::Values(_)) | None => None,
        };
        if let (CodesError::Group(group), Some((weight, own))) = (source, columns(buffer)) {
            let others = self.placed.program().buffers.iter().filter_map(columns);
            let mut cuts = others.filter(|(tensor, part)| *tensor == weight && *part != own).map(|(_, part)| part.lo);
            let devices = self.placed.devices;
            if let Some(column) = cuts.find(|&at| at > 0).or((own.lo > 0).then_some(own.lo)) {
                return Unsupported::Cut { weight, column, devices, group };
            }
        }
        Unsupported::Codes { weight: buffer.name.clone(), source }
    }

    /// The strip of a matrix whose rows are read one by one.
    ///
    /// # Errors
    /// If its columns are permuted, or there is none that a device has.
    pub fn table(&self, k: u32, weight: BufferId) -> Result<Strip, Unsupported> {
        let buffer = self.buffer(weight)?;
        if buffer.quantised.is_some_and(|form| form.ordered) {
            return Err(Unsupported::Codes { weight: buffer.name.clone(), source: CodesError::Order });
        }
        self.strip(k, &[weight])
    }

    /// The operand of a buffer as records hold it: its offset in its space, in units of 16 bytes.
    ///
    /// # Errors
    /// If a record cannot say it.
    pub fn operand(&self, buffer: BufferId) -> Result<u32, Unsupported> {
        self.places.operand(buffer)
    }

    /// The destinations of a result that is stored on several devices: each buffer's device and
    /// operand, by device, and their common storage.
    ///
    /// # Errors
    /// [`Unsupported::Sent`] where two are on one device, or they are stored in different ways; as
    /// [`Planner::operand`].
    pub fn destinations(
        &self,
        what: &'static str,
        buffers: impl IntoIterator<Item = BufferId>,
    ) -> Result<(Destinations, Storage), Unsupported> {
        let of = |buffer| Ok((self.home(buffer)?, self.operand(buffer)?, self.storage(what, buffer)?));
        let mut all = buffers.into_iter().map(of).collect::<Result<Vec<(u32, u32, Storage)>, Unsupported>>()?;
        all.sort_unstable_by_key(|&(device, ..)| device);
        let alike = all.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].2 == pair[1].2);
        let &(_, _, storage) = all.first().filter(|_| alike && all.len() <= MAX_DEVICES).ok_or(Unsupported::Sent)?;
        let (devices, operands) = all.into_iter().map(|(device, operand, _)| (device, operand)).unzip();
        Ok((Destinations { devices, operands }, storage))
    }

    /// The device whose memory has a buffer.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn home(&self, id: BufferId) -> Result<u32, Unsupported> {
        Ok(self.buffer(id)?.device.map_or(self.device, |device| device.index()) as u32)
    }

    /// The device of a result that a task stores on one device, which may be another than its own;
    /// nothing where there is one.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn far(&self, id: BufferId) -> Result<Option<u32>, Unsupported> {
        let home = self.home(id)?;
        Ok((self.placed.devices > 1).then_some(home))
    }

    /// The place of an optional operand; 0 without one.
    ///
    /// # Errors
    /// As [`Planner::operand`].
    pub fn operand_of(&self, buffer: Option<BufferId>) -> Result<u32, Unsupported> {
        buffer.map_or(Ok(0), |buffer| self.operand(buffer))
    }

    /// Any pool of the program.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn any_pool(&self) -> Result<BufferId, Unsupported> {
        let pool = self.placed.program().buffers.iter().find(|b| b.kind == BufferKind::KvPool);
        pool.map(|buffer| buffer.id).ok_or(Unsupported::Cells)
    }

    /// The pools like one, with the cells that place tokens.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn pools(&mut self, pool: BufferId, at: &RowCells) -> Result<KvPools, Unsupported> {
        let lengths = Lengths { pages: self.extent(pool, 2)?, table_width: self.extent(at.page_table, 0)? };
        let known = *self.lengths.get_or_insert(lengths);
        if known != lengths {
            return Err(Unsupported::Lengths { pool, found: lengths, known });
        }
        pool_fits([self.extent(pool, 3)?, self.extent(pool, 2)?, self.extent(pool, 1)?, self.extent(pool, 0)?])?;
        Ok(KvPools {
            of: self.pool_type(pool)?,
            page_tokens: self.extent(pool, 1)?,
            dim: self.extent(pool, 0)?,
            position: self.places.operand(at.position)?,
            table: self.places.operand(at.page_table)?,
            split_pages: self.split_pages(self.extent(pool, 1)?),
        })
    }

    /// The element type of a pool.
    fn pool_type(&self, pool: BufferId) -> Result<PoolType, Unsupported> {
        let buffer = self.buffer(pool)?;
        if buffer.dtype != DType::F8E4M3 {
            return Ok(PoolType::Float(self.float("the pool", pool)?));
        }
        let what = "the pool";
        let found = buffer.dtype;
        match self.arch {
            Arch::Sm80 => Err(Unsupported::DType { what, buffer: pool, found, expected: "bf16, being of sm_80" }),
            Arch::Sm89 | Arch::Sm90a | Arch::Sm100a | Arch::Sm120 => Ok(PoolType::E4m3),
        }
    }

    /// Whether what the planned task reads of a buffer is there from the step's beginning until it
    /// has read it: every task that writes some of it waits until all signals of a counter of this
    /// task are there. A device function may [fill](super::DeviceFunction::fill) stages of the ring
    /// with it.
    pub fn is_immutable(&self, buffer: BufferId) -> bool {
        self.edges.edges().is_immutable(self.placed, self.task, buffer)
    }

    /// The number of the planned task's wait after which what it reads of a buffer is there: a device
    /// function may fill stages of the ring by what it says
    /// ([`fills_after`](super::DeviceFunction::fills_after)).
    ///
    /// # Errors
    /// If no single wait says so.
    pub fn wait_for(&self, what: &'static str, buffer: BufferId) -> Result<u32, Unsupported> {
        let found = self.edges.edges().wait_for(self.placed, self.task, buffer);
        found.map(|wait| wait as u32).ok_or(Unsupported::Unawaited { what, buffer })
    }

    /// The factor of a pool's codes, as records hold it.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn pool_scale(&self, pool: BufferId) -> Result<u32, Unsupported> {
        Ok(self.buffer(pool)?.factor().to_bits())
    }

    /// The number of pages, or blocks, of that number of tokens in a split of attention.
    pub fn split_pages(&self, tokens: u32) -> SplitPages {
        let [fewest, single] =
            [self.options.split_tokens, self.options.thresholds.single_tokens].map(|all| all.div_ceil(tokens.max(1)));
        SplitPages { fewest, single }
    }

    /// The table of a rotation, for the positions that the page tables have room for.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn rotation(
        &mut self,
        rotation: &Rotation,
        at: &RowCells,
        pool: BufferId,
    ) -> Result<RotationRows, Unsupported> {
        let half = self.extent(rotation.inv_freq, 0)?;
        let positions = self.extent(at.page_table, 0)? as usize * self.extent(pool, 1)? as usize;
        let same = |t: &&RotationTable| {
            t.inv_freq == rotation.inv_freq && t.scale.to_bits() == rotation.scale.to_bits() && t.positions == positions
        };
        let start = match self.rotations.iter().find(same) {
            Some(table) => table.start,
            None => {
                let inv_freq = rotation.inv_freq;
                let scale = rotation.scale;
                let start = self.plain_bytes;
                let table = RotationTable { inv_freq, scale, positions, half: half as usize, start }.checked()?;
                self.rotations.push(table);
                self.plain_bytes = (start + positions as u64 * u64::from(half) * 8).next_multiple_of(ALIGN);
                start
            }
        };
        Ok(RotationRows { table: (start / 16) as u32, half })
    }

    /// The stream of these rows, added where it is new; its number.
    pub fn stream(&mut self, rows: Rows, strip: Strip, features: usize) -> usize {
        self.stream_by(self.options.stage_order, rows, strip, features)
    }

    /// The stream of these rows with its stages in their order; its number.
    pub fn stream_in_order(&mut self, rows: Rows, strip: Strip, features: usize) -> usize {
        self.stream_by(StageOrder::InOrder, rows, strip, features)
    }

    fn stream_by(&mut self, stage_order: StageOrder, rows: Rows, strip: Strip, features: usize) -> usize {
        let device = self.device;
        let sms = self.placed.target.sms;
        let last = self.streams.iter().rfind(|stream| stream.device == device);
        let start = last.map_or(0, |last| last.start + last.tiles());
        let streams = &mut self.streams;
        *self.by_rows.entry((device, rows.clone())).or_insert_with(|| {
            streams.push(Stream { device, ..Stream::new(rows, strip, features, start, stage_order, sms) });
            streams.len() - 1
        })
    }

    /// The placement of a stream's stages.
    pub fn placement(&self, stream: usize) -> StagePlacement {
        self.streams.get(stream).map_or(StagePlacement::IN_ORDER, |stream| stream.placement)
    }

    /// The start of a stream in the packed weights, in tiles of 512 bytes.
    pub fn start(&self, stream: usize) -> u32 {
        self.streams.get(stream).map_or(0, |stream| stream.start as u32)
    }

    /// The operands of the flagged words for queries and for the current token's keys and values,
    /// and their generations per step. `None`: the planned task hands over none.
    pub fn current_token(&self) -> Option<([u32; 3], u32)> {
        (self.edges.token_generation(self.task) > 0).then(|| (self.places.current_token(), self.edges.token_period()))
    }

    /// The operands of the merge of partial sums, and of its arrival counters or the flagged words
    /// of parts ([`Planner::merges_packets`]).
    ///
    /// # Errors
    /// If there is no such merge.
    pub fn merged(&self, acc: BufferId) -> Result<[u32; 2], Unsupported> {
        self.places.merged(acc)
    }

    /// Whether the parts of attention's splits are packets, for which the first split waits.
    pub fn merges_packets(&self) -> bool {
        self.edges.splits_are_flagged()
    }

    /// The split activations that the planned task reads in place of its input: the form, and the
    /// operands of the terms and of the sums of squares.
    ///
    /// # Errors
    /// As [`Planner::operand`].
    pub fn scaled_input(&self) -> Result<Option<(ScaledForm, [u32; 2])>, Unsupported> {
        let of = |(stream, split): (BufferId, &SplitActivations)| Ok((split.form, self.places.scaled(stream)?));
        self.edges.split_read(self.task).map(of).transpose()
    }

    /// The split activations that the planned task stores: the form and the type of the norm
    /// weight; and the operands of terms, sums of squares and that weight.
    ///
    /// With an act-order, the third operand is its table, followed by the weight.
    ///
    /// # Errors
    /// As [`Planner::operand`], [`Planner::float`] and [`Planner::order`].
    pub fn scaled_output(&mut self) -> Result<Option<(ScaledCode, [u32; 3])>, Unsupported> {
        let Some((stream, split)) = self.edges.split_written(self.task) else { return Ok(None) };
        let SplitActivations { form, weight, order } = split.clone();
        let [terms, squares] = self.places.scaled(stream)?;
        let float = weight.map(|weight| self.float("norm weight", weight)).transpose()?;
        let third = match order {
            None => self.operand_of(weight)?,
            Some(weights) => {
                let strip = self.strip(form.k(), &weights)?;
                self.order(&weights, strip, weight, Reordering::Scattered)?
            }
        };
        Ok(Some((ScaledCode { form, weight: float }, [terms, squares, third])))
    }

    /// Begins to plan a task.
    pub(super) fn begin(&mut self, task: &Task) {
        (self.device, self.task) = (task.device.index(), task.id);
    }

    /// The record of a task as its op planned it; adds its opcode where it is new.
    pub(super) fn record(&mut self, task: &Task, planned: Planned) -> Result<TaskRecord, Unsupported> {
        let Planned { opcode, mut record, bytes, weights } = planned;
        self.record_bytes = self.record_bytes.max((offset_of!(TaskRecord, fields) + bytes) as u32);
        let early = opcode.signals_early();
        let form = opcode.prefetch_form();
        let pairs = opcode.takes_pairs().is_some();
        record.opcode = number_of(&mut self.opcodes, opcode) as u32;
        if let Some(Stretch { stream, first, strips, taken }) = weights {
            let stream = &self.streams[stream];
            (record.weights, record.first) = (stream.start as u32, first as u32 * stream.strip.stages());
            record.placement =
                short("different placements of streams", number_of(&mut self.placements, stream.placement))?;
            let all = stream.strip.stages();
            let [from, to] = match taken {
                Taken::Part(part) => part,
                Taken::Strips | Taken::Groups(_) | Taken::Phases(_) => [0, all],
            };
            record.first += from;
            record.stages = strips as u32 * (to - from);
            record.stage_bytes = stream.strip.stage_bytes();
            record.strip_stages = short("stages of a strip", stream.strip.stages() as usize)?;
            record.prefetched = form.map_or(0, |form| {
                record.stages.min(self.options.prefetch()) as u16 | (form.0 as u16) << PREFETCH_COUNT_BITS
            });
            record.group = match taken {
                Taken::Strips if pairs => PAIRS,
                Taken::Strips => 0,
                Taken::Groups(strips) => short("strips of a group", strips as usize)?,
                Taken::Part(_) => short("stages of a part of a strip", (to - from) as usize)? | PART,
                Taken::Phases(stages) => short("stages of a phase", stages as usize)? | PHASES,
            };
        }
        record.task = task.id.index() as u32;
        let packets = self.edges.task(task.id);
        (record.input, record.residual, record.output) = (packets.input, packets.residual, packets.output);
        (record.releases, record.signals_early) = (packets.release.into(), early.into());
        Ok(record)
    }
}

/// The number of an item among those that are known, to which it is added where it is new.
fn number_of<T: PartialEq>(known: &mut Vec<T>, item: T) -> usize {
    known.iter().position(|known| *known == item).unwrap_or_else(|| {
        known.push(item);
        known.len() - 1
    })
}

/// A number as records have it in 16 bits.
fn short(what: &'static str, found: usize) -> Result<u16, Unsupported> {
    u16::try_from(found).map_err(|_| Unsupported::Number { what, found, expected: "65535 at most" })
}
