//! The machine: blocks of warps under a seeded scheduler, and asynchronous engines.
//!
//! One warp runs at a time, for a random number of steps. The warp, the lanes of a divergent warp,
//! and the completion times of asynchronous operations are chosen at random from the seed. Time is
//! the number of steps run.

pub(crate) mod address;
mod block;
mod engine;
mod flight;
pub(crate) mod flow;
mod host;
mod host_words;
mod know;
mod late;
mod loss;
mod on_the_way;
pub(crate) mod reach;
mod report;
mod rng;
mod schedule;
mod spin;
mod trouble;
mod warp;

pub(crate) use address::{Address, Home};
pub(crate) use block::{Bar, BlockState, ClusterBar, MbarrierState};
pub(crate) use flight::{BulkDestination, EngineWork, Flight, Reduction, TensorCopy};
pub(crate) use trouble::{Cur, Next, Trouble, Try};
pub(crate) use warp::{FULL, GroupState, JUDGED_LOADS, JudgedLoad, Mask, MbarrierAt, Ticket, Warp, lanes};

use super::count::Counters;
use super::fault::Fault;
use super::memory::{Memory, OpState, Region};
use super::order::{Geometry, Released};
use super::program::Program;
use super::{Checks, Launch};
use crate::ir::Operand;
use crate::sim::number::{LANES, LaneValues};
use flight::Engine;
use host_words::Host;
use on_the_way::OnTheWay;
use rng::Rng;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, BinaryHeap};

/// The machine.
pub(crate) struct Simulation<'a> {
    pub program: &'a Program,
    pub memory: &'a mut Memory,
    pub launch: &'a Launch,
    pub geometry: Geometry,
    pub seed: u64,
    pub checks: bool,
    pub rng: Rng,
    /// The parameters, by device.
    pub params: Vec<Region>,
    pub blocks: Vec<BlockState>,
    pub clusters: Vec<ClusterBar>,
    pub warps: Vec<Warp>,
    pub ops: Vec<OpState>,
    pub released: FxHashMap<(u32, u32), Released>,
    pub engine: Engine,
    on_the_way: OnTheWay,
    pub counters: Counters,
    /// Steps run.
    pub now: u64,
    /// The time of the last change that another thread could see.
    pub effect: u64,
    /// Jumps back, for sampling.
    jumps: u64,
    ready: Vec<u32>,
    sleepers: BinaryHeap<core::cmp::Reverse<(u64, u32)>>,
    /// The first cluster of each device that is not yet started; clusters that are started and not
    /// yet done.
    next_cluster: Vec<u32>,
    running: BTreeSet<u32>,
    /// Most steps of one turn, a habit of the seed.
    stride: usize,
    host: Option<Host>,
    /// The device that is lost.
    lost: Option<u32>,
    /// The time at which the host learns of it.
    heard_at: Option<u64>,
}

impl<'a> Simulation<'a> {
    pub(crate) fn new(
        program: &'a Program,
        memory: &'a mut Memory,
        launch: &'a Launch,
        params: Vec<Region>,
        seed: u64,
    ) -> Simulation<'a> {
        let cluster = program.launch.blocks_per_cluster();
        let each = launch.grid.iter().product::<u32>();
        let geometry = Geometry::new(program.launch.threads_per_block(), cluster, program.mbarriers).on_devices(each);
        let blocks = each * launch.devices();
        memory.begin_launch(program.cell[0]);
        let host = Host::of(program, launch, memory).filter(|_| launch.checks == Checks::On);
        let mut rng = Rng::new(seed);
        let stride = [1, 4, 16, 64, 512][rng.below(5)];
        let engine = Engine::new(&mut rng);
        let on_the_way = OnTheWay::new(&mut rng, launch.devices());
        Simulation {
            program,
            memory,
            launch,
            geometry,
            seed,
            checks: launch.checks == Checks::On,
            rng,
            params,
            blocks: (0..blocks).map(|index| BlockState::waiting(coords(index % each, program, launch))).collect(),
            clusters: vec![ClusterBar::default(); (blocks / cluster) as usize],
            warps: (0..blocks * geometry.warps).map(|w| Warp::new(w / geometry.warps, w % geometry.warps)).collect(),
            ops: Vec::new(),
            released: FxHashMap::default(),
            engine,
            on_the_way,
            counters: Counters::new(program.sites.len()),
            now: 0,
            effect: 0,
            jumps: 0,
            ready: Vec::new(),
            sleepers: BinaryHeap::new(),
            next_cluster: (0..launch.devices()).map(|device| device * (each / cluster)).collect(),
            running: BTreeSet::new(),
            stride,
            host,
            lost: None,
            heard_at: None,
        }
    }

    /// Runs to the end, or to the first fault.
    pub(crate) fn run(mut self) -> Result<Counters, Box<Fault>> {
        let stop = self.run_all().err();
        self.counters.left = self.left(stop.as_ref().map(|(trouble, ..)| &trouble.kind));
        match stop {
            Some((trouble, warp, pc)) if self.counters.left.is_none() => Err(Box::new(self.tell(*trouble, warp, pc))),
            _ => Ok(self.counters),
        }
    }

    /// A row of operands, as the warp sees it.
    pub(crate) fn value(&self, warp: usize, operand: Operand) -> LaneValues {
        match operand {
            Operand::Const(constant) => [constant.bits; LANES],
            Operand::Value(value) => self.warps[warp].regs[self.program.row(value)],
        }
    }

    /// Writes a value in the lanes that run.
    pub(crate) fn set(&mut self, cur: Cur, value: crate::ir::ValueId, row: &LaneValues) {
        let at = self.program.row(value);
        self.warps[cur.warp].put(at, cur.mask, row);
    }

    /// The thread of a lane.
    pub(crate) fn thread(&self, warp: usize, lane: usize) -> u32 {
        warp as u32 * 32 + lane as u32
    }

    /// The block of a warp.
    pub(crate) fn block_of(&self, warp: usize) -> u32 {
        self.warps[warp].block
    }

    /// Records a change that others can see.
    pub(crate) fn changed(&mut self) {
        self.effect = self.now;
    }
}

/// The coordinates of a block, in the order of numbering: cluster by cluster, so that a cluster's
/// blocks are neighbours.
fn coords(index: u32, program: &Program, launch: &Launch) -> [u32; 3] {
    let shape = program.launch.cluster;
    let size = shape.iter().product::<u32>();
    let cluster = index / size;
    let rank = index % size;
    let grid = [0, 1, 2].map(|axis| launch.grid[axis] / shape[axis]);
    let unravel = |n: u32, by: [u32; 3]| [n % by[0], n / by[0] % by[1], n / by[0] / by[1]];
    let outer = unravel(cluster, grid);
    let inner = unravel(rank, shape);
    [0, 1, 2].map(|axis| outer[axis] * shape[axis] + inner[axis])
}
