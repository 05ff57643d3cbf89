//! The planner: streams, opcodes and records of every task, then memory.

use crate::edges::{ChosenEdges, EdgeRule, FlaggedUse, PartialError};
use crate::ops::{Choice, Role};
use std::collections::HashMap;

use tilewright_codegen::ir::Arch;
use tilewright_kernels::weights::StagePlacement;

use super::orders::OrderTable;
use super::place::Places;
use super::plan::Plan;
use super::record::{PART, PHASES, TaskRecord};
use super::shape::{CellsPlan, Feedback};
use super::storage::KvPools;
use super::tables::{Tables, plain_weights, tables};
use super::{DeviceOptions, Opcode};
use crate::program::{BufferId, Task, TaskId};
use crate::validate::Placed;
use crate::vm::cells::cell_roles;
use crate::vm::resident::stream::TILE_BYTES;
use crate::vm::resident::{RotationTable, Rows, Stream};
use crate::vm::{Lengths, NoFeedback, Unsupported};

/// Most columns of activations that tasks poll without waiting for a semaphore. Of more columns the
/// polls of the consumer warps and the producer's, which checks the abort flag for them, cost what
/// they save: with 4-bit weights a token of a 1B model takes 360 µs on an H200 and 381 with
/// semaphores, of 8B 1450 and 1438.
const MOST_POLLED_COLUMNS: u32 = 12288;

/// A plan in the making, as the rows of ops see it.
pub struct Planner<'p> {
    pub(super) placed: &'p Placed,
    pub(super) options: DeviceOptions,
    pub(super) arch: Arch,
    /// Whether some weights are.
    pub(super) quantised: bool,
    /// The end of the rows of the batch.
    rows: u32,
    pub(super) edges: ChosenEdges,
    pub(super) places: Places,
    pub(super) streams: Vec<Stream>,
    pub(super) placements: Vec<StagePlacement>,
    pub(super) by_rows: HashMap<(usize, Rows), usize>,
    /// The device of the task that is planned.
    pub(super) device: usize,
    /// The task that is planned.
    pub(super) task: TaskId,
    pub(super) rotations: Vec<RotationTable>,
    pub(super) orders: Vec<OrderTable>,
    pub(super) plain_bytes: u64,
    pub(super) opcodes: Vec<Opcode>,
    /// Bytes of a record in the tables.
    pub(super) record_bytes: u32,
    cells: Option<CellsPlan>,
    pub(super) lengths: Option<Lengths>,
}

