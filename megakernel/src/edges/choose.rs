//! The rule that gives each edge its transport and its layout.
//!
//! A buffer uses flagged words if every access to it supports them and each generation is written
//! whole before it is read. It has split activations if every producer can store them and all
//! consumers of a generation want the same form; without a norm, they replace the rows, and there
//! is no other consumer. Partial results of attention are merged. In a program of one row, the
//! current token's queries, keys and values are handed over as flagged words in addition to the
//! pools. Everything else is rows, handed over by a semaphore with a release.

use std::collections::{BTreeMap, HashSet};

use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

use super::chosen::{
    ActivationLayout, ChosenEdge, ChosenEdges, CurrentToken, SplitActivations, TaskGenerations, Transport,
};
use super::flow::Flow;
use super::partial::{Merge, PartialError, are_apart, merges};
use super::walk::Edges;
use crate::ops::{Access, AccessRole, SplitAccess, SplitRead};
use crate::program::{BufferId, BufferKind, TaskId, float_of};
use crate::validate::Placed;

/// Most generations of a buffer in a step: records have 16 bits for them.
const MOST_GENERATIONS: u32 = u16::MAX as u32;

/// Most dimensions of a head whose keys and values come as flagged words: with 128 every warp has
/// twice as many words in flight, and attention of Llama-3.1-8B takes 1.4 µs longer on an H200.
const MOST_TOKEN_DIM: usize = 64;

/// The limits of the edge rule on a target.
#[derive(Clone, Copy)]
pub struct EdgeRule<'r> {
    /// The buffers that may use flagged words.
    pub flagged: FlaggedUse,
    /// Whether the splits of attention may exchange flagged words instead of counting arrivals.
    pub flagged_splits: bool,
    /// Whether the current token may be handed over as flagged words in addition to the pools.
    pub token: bool,
    /// The forms of split activations, where there are any.
    pub split: Option<&'r dyn SplitForms>,
}

/// The set of buffers that may use flagged words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlaggedUse {
    /// None: every signal releases.
    None,
    /// Summands, which are read once.
    Parts,
    /// All: a generation for every word doubles the bytes that are read.
    All,
}

/// The forms of split activations that products of a target can read.
pub trait SplitForms {
    /// The form for a product; `None` where it reads rows.
    fn form(&self, read: &SplitRead, of: Activations) -> Option<SplitActivations>;
}

/// Activations as a product finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activations {
    /// Elements of a row.
    pub k: u32,
    /// Rows of the batch.
    pub rows: u32,
    /// Their type.
    pub float: Float,
}

impl ChosenEdges {
    /// Chooses the transport and the layout of every edge of a program.
    ///
    /// # Errors
    /// If partial results of attention cannot be merged.
    pub fn choose(placed: &Placed, rule: &EdgeRule<'_>) -> Result<ChosenEdges, PartialError> {
        let program = placed.program();
        let edges = Edges::of(program);
        let accesses: Vec<Vec<Access>> = program.tasks.iter().map(|task| task.op.accesses()).collect();
        let flow = Flow { program, edges: &edges, accesses: &accesses };
        let merges = merges(&flow)?;
        let mergeable = |merge: &Merge| !merge.shared && merge.generations <= MOST_GENERATIONS;
        let all = rule.flagged == FlaggedUse::All;
        let flagged_merges = all && merges.values().all(mergeable);
        let splits = merges.values().all(|merge| merge.splits > 1);
        let by_words = rule.flagged_splits && flagged_merges && splits && are_apart(&flow, placed.queues());
        let flagged = flow.flagged(rule.flagged);
        let token = if rule.token && all { flow.token() } else { None };
        let is_token = |id: BufferId| token.as_ref().is_some_and(|token| token.q == id);
        let mut buffers = Vec::with_capacity(program.buffers.len());
        for (buffer, is_flagged) in program.buffers.iter().zip(&flagged) {
            let id = buffer.id;
            let merge = merges.get(&id).copied();
            let mut split = rule.split.and_then(|forms| flow.split(id, merge, forms)).unwrap_or_default();
            let transport = match merge {
                Some(_) if by_words => Transport::Flagged { semaphore: true },
                Some(merge) => Transport::Counted { flagged: all && mergeable(&merge) },
                None if *is_flagged || is_token(id) => Transport::Flagged { semaphore: true },
                None => Transport::Semaphore,
            };
            let chosen = edges.of_buffer(id).iter().map(|edge| {
                let split = split.remove(&edge.generation);
                let layout = match (merge, split) {
                    (Some(merge), split) => ActivationLayout::Merged { merge, split },
                    (None, Some(split)) => ActivationLayout::Split(split),
                    (None, None) if is_token(id) => ActivationLayout::CurrentToken,
                    (None, None) => ActivationLayout::Rows,
                };
                ChosenEdge { edge: edge.clone(), transport: flow.transport(edge, transport), layout }
            });
            buffers.push(chosen.collect());
        }
        let polls = vec![false; program.tasks.len()];
        let mut chosen = ChosenEdges { buffers, accesses, edges, tasks: Vec::new(), polls, token };
        chosen.tasks = program.tasks.iter().map(|task| chosen.generations_of(task)).collect();
        Ok(chosen)
    }
}

