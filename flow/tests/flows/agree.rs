//! Interpreter and naive evaluation agree, on any flow and any batch.

use proptest::prelude::*;
use tilewright_flow::memory::Budget;
use tilewright_flow::run::{Interpreter, RowOutcome};
use tilewright_flow::trace::Recording;
use tilewright_flow::{BoundFlow, Flow, ModelShape, Real, RecordedFlow, Traced, record, trace};
use tilewright_graph::Graph;
use tilewright_graph::op::Op;
use tilewright_graph::rows::Source;

use crate::naive::{Ball, Naive};
use crate::random_flow::RandomFlow;
use crate::world::{Played, Rng, World, bind};

/// Unit roundoffs, with room for functions that are not rounded correctly.
const F64: f64 = 2.5e-16;
const F32: f64 = 1.3e-7;

/// A state of a row by the definitions: `[state][block][element]`.
type States = Vec<Vec<Vec<Ball>>>;

/// The row of a request and a key head, by the definitions.
struct NaiveRow<'w> {
    world: &'w World,
    bound: &'w BoundFlow<'w>,
    recorded: &'w RecordedFlow,
    request: usize,
    head: usize,
    eps: f64,
}

impl NaiveRow<'_> {
    fn token(&self, all: &[Vec<f64>], token: usize, j: usize) -> Ball {
        let model = self.world.model;
        Ball::exact(all[self.request][(token * model.kv_heads + self.head) * model.head_dim + j])
    }

    fn memory(&self, source: Source, block: usize, i: usize, j: usize) -> Option<Ball> {
        let tokens = self.world.model.block_tokens;
        match source {
            Source::Keys => Some(self.token(&self.world.keys, block * tokens + i, j)),
            Source::Values => Some(self.token(&self.world.values, block * tokens + i, j)),
            Source::Parameter(id) => {
                let d1 = self.bound.extents.parameters[id.index()][1];
                Some(Ball::exact(self.bound.parameter(id.index(), self.head)[i * d1 + j]))
            }
            Source::Query | Source::Positions | Source::Field(_) | Source::State(_) => None,
        }
    }

    /// The fields of a complete block.
    fn fields(&self, block: usize) -> Vec<Vec<Ball>> {
        let given = |source, _, i, j| self.memory(source, block, i, j).expect("a source of the cache pass");
        let naive = Naive::new(&self.recorded.cache.graph, self.world.model, &given, 1, self.eps);
        let of = |field: usize| {
            let node = naive.effect(|op| matches!(op, Op::Store { to: Source::Field(id), .. } if id.index() == field));
            let [d0, d1] = naive.extents(node);
            (0..d0 * d1).map(|e| naive.at(node, 0, e / d1, e % d1)).collect()
        };
        (0..self.recorded.declared.fields.len()).map(of).collect()
    }

    /// A step: the scores of the candidates; the states are those of the next step afterwards.
    fn step(&self, step: usize, states: &mut States) -> Vec<Ball> {
        let world = self.world;
        let model = self.world.model;
        let blocks = (world.tokens[self.request] + step + 1).div_ceil(model.block_tokens);
        let declared = self.bound.traced.declared.states.iter().zip(&self.bound.extents.states);
        for (state, (decl, [d0, d1])) in states.iter_mut().zip(declared) {
            let reset = Ball { v: decl.reset, e: self.eps * decl.reset.abs() };
            state.resize(blocks, vec![reset; d0 * d1]);
        }
        let Some((first, candidates)) = candidates(&world.budget, blocks) else {
            return Vec::new();
        };
        let fields: Vec<_> = (first..first + candidates).map(|block| self.fields(block)).collect();
        let before = states.clone();
        let given = |source: Source, s: usize, i: usize, j: usize| match source {
            Source::Query => {
                let row = (self.request * model.kv_heads + self.head) * model.group + i;
                Ball::exact(world.queries[step][row * model.head_dim + j])
            }
            Source::Positions => Ball::exact((first + s) as f64),
            Source::Field(id) => fields[s][id.index()][i * self.bound.extents.fields[id.index()][1] + j],
            Source::State(id) => before[id.index()][first + s][i * self.bound.extents.states[id.index()][1] + j],
            source => self.memory(source, first + s, i, j).expect("a source in memory"),
        };
        let naive = Naive::new(&self.recorded.indexer.graph, model, &given, candidates, self.eps);
        for (state, rows) in states.iter_mut().enumerate() {
            let node = naive.effect(|op| matches!(op, Op::Store { to: Source::State(id), .. } if id.index() == state));
            let [d0, d1] = naive.extents(node);
            for s in 0..candidates {
                rows[first + s] = (0..d0 * d1).map(|e| naive.at(node, s, e / d1, e % d1)).collect();
            }
        }
        let select = naive.effect(|op| matches!(op, Op::Select { .. }));
        (0..candidates).map(|s| naive.at(select, s, 0, 0)).collect()
    }
}

/// First candidate and their number, by the sentence of the reference.
fn candidates(budget: &Budget, blocks: usize) -> Option<(usize, usize)> {
    (blocks > budget.selected(blocks)).then(|| (budget.first(), blocks - budget.first() - budget.last()))
}

/// The winner format, by looking for the best candidate again and again.
fn select(budget: &Budget, blocks: usize, scores: &[f64]) -> Vec<u32> {
    let Some((first, candidates)) = candidates(budget, blocks) else {
        return (0..blocks as u32).collect();
    };
    let mut left: Vec<usize> = (0..candidates).collect();
    let mut chosen: Vec<u32> = (0..first as u32).collect();
    for _ in 0..budget.selected(blocks) - budget.first() - budget.last() {
        let mut best = 0;
        for at in 1..left.len() {
            let a = scores[left[at]];
            let b = scores[left[best]];
            if a > b || (b.is_nan() && !a.is_nan()) {
                best = at;
            }
        }
        chosen.push((first + left.remove(best)) as u32);
    }
    chosen.extend((blocks - budget.last()..blocks).map(|position| position as u32));
    chosen
}

