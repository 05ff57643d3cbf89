//! Conformance I and K: what a request carries from step to step, when a block is summarised, what
//! requests share.

use tilewright_flow::memory::{Budget, FlowPool, FlowRequest};
use tilewright_flow::prelude::*;
use tilewright_flow::run::{Complete, FlowExecutor, Interpreter, ScoredRow};
use tilewright_flow::{BoundFlow, ModelShape, Parameters, RunError, trace};

use crate::sketch::{Handles, Sketch, scores, sketch};
use crate::world::{Rng, World, bind};

const ONE: [Dim; 2] = [Dim::ONE, Dim::ONE];
const MODEL: ModelShape = ModelShape { kv_heads: 1, group: 1, head_dim: 2, block_tokens: 2 };

/// A flow whose state counts the steps that scored a block, and two more whose counts lag.
fn history() -> impl Flow {
    Sketch {
        states: vec![(ONE, 0.0), (ONE, -1.0), (ONE, -2.0)],
        ..scores(|step: Step<'_>, _: &Handles, states: Vec<State>| {
            let [now, lag, lag2] = <[State; 3]>::try_from(states).expect("three states");
            let (count, count_slot) = step.load(now);
            let (before, before_slot) = step.load(lag);
            let (_, oldest_slot) = step.load(lag2);
            let next = count + 1.0;
            // A shift register, saved in the order that a careless schedule gets wrong.
            count_slot.save(next);
            before_slot.save(count);
            oldest_slot.save(before);
            let score = step.positions();
            step.select(score)
        })
    }
}

/// The states after some steps on a row of `blocks` complete blocks.
fn states_after<M: FlowExecutor<f64>>(machine: &M, budget: Budget, tokens: usize, steps: usize) -> Vec<Vec<f64>> {
    let mut world = World::new(&mut Rng::new(1), MODEL, 1, budget, &[tokens]);
    world.steps = 0;
    let (pool, mut requests) = world.fill(machine, 5);
    for _ in 0..steps {
        machine.step(&pool, &mut requests, &[0.5, 0.25], &budget).expect("a step");
    }
    (0..3).map(|state| requests[0].state(state, 0).to_vec()).collect()
}

#[test]
fn i_a_load_sees_the_step_before() {
    let traced = trace(&history()).expect("a flow without errors");
    let bound = bind(&mut Rng::new(1), &traced, &MODEL);
    let budget = Budget::new(1, 0.0, 1, 1).expect("a budget");
    // Blocks 1 to 3 of 5 are candidates; the others keep their reset values.
    let row = |reset: f64, saved: f64| vec![reset, saved, saved, saved, reset];
    let wanted = [
        vec![row(0.0, 1.0), row(-1.0, 0.0), row(-2.0, -1.0)],
        vec![row(0.0, 2.0), row(-1.0, 1.0), row(-2.0, 0.0)],
        vec![row(0.0, 3.0), row(-1.0, 2.0), row(-2.0, 1.0)],
    ];
    for (steps, wanted) in (1..).zip(&wanted) {
        let interpreter = Interpreter::new(&bound);
        assert_eq!(states_after(&interpreter, budget, 10, steps), *wanted);
    }
}

#[test]
fn i_two_states_change_places() {
    let swap = Sketch {
        states: vec![(ONE, 3.0), (ONE, 4.0), (ONE, 0.0)],
        ..scores(|step: Step<'_>, _: &Handles, states: Vec<State>| {
            let [a, b, c] = <[State; 3]>::try_from(states).expect("three states");
            let (a, a_slot) = step.load(a);
            let (b, b_slot) = step.load(b);
            let (c, c_slot) = step.load(c);
            a_slot.save(b);
            b_slot.save(a);
            c_slot.save(c + 1.0);
            step.select(a)
        })
    };
    let traced = trace(&swap).expect("a flow without errors");
    let bound = bind(&mut Rng::new(1), &traced, &MODEL);
    let budget = Budget::new(1, 0.0, 0, 1).expect("a budget");
    let interpreter = Interpreter::new(&bound);
    let states = states_after(&interpreter, budget, 6, 3);
    assert_eq!(states, [[4.0, 4.0, 3.0], [3.0, 3.0, 4.0], [3.0, 3.0, 0.0]]);
}

#[test]
fn i_each_reader_of_a_state_has_an_edge_to_its_save() {
    let traced = trace(&history()).expect("a flow without errors");
    let war = traced.indexer.orders();
    // count is read by the sum and by the copy, before by a copy; the oldest value is not read.
    assert_eq!(war.len(), 3);
    for [before, after] in war {
        assert!(traced.indexer.op(after).is_effect());
        assert!(!traced.indexer.op(before).is_effect(), "a save that reads a state could close a cycle");
    }
    assert_eq!(traced.notices(), ["state `s2` is saved at every step and its value never used"]);
}

#[test]
fn i_a_short_row_keeps_its_states_and_new_blocks_begin_at_reset() {
    let traced = trace(&history()).expect("a flow without errors");
    let bound = bind(&mut Rng::new(1), &traced, &MODEL);
    let machine = Interpreter::new(&bound);
    let budget = Budget::new(1, 0.0, 1, 1).expect("a budget");
    // 3 blocks are the budget: nothing is scored.
    assert_eq!(states_after(&machine, budget, 6, 4), [vec![0.0; 3], vec![-1.0; 3], vec![-2.0; 3]]);
    // A block more: two candidates.
    assert_eq!(states_after(&machine, budget, 7, 4)[0], [0.0, 4.0, 4.0, 0.0]);
}

