//! Flows as ops of programs: the reference machine selects and attends as the interpreter does, for
//! any flow and any batch.

mod bench;
mod covered;
mod device;
mod learned;
mod lowered;
mod resources;
mod shapes;
mod summaries;

use bench::{Cut, Layer, Stepped, edges, renamed};
use proptest::prelude::*;
use tilewright_flow::memory::{Budget, FlowRequest};
use tilewright_flow::run::{FlowExecutor, Interpreter, attend};
use tilewright_flow::{ModelShape, Traced, algorithms, trace};
use tilewright_graph::op::Op;

use crate::random_flow::RandomFlow;
use crate::world::{Rng, World, bind, convert};

/// The results of the interpreter for a world, step by step, in the form of the programs.
fn expected(world: &World, machine: &Interpreter<'_>) -> Vec<Vec<Stepped>> {
    let (mut pool, mut requests) = world.fill::<f32>(machine, 1);
    let model = world.model;
    let per_page = pool.shape().blocks_per_page();
    let mut steps = Vec::new();
    for step in 0..world.steps {
        for (number, request) in requests.iter_mut().enumerate() {
            let at = request.tokens();
            world.append(machine, &mut pool, request, number, at..at + 1);
        }
        let queries = convert::<f32>(&world.queries[step]);
        let rows = machine.step(&pool, &mut requests, &queries, &world.budget).expect("a step");
        let of = |number: usize, request: &FlowRequest<f32>| {
            let rows = &rows[number * model.kv_heads..][..model.kv_heads];
            let last_tokens = (request.tokens() - 1) % model.block_tokens + 1;
            // A program numbers the blocks of each key head by themselves.
            let own = |&block: &u32| {
                let page = block as usize / per_page / model.kv_heads;
                let place = block as usize % per_page;
                (page * per_page + place) as u32
            };
            let heads = (0..model.kv_heads * model.group).flat_map(|head| {
                let query =
                    &queries[(number * model.kv_heads * model.group + head) * model.head_dim..][..model.head_dim];
                let kv_head = head / model.group;
                attend(&pool, request, kv_head, query, &rows[kv_head].selected).output
            });
            Stepped {
                blocks: rows.iter().map(|row| row.selected.blocks.iter().map(own).collect()).collect(),
                last: rows.iter().map(|row| row.selected.tokens(model.block_tokens, last_tokens) as i32 - 1).collect(),
                out: heads.map(|x| x as f32).collect(),
            }
        };
        steps.push(requests.iter().enumerate().map(|(number, request)| of(number, request)).collect());
    }
    steps
}

fn apart(found: &[f32], expected: &[f32]) -> f32 {
    found
        .iter()
        .zip(expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |most, x| if x > most || x.is_nan() { x } else { most })
}

/// The programs of a world leave what the interpreter does: the same selections, the same attention
/// but for rounding.
fn agrees(world: &World, traced: &Traced, rng: &mut Rng, cut: &Cut) -> Result<(), TestCaseError> {
    let bound = bind(rng, traced, &world.model);
    let interpreter = Interpreter::new(&bound);
    let expected = expected(world, &interpreter);
    let mut layer = Layer::new(world, &bound, cut.clone());
    for (request, &tokens) in world.tokens.iter().enumerate() {
        layer.feed(request, 0..tokens);
    }
    for (step, expected) in expected.iter().enumerate() {
        let lengths: Vec<usize> = world.tokens.iter().map(|tokens| tokens + step).collect();
        for (request, (found, expected)) in layer.step(step, &lengths).iter().zip(expected).enumerate() {
            prop_assert_eq!(&found.blocks, &expected.blocks, "{}: step {}, request {}", &traced.name, step, request);
            prop_assert_eq!(&found.last, &expected.last);
            let apart = apart(&found.out, &expected.out);
            prop_assert!(apart <= 1e-4, "{}: step {step}, request {request}: {apart}", traced.name);
        }
    }
    Ok(())
}

/// Whether each block is scored by itself.
fn is_blockwise(traced: &Traced) -> bool {
    let across = |op: &Op| matches!(op, Op::OverBlocks { .. });
    traced.declared.states.is_empty() && !traced.indexer.steps().any(|step| across(step.op))
}

