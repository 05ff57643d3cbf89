//! The current token of a program of one row: queries, keys and values as packets.
//!
//! Keys and values are appended to pools, which later steps read. A task that appends would have to
//! release them before attention reads them, a microsecond and more while weights stream. In a
//! program of one row, attention reads only one token that its own step appends. The tasks of a
//! layer that project and append therefore store queries, keys and values a second time, as packets
//! in memory of the device's own. The pools are released at the end of the step.
//!
//! All layers share that memory: a layer stores its packets after attention has read those of the
//! layer before.

use std::collections::BTreeMap;

use super::DeviceOptions;
use crate::program::{BufferId, BufferKind, TaskId};
use crate::validate::Placed;
use tilewright_layout::DType;

/// Most dimensions of a head: of 128 every warp has twice as many packets in flight, and attention
/// of Llama-3.1-8B takes 1.4 µs longer on an H200.
const MOST_DIM: usize = 64;

/// The queries, and the pools of keys and values, that an op appends to or attends to, if its
/// device function knows them as packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestToken {
    /// The queries.
    pub q: BufferId,
    /// The pools.
    pub pools: [BufferId; 2],
    /// Whether they are written.
    pub written: bool,
}

/// The packets of the current token of a program: their place, and the generation of each task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Newest {
    /// For each task its generation, from 1; 0: it has none.
    tasks: Vec<u32>,
    /// Generations of a step; 0: no task has any.
    period: u32,
    /// Elements of the queries, and of the keys.
    elements: [u64; 2],
}

impl Newest {
    /// Finds out whether queries, keys and values are handed on so: where every task that appends
    /// or attends knows it, every layer writes whole queries once in a step, and nothing else reads
    /// them.
    pub fn of(placed: &Placed, options: &DeviceOptions) -> Newest {
        let none = Newest { tasks: vec![0; placed.tasks.len()], ..Newest::default() };
        if !options.packets || options.early == 0 || placed.devices > 1 {
            return none;
        }
        Newest::found(placed).unwrap_or(none)
    }

    fn found(placed: &Placed) -> Option<Newest> {
        let buffer = |id: BufferId| placed.buffers.get(id.index());
        // By the pools: the generation, and how many queries are written.
        let mut layers: BTreeMap<[BufferId; 2], (u32, usize)> = BTreeMap::new();
        let mut tasks = vec![0; placed.tasks.len()];
        let mut queries = None;
        for task in &placed.tasks {
            let token = task.op.device()?.newest();
            let mut regions = task.reads.iter().chain(&task.writes);
            match token {
                Some(token) if *queries.get_or_insert(token.q) == token.q => {
                    let next = layers.len() as u32 + 1;
                    let (layer, written) = layers.entry(token.pools).or_insert((next, 0));
                    let of_queries = task.writes.iter().filter(|region| region.buffer == token.q);
                    *written += of_queries.map(|region| region.elements()).sum::<usize>();
                    tasks[task.id.index()] = *layer;
                }
                Some(_) => return None,
                None if regions
                    .any(|region| buffer(region.buffer).is_none_or(|buffer| buffer.kind == BufferKind::KvPool)) =>
                {
                    return None;
                }
                None => {}
            }
        }
        let q = queries?;
        let others = placed.tasks.iter().filter(|task| tasks[task.id.index()] == 0);
        let mut regions = others.flat_map(|task| task.reads.iter().chain(&task.writes));
        let [first, ..] = *layers.keys().collect::<Vec<_>>() else { return None };
        let of_q = buffer(q)?;
        let pool = buffer(first[0])?;
        let &[1, _, dim @ ..=MOST_DIM] = of_q.shape.as_slice() else { return None };
        let all = of_q.elements()?;
        let whole = layers.values().all(|&(_, written)| written == all);
        let mut pools = layers.keys().flatten();
        let bf16 = pools.all(|&pool| buffer(pool).is_some_and(|pool| pool.dtype == DType::BF16));
        let own = of_q.kind == BufferKind::Activation && !regions.any(|region| region.buffer == q);
        let keys = pool.shape.first()? * dim;
        let elements = [all as u64, keys as u64];
        (whole && bf16 && own).then_some(Newest { tasks, period: layers.len() as u32, elements })
    }

    /// Generations of a step; 0: nothing is handed on so.
    pub fn period(&self) -> u32 {
        self.period
    }

    /// The generation of a task; 0: it has none.
    pub fn task(&self, task: TaskId) -> u32 {
        self.tasks.get(task.index()).copied().unwrap_or(0)
    }

    /// Bytes of the packets of queries (f32), of keys and of values (bf16).
    pub(super) fn bytes(&self) -> [u64; 3] {
        let [queries, keys] = self.elements;
        [queries * 8, keys * 4, keys * 4]
    }
}
