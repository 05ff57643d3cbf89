//! Queries of ops while a program is lowered to launches: activations, norms, products.

use std::collections::{BTreeMap, HashMap, HashSet};

use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_kernels::gemm::grouped::{GroupedBuffer, GroupedProblem};
use tilewright_kernels::gemm::{GemmProblem, PlannedLaunch};
use tilewright_kernels::gemv::{GemvEpilogue, hopper};
use tilewright_kernels::tile::Float;

use super::activations::{NormOf, OutputProjection, Pending};
use super::launch::{Launch, LaunchArg, LaunchGrid, LaunchMemory, Scratch};
use super::plan::{GraphPlan, GraphTarget, MOST_ALONE};
use super::tuning::{Exchange, GraphOptions, GraphTuning, ProductTuning};
use crate::lower::StepPlan;
use crate::ops::{Op, Rotation};
use crate::program::{AccessRole, Buffer, BufferId, BufferKind, Program, float_of};
use crate::vm::Unsupported;
use crate::vm::resident::{Packed, RotationTable};

/// Warps of a block of the small kernels.
pub(crate) const WARPS: u32 = 8;

/// Warps of a block that copies a row of that number of elements, four per thread at a time. Few
/// rows are few blocks, so each thread has four in all as far as a block has room: rounds wait for
/// each other's loads.
pub(crate) fn copying_warps(rows: u32, width: u32) -> u32 {
    if rows <= MOST_ALONE { width.div_ceil(128).clamp(WARPS, 32) } else { WARPS }
}

/// Heads of rows: where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowHeads {
    pub scratch: Scratch,
    /// The first of them in a row.
    pub first: u32,
    /// Heads of a row.
    pub of_row: u32,
}

/// A plan that is being made.
pub struct GraphPlanner<'p> {
    pub(super) program: &'p Program,
    /// The device that is planned for, of as many as the program has.
    pub(super) device: u32,
    pub(crate) arch: Arch,
    pub(crate) multiprocessors: u32,
    pub(super) plan: GraphPlan,
    scratch: BTreeMap<Scratch, u64>,
    /// The activations that each buffer names.
    pub(super) heads: HashMap<BufferId, RowHeads>,
    pub(super) pending: Option<Pending>,
    /// The method by which devices add up their parts.
    pub(super) exchange: Exchange,
    /// The parts that all devices read last, with no barrier since.
    pub(super) last_part: Option<Scratch>,
    /// Whether of the residual stream's rows each device has its share alone.
    pub(super) shared_rows: bool,
    /// The norm that was planned last.
    pub(super) last_norm: Option<NormOf>,
    /// The logits that experts are chosen by.
    pub(super) router_logits: HashSet<BufferId>,
    /// What levels add up.
    pub(super) summed: HashSet<BufferId>,
    /// The norms that buffers stand for, which their readers compute.
    pub(super) norms: HashMap<BufferId, NormOf>,
    /// The norm that [`Scratch::Normed`] holds, until what it is the norm of is stored anew.
    pub(super) normed: Option<NormOf>,
    /// The output projection and its bias.
    pub(super) head: Option<OutputProjection>,
    /// Numbers of kernels by what they are made for.
    kernels: HashMap<String, usize>,
    pub(super) steps: HashMap<(GemmProblem, bool), Vec<(usize, PlannedLaunch)>>,
    pub(super) grouped_steps: HashMap<GroupedProblem, (usize, PlannedLaunch<GroupedBuffer>)>,
    pub(super) packed: Option<&'p Packed>,
    pub(crate) tuning: Option<GraphTuning>,
    pub(super) products: &'p [ProductTuning],
    pub(super) packed_steps: HashMap<(hopper::HopperPlan, GemvEpilogue), (usize, PlannedLaunch)>,
}