impl<'p> Planner<'p> {
    pub(super) fn new(placed: &'p Placed, options: DeviceOptions, rows: u32) -> Result<Planner<'p>, Unsupported> {
        let unknown = || Unsupported::Target { target: placed.target.name.clone() };
        let arch = Arch::from_name(&placed.target.arch).ok_or_else(unknown)?;
        let quantised = placed.buffers.iter().any(|buffer| buffer.quantised.is_some());
        let options = options.within(arch).for_codes(quantised);
        let plain = plain_weights(placed);
        let mut planner = Planner {
            placed,
            options,
            arch,
            quantised,
            rows,
            edges: ChosenEdges::default(),
            places: Places::default(),
            streams: Vec::new(),
            placements: Vec::new(),
            by_rows: HashMap::new(),
            device: 0,
            task: TaskId::from(0),
            rotations: Vec::new(),
            orders: Vec::new(),
            plain_bytes: 0,
            opcodes: Vec::new(),
            record_bytes: 0,
            cells: None,
            lengths: None,
        };
        planner.edges = planner.choose_edges()?;
        planner.places = Places::new(placed, &planner.edges, |buffer| plain[buffer.id.index()]);
        planner.plain_bytes = planner.places.plain;
        Ok(planner)
    }

    /// Chooses the edges of the program. Activations of few rows are flagged words. The generation
    /// in every word doubles the bytes that are read, which costs more than a release if there are
    /// more rows.
    fn choose_edges(&self) -> Result<ChosenEdges, Unsupported> {
        let options = &self.options;
        let few_rows = self.rows < options.thresholds.activation_rows;
        // Activations of experts are columns of all slots, which every block would poll: a token of
        // Qwen3-30B-A3B takes 2.55 ms on an H200 where all are flagged, and 2.33 where none are.
        let has_experts = self.placed.tasks.iter().any(|task| task.op.chosen_by().is_some());
        let rule = EdgeRule {
            flagged: match (options.packets, few_rows && !has_experts) {
                (false, _) => FlaggedUse::None,
                (true, true) => FlaggedUse::All,
                (true, false) => FlaggedUse::Parts,
            },
            flagged_splits: options.merge_packets,
            token: options.early_signals && self.placed.devices == 1,
            split: if few_rows { None } else { Some(self) },
        };
        ChosenEdges::choose(self.placed, &rule)
            .map_err(|PartialError { buffer, found }| Unsupported::Splits { buffer, found })
    }

    /// The plan, from the records of all tasks.
    pub(super) fn finish(mut self, mut records: Vec<TaskRecord>) -> Result<Plan, Unsupported> {
        let parts = records.iter().any(|record: &TaskRecord| record.group & (PART | PHASES) > 0);
        let packed_bytes = self.streams.iter().map(|run| (run.start + run.tiles()) * TILE_BYTES).max().unwrap_or(0);
        self.drop_semaphores(&records);
        if let Some(conflict) = self.unordered(&records).into_iter().next() {
            return Err(Unsupported::Unordered { conflict: conflict.to_string() });
        }
        let laid_out =
            tables(self.placed, &mut records, self.record_bytes, self.options.table_bytes, self.edges.polls())?;
        let table_bytes = laid_out.shared_bytes();
        let Tables { directory, bytes: tables, section_bytes } = laid_out;
        self.cells = self.common_cells();
        self.fill_stages();
        let shared: Vec<_> = self.opcodes.iter().map(|opcode| opcode.shared(self.options.warps)).collect();
        let operand_bytes = shared.iter().map(|bytes| bytes.operand).max().unwrap_or(0).next_multiple_of(128);
        let sums_bytes = shared.iter().map(|bytes| bytes.sums).max().unwrap_or(0);
        let thresholds = self.options.thresholds;
        self.options.thresholds = thresholds.changed(|limits| limits.sums_bytes = limits.sums_bytes.max(sums_bytes));
        let pairs = self.opcodes.iter().filter_map(|opcode| opcode.takes_pairs()).map(|bytes| 2 * bytes);
        let slot_bytes = self.streams.iter().map(|stream| stream.strip.stage_bytes()).chain(pairs);
        let slot_bytes = slot_bytes.max().unwrap_or(0).max(self.options.stage_bytes);
        let options = self.stages(table_bytes, operand_bytes, slot_bytes)?;
        let feedback = self.feedback();
        Ok(Plan {
            options,
            arch: self.arch,
            blocks: (directory.len() / self.placed.devices.max(1)) as u32,
            devices: self.placed.devices as u32,
            counters: self.placed.counters.len() as u32,
            opcodes: self.opcodes,
            directory,
            tables,
            streams: self.streams,
            placements: self.placements,
            packed_bytes,
            places: self.places,
            rotations: self.rotations,
            orders: self.orders,
            plain_bytes: self.plain_bytes,
            slot_bytes,
            operand_bytes,
            table_bytes,
            section_bytes,
            record_bytes: self.record_bytes,
            rows: self.rows,
            cells: self.cells,
            parts,
            skips_semaphores: self.edges.polls().contains(&true),
            edges: self.edges,
            lengths: self.lengths.unwrap_or_default(),
            feedback,
        })
    }

    /// Lets tasks poll flagged words without waiting for a semaphore, where these are few.
    fn drop_semaphores(&mut self, records: &[TaskRecord]) {
        let opcodes = &self.opcodes;
        let columns = opcodes.iter().filter_map(|opcode| opcode.polled_columns()).max();
        if !self.options.skip_semaphores || columns.is_none_or(|columns| columns > MOST_POLLED_COLUMNS) {
            return;
        }
        let opcode = |task: &Task| opcodes.get(records.get(task.id.index())?.opcode as usize);
        let can_poll = |task: &Task| opcode(task).is_some_and(|opcode| opcode.polled_columns().is_some());
        self.edges.drop_semaphores(self.placed, can_poll);
    }

    /// Positions and page tables, if all opcodes have the same.
    fn common_cells(&self) -> Option<CellsPlan> {
        let pools = self.opcodes.iter().filter_map(|opcode| opcode.pools());
        let rows = self.rows;
        let mut plans =
            pools.map(|KvPools { position, table, page_tokens, .. }| CellsPlan { position, table, rows, page_tokens });
        let plan = plans.next()?;
        plans.all(|other| other == plan).then_some(plan)
    }

    /// Lets device functions fill stages of the ring, where a block knows the step's positions.
    fn fill_stages(&mut self) {
        if self.cells.is_some() && self.options.stream_tokens {
            self.opcodes.iter_mut().for_each(|opcode| opcode.stream(self.options.stage_bytes));
        }
    }

    /// The cells that a launch feeds back, where the program has one of each and embeds every token
    /// that it may choose.
    fn feedback(&self) -> Result<Feedback, NoFeedback> {
        let cells = cell_roles(self.placed);
        let one = |role: Role, list: &[BufferId]| match *list {
            [only] => Ok(self.places.offset(only)),
            _ => Err(NoFeedback::Cells { role: role.name(), found: list.len() }),
        };
        let token = one(Role::Token, &cells.token)?;
        let position = one(Role::Position, &cells.position)?;
        let mut choices: Vec<Choice> = self.placed.tasks.iter().filter_map(|task| task.op.choice()).collect();
        choices.dedup();
        let [choice] = choices[..] else { return Err(NoFeedback::Choices { found: choices.len() }) };
        let found = self.placed.tasks.iter().filter_map(|task| task.op.ids()).filter(|(ids, _)| *ids == choice.index);
        let found = found.map(|(_, below)| below).max().ok_or(NoFeedback::Unbounded)?;
        let drawn = choice.logits.and_then(|logits| self.placed.buffers.get(logits.index())?.shape.last().copied());
        let tokens = found.max(drawn.unwrap_or(0));
        let rows = cells.vocab.unwrap_or(0);
        if tokens > rows {
            return Err(NoFeedback::Vocab { tokens, rows });
        }
        let place = |buffer| self.places.offset(buffer);
        let mask_tokens = drawn
            .filter(|_| self.options.masks && !self.options.queued && choice.request.is_some())
            .map(|tokens| tokens as u32);
        let next_token = place(choice.out);
        Ok(Feedback { token, position, next_token, request: choice.request.map(place), mask_tokens })
    }

    /// The options with as many stages as shared memory holds.
    fn stages(&self, table_bytes: u32, operand_bytes: u32, slot_bytes: u32) -> Result<DeviceOptions, Unsupported> {
        let options = self.options;
        let limit = self.placed.target.shared_bytes_per_block as u64;
        let cells = self.cells.map_or(0, |cells| 4 * cells.numbers());
        let fixed =
            u64::from(table_bytes + operand_bytes + options.thresholds.sums_bytes + options.warps * 64 + cells + 896);
        let stage = u64::from(slot_bytes);
        let rest = limit.saturating_sub(fixed);
        let stages = (rest / stage).min(options.thresholds.stages.into());
        if stages < 2 {
            return Err(Unsupported::Shared { needed: fixed + 2 * stage, limit });
        }
        Ok(DeviceOptions { thresholds: options.thresholds.changed(|limits| limits.stages = stages as u32), ..options })
    }
}