#[test]
fn i_a_state_belongs_to_its_request_and_pages_stay_shared() {
    let traced = tilewright_flow::algorithms::named("running-average").expect("known").trace().expect("no errors");
    let bound = bind(&mut Rng::new(1), &traced, &MODEL);
    let machine = Interpreter::new(&bound);
    let budget = Budget::new(1, 0.0, 0, 1).expect("a budget");
    let mut rng = Rng::new(5);
    let mut pool: FlowPool<f64> = FlowPool::new(&bound, 4, 8).expect("a pool");
    // The first request writes pages 0, 1, 2. The second one has the first two of them as its
    // prefix.
    let mut first = FlowRequest::new(&pool, &[0, 1, 2], 0).expect("a request");
    machine.append(&mut pool, &mut first, &rng.units(24), &rng.units(24)).expect("tokens");
    let before = pool.field(0, 1).to_vec();
    let mut second = FlowRequest::new(&pool, &[0, 1, 5], 8).expect("a request");
    machine.append(&mut pool, &mut second, &rng.units(4), &rng.units(4)).expect("tokens");
    assert_eq!(pool.field(0, 1), before, "a shared block is summarised once");
    let mut requests = [first, second];
    let queries = rng.units(4);
    let shared = machine.step(&pool, &mut requests, &queries, &budget).expect("a step");
    machine.step(&pool, &mut requests[..1], &queries[..2], &budget).expect("a step");
    // The other request goes on as if it were alone.
    let found = machine.step(&pool, &mut requests[1..], &queries[2..], &budget).expect("a step");
    let mut alone = [FlowRequest::new(&pool, &[0, 1, 5], 10).expect("a request")];
    let first_alone = machine.step(&pool, &mut alone, &queries[2..], &budget).expect("a step");
    let then_alone = machine.step(&pool, &mut alone, &queries[2..], &budget).expect("a step");
    assert_eq!((&shared[1], &found[0]), (&first_alone[0], &then_alone[0]));
    assert_ne!(shared[1].scores, found[0].scores, "the state moved");
}

/// Counts the blocks that it is told of.
struct Counting<'f> {
    inner: Interpreter<'f>,
    seen: std::cell::RefCell<Vec<Complete>>,
}

impl FlowExecutor<f64> for Counting<'_> {
    fn bound(&self) -> &BoundFlow<'_> {
        FlowExecutor::<f64>::bound(&self.inner)
    }
    fn summarise(&self, pool: &mut FlowPool<f64>, complete: Complete) -> Result<(), RunError> {
        self.seen.borrow_mut().push(complete);
        self.inner.summarise(pool, complete)
    }
    fn score(&self, row: ScoredRow<'_, f64>) -> Result<Vec<f64>, RunError> {
        self.inner.score(row)
    }
}

#[test]
fn k_a_block_is_summarised_when_its_last_token_comes() {
    let model = ModelShape { kv_heads: 2, ..MODEL };
    let traced = tilewright_flow::algorithms::named("quest").expect("known").trace().expect("no errors");
    let bound = traced.bind(&model, &Parameters::new()).expect("a model that fits");
    let inner = Interpreter::new(&bound);
    let machine = Counting { inner, seen: Default::default() };
    let mut rng = Rng::new(3);
    let mut pool: FlowPool<f64> = FlowPool::new(&bound, 4, 4).expect("a pool");
    let mut request = FlowRequest::new(&pool, &[3, 1], 0).expect("a request");
    let mut append = |pool: &mut FlowPool<f64>, request: &mut FlowRequest<f64>, tokens: usize| {
        let keys = rng.units(tokens * 4);
        let values = rng.units(tokens * 4);
        machine.append(pool, request, &keys, &values).expect("tokens");
        machine.seen.take().iter().map(|c| (c.block, c.head)).collect::<Vec<_>>()
    };
    assert!(append(&mut pool, &mut request, 1).is_empty(), "half a block");
    assert!(pool.field(0, 12).iter().all(|x| x.is_nan()));
    // Page 3: head 0 has blocks 12 and 13, head 1 has 14 and 15.
    assert_eq!(append(&mut pool, &mut request, 1), [(12, 0), (14, 1)]);
    // Five tokens of a prompt complete three blocks, over the end of a page.
    assert_eq!(append(&mut pool, &mut request, 5), [(13, 0), (15, 1), (4, 0), (6, 1)]);
    assert_eq!(append(&mut pool, &mut request, 1), [(5, 0), (7, 1)]);
    let keys = pool.keys(13);
    let wanted: Vec<f64> = (0..2).map(|j| keys[j].max(keys[2 + j])).collect();
    assert_eq!(pool.field(0, 13), wanted);
    let error = machine.append(&mut pool, &mut request, &[0.0; 4], &[0.0; 4]).unwrap_err();
    assert_eq!(error, RunError::TableLength { tokens: 9, needed: 3, pages: 2 });
}

/// Cache fields that are written and read in one pass are stored.
#[test]
fn k_a_field_that_the_pass_goes_on_with_is_stored() {
    let chain = sketch(
        &[[Dim::ONE, Dim::HEAD_DIM], ONE],
        &[],
        &[],
        |block: &Block<'_>, handles: &Handles| {
            let mean = block.store(handles.fields[0], block.keys().mean(D0));
            block.store(handles.fields[1], mean.sum(D1));
        },
        |step: Step<'_>, handles: &Handles, _: Vec<State>| {
            let score = step.field(handles.fields[0]).sum(D1) + step.field(handles.fields[1]);
            step.select(score)
        },
    );
    let world = World::new(&mut Rng::new(2), MODEL, 2, Budget::new(1, 0.0, 0, 1).expect("a budget"), &[9]);
    assert!(crate::agree::check(&chain, 1, &world).known > 5);
}