impl Flow<'_> {
    fn accesses(&self, task: TaskId, buffer: BufferId) -> impl Iterator<Item = &Access> {
        self.accesses.get(task.index()).into_iter().flatten().filter(move |access| access.buffer == buffer)
    }

    /// For each buffer, whether it is flagged words.
    pub(super) fn flagged(&self, which: FlaggedUse) -> Vec<bool> {
        let all = || self.accesses.iter().flatten();
        let parts: HashSet<BufferId> =
            all().filter(|access| access.role == AccessRole::Part).map(|access| access.buffer).collect();
        let may = |buffer| match which {
            FlaggedUse::None => false,
            FlaggedUse::Parts => parts.contains(&buffer),
            FlaggedUse::All => true,
        };
        let mut flagged: Vec<bool> =
            self.program.buffers.iter().map(|buffer| may(buffer.id) && self.can_be_flagged(buffer.id)).collect();
        // An operand of a task is flagged as a whole or not at all, with one generation and one
        // period.
        let groups = self.accesses.iter().enumerate().flat_map(|(task, accesses)| {
            let of = |writes: bool| {
                let one = move |access: &&Access| {
                    access.is_flagged && (if writes { access.is_write() } else { access.is_input() })
                };
                let group = accesses.iter().filter(one);
                group.map(|access| (access.buffer, self.generation(task.into(), access))).collect::<Vec<_>>()
            };
            [of(false), of(true)]
        });
        let groups: Vec<Vec<(BufferId, u32)>> = groups.filter(|group| group.len() > 1).collect();
        let mut changed = true;
        while changed {
            changed = false;
            for group in &groups {
                let shape = |&(buffer, generation): &(BufferId, u32)| (generation, self.edges.period(buffer));
                let alike = group.iter().all(|one| shape(one) == shape(&group[0]));
                let keeps = alike && group.iter().all(|(buffer, _)| flagged[buffer.index()]);
                for (buffer, _) in group.iter().filter(|_| !keeps) {
                    changed |= std::mem::take(&mut flagged[buffer.index()]);
                }
            }
        }
        flagged
    }

    /// Whether all accesses to a buffer support flagged words.
    fn can_be_flagged(&self, id: BufferId) -> bool {
        let buffer = &self.program.buffers[id.index()];
        let is_float = matches!(buffer.dtype, DType::F32 | DType::F16 | DType::BF16);
        let fours = buffer.shape.last().is_some_and(|width| width.is_multiple_of(4));
        let own = buffer.kind == BufferKind::Activation && buffer.arena.is_none();
        let known = |task: TaskId, writes| {
            self.accesses(task, id).any(|access| access.is_flagged && access.is_write() == writes)
        };
        let supports = self.edges.of_buffer(id).iter().all(|edge| {
            edge.producers.iter().all(|&task| known(task, true))
                && edge.consumers.iter().all(|&task| known(task, false))
        });
        let counts = self.edges.period(id) <= MOST_GENERATIONS;
        own && is_float && fours && counts && supports && self.edges.is_whole(id)
    }

    /// The generation that a task reads or writes by an access.
    fn generation(&self, task: TaskId, access: &Access) -> u32 {
        match access.is_write() {
            true => self.edges.written(task, access.buffer),
            false => self.edges.read(task, access.buffer),
        }
    }

    /// The queries of the current token, where every task that appends to a pool or attends to it
    /// knows them as flagged words, and every layer writes whole queries once in a step.
    fn token(&self) -> Option<CurrentToken> {
        let of_task = |task: usize| self.accesses[task].iter().find_map(|access| Some((access.buffer, access.token?)));
        let q = (0..self.accesses.len()).find_map(of_task)?.0;
        let buffer = |id: BufferId| self.program.buffers.get(id.index());
        let is_pool = |id: BufferId| buffer(id).is_none_or(|buffer| buffer.kind == BufferKind::KvPool);
        for task in &self.program.tasks {
            let mut regions = task.reads.iter().chain(&task.writes);
            match of_task(task.id.index()) {
                Some((queries, _)) if queries == q => {}
                Some(_) => return None,
                None if regions.any(|region| region.buffer == q || is_pool(region.buffer)) => return None,
                None => {}
            }
        }
        let &[1, _, 0..=MOST_TOKEN_DIM] = buffer(q)?.shape.as_slice() else { return None };
        // Each generation belongs to one layer, and each layer to one generation.
        let mut layers = BTreeMap::new();
        let [_, edges @ ..] = self.edges.of_buffer(q) else { return None };
        for edge in edges {
            let tasks = edge.producers.iter().chain(&edge.consumers);
            let mut pools = tasks.filter_map(|task| Some(of_task(task.index())?.1));
            let layer = pools.next()?;
            if pools.any(|other| other != layer) || layers.insert(layer, edge.generation).is_some() {
                return None;
            }
        }
        let bf16 = layers.keys().flatten().all(|&pool| buffer(pool).is_some_and(|pool| pool.dtype == DType::BF16));
        let own = bf16 && buffer(q)?.kind == BufferKind::Activation && self.edges.is_whole(q);
        // Tiles of keys and values write no queries, and belong to the generation of their layer.
        let of_layer = |task| of_task(task).map_or(Some(0), |(_, pools)| layers.get(&pools).copied());
        let tasks = (0..self.accesses.len()).map(of_layer).collect::<Option<Vec<u32>>>()?;
        own.then_some(CurrentToken { q, tasks })
    }

    /// The split activations of a buffer, by generation.
    pub(super) fn split(
        &self,
        id: BufferId,
        merge: Option<Merge>,
        forms: &dyn SplitForms,
    ) -> Option<BTreeMap<u32, SplitActivations>> {
        let buffer = &self.program.buffers[id.index()];
        let own = buffer.kind == BufferKind::Activation && buffer.arena.is_none();
        if !own || !matches!(buffer.dtype, DType::F32 | DType::BF16) || !self.edges.is_whole(id) {
            return None;
        }
        let of = match (merge, buffer.shape.as_slice()) {
            (Some(merge), _) if merge.acc == id => Activations { k: merge.width, rows: merge.rows, float: merge.float },
            (None, &[rows, k]) => Activations { k: k as u32, rows: rows as u32, float: float_of(buffer.dtype)? },
            (Some(_) | None, _) => return None,
        };
        let mut split = BTreeMap::new();
        let mut as_rows = false;
        for edge in self.edges.of_buffer(id) {
            let stores = |access: &Access| access.split == Some(SplitAccess::Stored);
            if !edge.producers.iter().all(|&task| self.accesses(task, id).any(stores)) {
                return None;
            }
            for &task in &edge.consumers {
                let Some(read) = self.accesses(task, id).find_map(Access::split_read) else {
                    as_rows = true;
                    continue;
                };
                let form = forms.form(read, of)?;
                if *split.entry(edge.generation).or_insert_with(|| form.clone()) != form {
                    return None;
                }
            }
        }
        // Without a norm there are no rows beside the terms.
        let lacks_rows = as_rows && split.values().any(|split| split.weight.is_none());
        (!lacks_rows).then_some(split)
    }

    /// The transport of an edge of a buffer that has another in general: what a step finds needs
    /// none, and what crosses devices is stored to peers.
    fn transport(&self, edge: &super::Edge, of_buffer: Transport) -> Transport {
        let tasks = || edge.producers.iter().chain(&edge.consumers).map(|task| self.program.tasks[task.index()].device);
        let mut devices = tasks();
        let first = devices.next();
        if edge.producers.is_empty() {
            Transport::Resident
        } else if devices.any(|device| Some(device) != first) {
            Transport::Peer { flagged: of_buffer.is_flagged() }
        } else {
            of_buffer
        }
    }
}

impl ChosenEdges {
    /// The generations of a task's record.
    fn generations_of(&self, task: &crate::program::Task) -> TaskGenerations {
        let mut of = TaskGenerations {
            release: task.writes.iter().any(|region| !self.carries_arrival(region.buffer)),
            ..TaskGenerations::default()
        };
        for access in &self.accesses[task.id.index()] {
            let token = access.token.map_or(0, |_| self.token_generation(task.id));
            let is_merge = access.partial.is_some_and(|partial| partial.acc == access.buffer);
            let generation = match (is_merge || access.is_flagged) && self.period(access.buffer) > 0 {
                true if access.is_write() => self.edges.written(task.id, access.buffer),
                true => self.edges.read(task.id, access.buffer),
                false if token > 0 => token,
                false => continue,
            };
            match access.role {
                AccessRole::Input | AccessRole::Part => of.input = generation,
                AccessRole::Residual => of.residual = generation,
                AccessRole::Output => of.output = generation,
                AccessRole::Weight => {}
            }
        }
        of
    }
}