/// A world with tokens around the edges, and a cut.
fn draw(rng: &mut Rng, model: ModelShape, traced: &Traced, requests: usize) -> (World, Cut) {
    let ratio = [0.0, 0.0, 0.3, 0.6][rng.below(4)];
    let budget = Budget::new(1 + rng.below(4) as u32, ratio, rng.below(3) as u32, 1 + rng.below(2) as u32);
    let budget = budget.expect("a budget");
    let page_blocks = 1 + rng.below(3);
    let chunk = 1 + rng.below(6);
    let edges: Vec<usize> = edges(
        &Budget::new(3, 0.0, 1, 1).expect("a budget"),
        model.block_tokens,
        page_blocks * model.block_tokens,
        chunk,
    )
    .into_keys()
    .collect();
    let tokens: Vec<usize> = (0..requests).map(|_| edges[rng.below(edges.len())]).collect();
    let world = World::new(rng, model, page_blocks, budget, &tokens);
    let mut slots: Vec<usize> = (0..requests + 1).collect();
    rng.shuffle(&mut slots);
    let score_splits = if is_blockwise(traced) { 1 + rng.below(4) } else { 1 };
    let splits = 1 + rng.below(3);
    let idle = rng.below(2) == 1;
    let first_request = 1 + rng.below(9) as i32;
    (world, Cut { score_splits, splits, chunk, slots, idle, first_request })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_flow_in_a_program_does_what_the_interpreter_does(
        choices in prop::collection::vec(any::<u16>(), 60..140),
        kv_heads in 1usize..=2,
        group in 1usize..=3,
        block_tokens in 1usize..=4,
        requests in 1usize..=3,
        seed: u64,
    ) {
        let Ok(traced) = trace(&RandomFlow { choices }) else { return Ok(()) };
        let model = ModelShape { kv_heads, group, head_dim: 4, block_tokens };
        if traced.extents(&model).is_err() {
            return Ok(());
        }
        let traced = renamed(traced);
        let mut rng = Rng::new(seed);
        let (world, cut) = draw(&mut rng, model, &traced, requests);
        agrees(&world, &traced, &mut rng, &cut)?;
    }
}

#[test]
fn every_algorithm_in_a_program_does_what_the_interpreter_does() {
    for (number, algorithm) in algorithms::ALL.iter().enumerate() {
        let block_tokens = match algorithm.name {
            "lserve" | "lserve-centroid" => 16,
            "h2o-tokens" => 1,
            _ => 4,
        };
        let traced = renamed(algorithm.trace().expect("a flow without errors"));
        for seed in 0..6 {
            let mut rng = Rng::new(seed + 100 * number as u64);
            let model = ModelShape { kv_heads: 2, group: 1 + rng.below(5), head_dim: 16, block_tokens };
            let (world, cut) = draw(&mut rng, model, &traced, 2);
            agrees(&world, &traced, &mut rng, &cut)
                .unwrap_or_else(|error| panic!("{}, {seed}: {error}", algorithm.name));
        }
    }
}

fn of_algorithm(name: &str) -> Traced {
    renamed(algorithms::named(name).expect("a known flow").trace().expect("a flow without errors"))
}

fn cut(slots: &[usize]) -> Cut {
    Cut { score_splits: 1, splits: 2, chunk: 5, slots: slots.to_vec(), idle: false, first_request: 1 }
}

/// All steps of a world, whose prompts begin at those tokens.
fn play(layer: &mut Layer<'_>, world: &World, shared: &[usize]) -> Vec<Vec<Stepped>> {
    for (request, &tokens) in world.tokens.iter().enumerate() {
        layer.feed(request, shared[request]..tokens);
    }
    let lengths = |step| world.tokens.iter().map(|tokens| tokens + step).collect::<Vec<_>>();
    (0..world.steps).map(|step| layer.step(step, &lengths(step))).collect()
}

/// The second request begins with the pages of the first: their fields are there, and the states
/// are its own.
#[test]
fn requests_that_share_pages_share_their_fields_and_no_state() {
    for name in ["quest", "centered", "value-energy", "running-average", "moba"] {
        let traced = of_algorithm(name);
        let mut rng = Rng::new(77);
        let model = ModelShape { kv_heads: 2, group: 2, head_dim: 8, block_tokens: 2 };
        let budget = Budget::new(2, 0.0, 1, 1).expect("a budget");
        let mut apart = World::new(&mut rng, model, 2, budget, &[19, 23]);
        let pages = 3;
        let row = apart.row();
        let tokens = pages * apart.page_tokens;
        for all in [&mut apart.keys, &mut apart.values] {
            let prefix = all[0][..tokens * row].to_vec();
            all[1][..tokens * row].copy_from_slice(&prefix);
        }
        let mut together = apart.clone();
        let prefix = together.tables[0][..pages].to_vec();
        together.tables[1][..pages].copy_from_slice(&prefix);
        let bound = bind(&mut rng, &traced, &model);
        let expected = play(&mut Layer::new(&apart, &bound, cut(&[0, 1])), &apart, &[0, 0]);
        let found = play(&mut Layer::new(&together, &bound, cut(&[0, 1])), &together, &[0, tokens]);
        for (found, expected) in found.iter().zip(&expected) {
            for (found, expected) in found.iter().zip(expected) {
                assert_eq!((&found.last, &found.out), (&expected.last, &expected.out), "{name}");
            }
        }
    }
}

/// A slot that another request had carries nothing over, and one that stays with its request does.
#[test]
fn a_slot_that_is_given_to_another_request_is_reset() {
    let traced = of_algorithm("running-average");
    let mut rng = Rng::new(5);
    let model = ModelShape { kv_heads: 1, group: 1, head_dim: 8, block_tokens: 2 };
    let budget = Budget::new(2, 0.0, 0, 1).expect("a budget");
    let world = World::new(&mut rng, model, 1, budget, &[31]);
    let bound = bind(&mut rng, &traced, &model);
    let mut layer = Layer::new(&world, &bound, cut(&[3]));
    let first = play(&mut layer, &world, &[0]);
    layer.set_first_request(2);
    assert_eq!(play(&mut layer, &world, &[0]), first);
    // The same request once more goes on with the states that it has.
    assert_ne!(play(&mut layer, &world, &[0]), first);
}