impl<'p> GraphPlanner<'p> {
    pub(super) fn new(
        step: &'p StepPlan,
        device: usize,
        target: GraphTarget,
        packed: Option<&'p Packed>,
        options: GraphOptions<'p>,
    ) -> Result<GraphPlanner<'p>, Unsupported> {
        let GraphTarget { arch, multiprocessors } = target;
        let GraphOptions { attention, products, exchange } = options;
        let plan = GraphPlan {
            rows: 0,
            kernels: Vec::new(),
            launches: Vec::new(),
            all_reduces: Vec::new(),
            meet: None,
            logits: None,
            choice: None,
            alone: 0,
            matrices: Vec::new(),
            codes: Vec::new(),
            biases: Vec::new(),
            plain: Vec::new(),
            rotations: Vec::new(),
            scratch: Vec::new(),
        };
        Ok(GraphPlanner {
            program: step.program(),
            device: device as u32,
            arch,
            multiprocessors,
            plan,
            scratch: BTreeMap::new(),
            heads: HashMap::new(),
            pending: None,
            exchange,
            last_part: None,
            shared_rows: false,
            last_norm: None,
            router_logits: router_logits(step),
            summed: summed(step),
            norms: HashMap::new(),
            normed: None,
            head: None,
            kernels: HashMap::new(),
            steps: HashMap::new(),
            grouped_steps: HashMap::new(),
            packed,
            tuning: attention,
            products,
            packed_steps: HashMap::new(),
        })
    }

    pub(super) fn finish(mut self) -> Result<GraphPlan, Unsupported> {
        self.leave()?;
        self.close();
        Ok(GraphPlan { scratch: self.scratch.into_iter().collect(), ..self.plan })
    }

    /// A buffer of the program.
    pub(crate) fn buffer(&self, id: BufferId) -> &'p Buffer {
        &self.program.buffers[id.index()]
    }

    /// The extents of a buffer, whose elements kernels count in 32 bits; the program was checked,
    /// so the op's rank is its rank.
    pub(crate) fn extents<const N: usize>(&self, id: BufferId) -> Result<[u32; N], Unsupported> {
        let shape = <[usize; N]>::try_from(&self.buffer(id).shape[..]).map_err(|_| Unsupported::Cells)?;
        let found = self.buffer(id).elements().unwrap_or(usize::MAX);
        if u32::try_from(found).is_err() {
            return Err(Unsupported::Number { what: "elements of a buffer", found, expected: "fewer than 2^32" });
        }
        Ok(shape.map(|extent| extent as u32))
    }

    /// Rows of a step, the same for all levels.
    pub(crate) fn rows(&mut self, rows: u32) -> Result<u32, Unsupported> {
        if self.plan.rows != 0 && self.plan.rows != rows {
            return Err(Unsupported::Launch { what: "levels of different numbers of rows" });
        }
        self.plan.rows = rows;
        Ok(rows)
    }

    /// Activations of that number of bytes.
    pub(crate) fn scratch(&mut self, scratch: Scratch, bytes: u64) -> LaunchMemory {
        let most = self.scratch.entry(scratch).or_default();
        *most = bytes.max(*most);
        LaunchMemory::Scratch(scratch)
    }

    /// A weight that is read as it is, and its type.
    pub(crate) fn plain(&mut self, id: BufferId) -> Result<(LaunchMemory, Float), Unsupported> {
        let found = self.buffer(id).dtype;
        let expected = "f32, f16 or bf16";
        let float = float_of(found).ok_or(Unsupported::DType { what: "weight", buffer: id, found, expected })?;
        if self.buffer(id).kind != BufferKind::Weight {
            return Err(Unsupported::Launch { what: "an activation in place of a weight" });
        }
        self.refuse_codes(id)?;
        if !self.plan.plain.contains(&id) {
            self.plan.plain.push(id);
        }
        Ok((LaunchMemory::Plain(id), float))
    }

    /// Products of many rows read bf16.
    pub(super) fn refuse_codes(&self, weight: BufferId) -> Result<(), Unsupported> {
        let buffer = self.buffer(weight);
        match buffer.quantised {
            Some(_) => Err(Unsupported::Quantised { weight: buffer.name.clone() }),
            None => Ok(()),
        }
    }

    /// A table of rotations for that number of positions.
    pub(super) fn rotation(&mut self, rotation: &Rotation, positions: u32) -> Result<LaunchMemory, Unsupported> {
        let [half] = self.extents(rotation.inv_freq)?;
        let inv_freq = rotation.inv_freq;
        let scale = rotation.scale;
        let positions = positions as usize;
        let half = half as usize;
        let table = RotationTable { inv_freq, scale, positions, half, start: 0 }.checked()?;
        Ok(LaunchMemory::Rotation(number_of(&mut self.plan.rotations, table)))
    }

    /// A matrix of weights below each other.
    pub(crate) fn matrix(&mut self, parts: Vec<BufferId>) -> Result<LaunchMemory, Unsupported> {
        if parts.iter().any(|&part| self.buffer(part).kind != BufferKind::Weight) {
            return Err(Unsupported::Launch { what: "an activation in place of a weight" });
        }
        parts.iter().try_for_each(|&part| self.refuse_codes(part))?;
        Ok(LaunchMemory::Matrix(number_of(&mut self.plan.matrices, parts)))
    }

    /// The number of a kernel; it is recorded where there is none for that key.
    pub(crate) fn kernel(&mut self, key: String, record: impl FnOnce() -> Kernel) -> usize {
        if let Some(&known) = self.kernels.get(&key) {
            return known;
        }
        let number = number_of(&mut self.plan.kernels, record());
        self.kernels.insert(key, number);
        number
    }

    /// Adds a launch.
    pub(crate) fn launch(&mut self, kernel: usize, grid: LaunchGrid, args: Vec<LaunchArg>) {
        self.settle();
        self.plan.launches.push(Launch { kernel, grid, args });
    }

    /// The residual stream begins as this buffer; gives where it lies.
    pub(crate) fn residual(&mut self, out: BufferId, [rows, width]: [u32; 2]) -> LaunchMemory {
        let memory = self.scratch(Scratch::Residual, u64::from(rows) * u64::from(width) * 4);
        self.heads.insert(out, RowHeads { scratch: Scratch::Residual, first: 0, of_row: 1 });
        self.normed.take_if(|norm| norm.x == out);
        memory
    }

    /// Whether a buffer stands for the residual stream, or for what it becomes next.
    pub(crate) fn is_stream(&self, id: BufferId) -> bool {
        let is_pending = self.pending.as_ref().is_some_and(|pending| pending.makes(id));
        is_pending || self.heads.get(&id).is_some_and(|found| found.scratch == Scratch::Residual)
    }

    /// Fails where a buffer does not stand for these activations.
    pub(crate) fn whole(&self, id: BufferId, scratch: Scratch) -> Result<(), Unsupported> {
        match self.heads.get(&id) {
            Some(found) if found.scratch == scratch => Ok(()),
            _ => Err(Unsupported::Launch { what: "activations that no level before left as this one reads them" }),
        }
    }
}

/// The buffers that levels add up: parts of sums.
fn summed(step: &StepPlan) -> HashSet<BufferId> {
    let accesses = step.levels().iter().flat_map(|level| level.op.accesses());
    accesses.filter(|access| access.role == AccessRole::Part).map(|access| access.buffer).collect()
}

/// The logits that experts are chosen by: what the ops read that write a table of choices.
fn router_logits(step: &StepPlan) -> HashSet<BufferId> {
    let ops = || step.levels().iter().map(|level| &level.op);
    let tables: HashSet<BufferId> = ops().filter_map(|op| op.chosen_by()).collect();
    let of = |op: &Op, role| op.accesses().into_iter().filter(move |access| access.role == role);
    let chooses = |op: &&Op| of(op, AccessRole::Output).any(|access| tables.contains(&access.buffer));
    ops().filter(chooses).flat_map(|op| of(op, AccessRole::Input)).map(|access| access.buffer).collect()
}

/// The number of an element, which is added where it is not there.
pub(super) fn number_of<T: PartialEq>(all: &mut Vec<T>, element: T) -> usize {
    all.iter().position(|known| *known == element).unwrap_or_else(|| {
        all.push(element);
        all.len() - 1
    })
}