/// The share of a machine's results that the definitions could judge.
#[derive(Clone, Copy, Debug, Default)]
pub struct Judged {
    pub known: usize,
    pub unknown: usize,
}

/// A machine's steps against the definitions.
fn judge<T: Real>(
    world: &World,
    bound: &BoundFlow<'_>,
    recorded: &RecordedFlow,
    played: &Played<T>,
    eps: f64,
) -> Judged {
    let mut judged = Judged::default();
    for request in 0..world.tokens.len() {
        for head in 0..world.model.kv_heads {
            let row = NaiveRow { world, bound, recorded, request, head, eps };
            let mut states: States = vec![Vec::new(); recorded.declared.states.len()];
            for step in 0..world.steps {
                let wanted = row.step(step, &mut states);
                let found: &RowOutcome<T> = &played.outcomes[step][request * world.model.kv_heads + head];
                let scores: Vec<f64> = found.scores.iter().map(|x| x.to_f64()).collect();
                assert_eq!(scores.len(), wanted.len());
                for (s, (ball, score)) in wanted.iter().zip(&scores).enumerate() {
                    let place = format!("request {request}, head {head}, step {step}, candidate {s}");
                    assert!(ball.admits(*score), "{place}: {score}, wanted {ball:?}");
                    *(if ball.e == f64::INFINITY { &mut judged.unknown } else { &mut judged.known }) += 1;
                }
                let blocks = (world.tokens[request] + step + 1).div_ceil(world.model.block_tokens);
                assert_eq!(found.selected.positions, select(&world.budget, blocks, &scores));
                let table = &world.tables[request];
                for (position, block) in found.selected.positions.iter().zip(&found.selected.blocks) {
                    let token = *position as usize * world.model.block_tokens;
                    let place = (token % world.page_tokens) / world.model.block_tokens;
                    let per_page = world.page_tokens / world.model.block_tokens;
                    let page = table[token / world.page_tokens];
                    assert_eq!(*block as usize, (page * world.model.kv_heads + head) * per_page + place);
                }
            }
            for (state, rows) in states.iter().enumerate() {
                let found = played.requests[request].state(state, head);
                for (ball, found) in rows.iter().flatten().zip(found) {
                    assert!(ball.admits(found.to_f64()), "state {state}: {found:?}, wanted {ball:?}");
                }
            }
        }
    }
    judged
}

/// Every execution of a flow on a batch.
pub fn check<F: Flow>(flow: &F, seed: u64, world: &World) -> Judged {
    let recorded = record(flow).expect("a flow without errors");
    check_recorded(&recorded, &trace(flow).expect("a flow without errors"), seed, world)
}

/// Every execution of a traced flow on a batch; the definitions read its graphs.
pub fn check_traced(traced: &Traced, seed: u64, world: &World) -> Judged {
    let recording = |graph: &Graph| Recording { graph: graph.clone(), lines: vec![], requirements: vec![] };
    let cache = recording(&traced.cache);
    let indexer = recording(&traced.indexer);
    check_recorded(&RecordedFlow { declared: traced.declared.clone(), cache, indexer }, traced, seed, world)
}

fn check_recorded(recorded: &RecordedFlow, traced: &Traced, seed: u64, world: &World) -> Judged {
    let mut rng = Rng::new(seed);
    let bound = bind(&mut rng, traced, &world.model);
    let interpreter = Interpreter::new(&bound);
    let judged = judge(world, &bound, recorded, &world.play::<f64>(&interpreter, 3), F64);
    judge(world, &bound, recorded, &world.play::<f32>(&interpreter, 2), F32);
    judged
}

/// A batch whose lengths lie around budget, blocks, pages and chunks.
pub fn random_world(rng: &mut Rng, block_tokens: usize) -> World {
    let group = [1, 2, 3, 5, 6, 7][rng.below(6)];
    let head_dim = [2, 3, 4, 8][rng.below(4)];
    let model = ModelShape { kv_heads: 1 + rng.below(2), group, head_dim, block_tokens };
    let top_k = 1 + rng.below(3);
    let first = rng.below(3);
    let last = 1 + rng.below(2);
    let ratio = [0.0, 0.0, 0.5][rng.below(3)];
    let budget = Budget::new(top_k as u32, ratio, first as u32, last as u32).expect("a budget");
    let page_blocks = 1 + rng.below(3);
    let edges = [0, 1, top_k + first + last, top_k + first + last + 1, 2 * page_blocks, 9];
    let mut length = || {
        let blocks = edges[rng.below(edges.len())];
        (blocks * block_tokens + rng.below(3)).saturating_sub(1)
    };
    let tokens = [length(), length()];
    World::new(rng, model, page_blocks, budget, &tokens)
}

proptest! {
    #[test]
    fn machines_agree_on_random_flows(choices in prop::collection::vec(any::<u16>(), 1..80), seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let block = [1, 2, 4][rng.below(3)];
        let world = random_world(&mut rng, block);
        check(&RandomFlow { choices }, seed, &world);
    }
}

/// Most of what random flows compute can be judged: the property above is not empty.
#[test]
fn most_scores_of_random_flows_are_judged() {
    let mut all = Judged::default();
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let choices = (0..60).map(|_| rng.next() as u16).collect();
        let world = random_world(&mut rng, 2);
        let judged = check(&RandomFlow { choices }, seed, &world);
        all.known += judged.known;
        all.unknown += judged.unknown;
    }
    assert!(all.known > 400 && all.known > 2 * all.unknown, "{all:?}");
}
