//! The flows by name: they compile for every model, all machines agree on them, they find what they
//! are meant to find, and with a budget that covers the sequence they are dense attention.

use tilewright_flow::memory::{BlockSelection, Budget, FlowPool, FlowRequest};
use tilewright_flow::picture::{FlowDot, FlowSvg, FlowText, FlowView};
use tilewright_flow::run::{FlowExecutor, Interpreter, attend};
use tilewright_flow::{BindError, ModelShape, Traced, algorithms};

use crate::world::{Rng, World, bind};

/// The block size that a flow requires.
fn block_tokens(name: &str) -> usize {
    match name {
        "lserve" | "lserve-centroid" => 16,
        "h2o-tokens" => 1,
        _ => 4,
    }
}

fn traced(name: &str) -> Traced {
    algorithms::named(name).expect("a known flow").trace().expect("a flow without errors")
}

const MODEL: ModelShape = ModelShape { kv_heads: 8, group: 4, head_dim: 128, block_tokens: 16 };

#[test]
fn the_names_are_these() {
    let names: Vec<&str> = algorithms::ALL.iter().map(|a| a.name).collect();
    assert_eq!(
        names.join(" "),
        "block-sparse gqa-block-sparse quest masked-quest lserve lserve-centroid centered running-average value-energy h2o \
         gqa-h2o h2o-tokens streaming-llm knorm keydiff q-filter double-sparsity moba"
    );
    let error = algorithms::named("quests").unwrap_err().to_string();
    assert!(
        error.starts_with("there is no flow `quests`; there are block-sparse, gqa-block-sparse, quest,"),
        "{error}"
    );
    for algorithm in algorithms::ALL {
        let traced = traced(algorithm.name);
        assert_eq!(traced.name, algorithm.name);
        assert!(traced.notices().is_empty(), "{}: {:?}", algorithm.name, traced.notices());
    }
}

/// E: every flow for every model that it does not refuse.
#[test]
fn e_every_flow_fits_every_model_that_it_does_not_refuse() {
    let mut refused = Vec::new();
    for algorithm in algorithms::ALL {
        let traced = traced(algorithm.name);
        for group in [1, 2, 3, 4, 5, 6, 7, 8, 12, 16] {
            for head_dim in [32, 64, 128] {
                for block_tokens in [1, 4, 8, 16, 32, 64, 128] {
                    let model = ModelShape { kv_heads: 4, group, head_dim, block_tokens };
                    match traced.extents(&model) {
                        Ok(_) => {}
                        Err(error) => {
                            assert!(matches!(error, BindError::Requirement { .. } | BindError::Extent(_)));
                            refused.push((algorithm.name, block_tokens));
                        }
                    }
                }
            }
        }
    }
    refused.sort_unstable();
    refused.dedup();
    let wanted: Vec<(&str, usize)> = [4, 8, 16, 32, 64, 128]
        .map(|block| ("h2o-tokens", block))
        .into_iter()
        .chain(["lserve", "lserve-centroid"].into_iter().flat_map(|name| [1, 4, 8].map(|block| (name, block))))
        .collect();
    assert_eq!(refused, wanted);
}

/// All machines agree, for groups that are no powers of two among others.
#[test]
fn machines_agree_on_every_flow() {
    let mut judged = 0;
    for (number, algorithm) in algorithms::ALL.iter().enumerate() {
        for (seed, group) in [(1, 3), (2, 7)] {
            let mut rng = Rng::new(seed * 100 + number as u64);
            let model = ModelShape { kv_heads: 2, group, head_dim: 16, block_tokens: block_tokens(algorithm.name) };
            let budget = Budget::new(2, 0.0, 1, 1).expect("a budget");
            let tokens = [9 * model.block_tokens, 5 * model.block_tokens - 2 * usize::from(model.block_tokens > 1)];
            let world = World::new(&mut rng, model, 2, budget, &tokens);
            judged += crate::agree::check_traced(&traced(algorithm.name), seed, &world).known;
        }
    }
    assert!(judged > 18 * 60, "{judged} scores were judged");
}

/// A pool with one request of random tokens, some of them planted.
struct Haystack<'f> {
    machine: Interpreter<'f>,
    pool: FlowPool<f64>,
    requests: Vec<FlowRequest<f64>>,
    query: Vec<f64>,
}

const BLOCKS: usize = 24;

/// Changes a key `[head_dim]` of a block and a head, given the head's queries.
type Plant<'p> = dyn Fn(usize, usize, &[f64], &mut [f64]) + 'p;

/// Fills a pool with random tokens; `plant` changes the key of a token of a head.
fn haystack<'f>(machine: Interpreter<'f>, model: ModelShape, rng: &mut Rng, plant: &Plant<'_>) -> Haystack<'f> {
    let row = model.kv_heads * model.head_dim;
    let tokens = BLOCKS * model.block_tokens;
    let query: Vec<f64> =
        (0..row * model.group).map(|i| if i % 3 == 0 { rng.normal() } else { 1.0 + rng.normal() }).collect();
    let mut keys: Vec<f64> = (0..tokens * row).map(|_| rng.normal()).collect();
    let values: Vec<f64> = (0..tokens * row).map(|_| rng.normal()).collect();
    for (index, key) in keys.chunks_exact_mut(model.head_dim).enumerate() {
        let token = index / model.kv_heads;
        let head = index % model.kv_heads;
        let of_head = model.group * model.head_dim;
        plant(token / model.block_tokens, head, &query[head * of_head..][..of_head], key);
    }
    let mut pool =
        FlowPool::new(FlowExecutor::<f64>::bound(&machine), 2 * model.block_tokens, BLOCKS / 2).expect("a pool");
    let pages: Vec<usize> = (0..BLOCKS / 2).rev().collect();
    let mut request = FlowRequest::new(&pool, &pages, 0).expect("a request");
    machine.append(&mut pool, &mut request, &keys, &values).expect("tokens that fit");
    Haystack { machine, pool, requests: vec![request], query }
}

/// With blocks planted for what a flow looks for, it chooses them. Budgets of one block leave no
/// luck.
#[test]
fn a_planted_needle_is_found() {
    for (number, algorithm) in algorithms::ALL.iter().enumerate() {
        for seed in 0..4 {
            let mut rng = Rng::new(1000 * seed + number as u64);
            let traced = traced(algorithm.name);
            let model = ModelShape { kv_heads: 2, group: 3, head_dim: 32, block_tokens: block_tokens(algorithm.name) };
            let needle = 3 + rng.below(BLOCKS - 8);
            let mut parameters = crate::world::parameters(&mut rng, &traced, &model);
            // One channel in two counts; the filter is the direction of the planted keys.
            if let Some(channels) = parameters.get_mut("channels") {
                channels
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, x)| *x = f64::from(u8::from(i % 512 % 32 == i % 512 / 32 * 2)));
            }
            if let Some(filter) = parameters.get_mut("filter") {
                filter.iter_mut().for_each(|x| *x = 1.0);
            }
            let bound = traced.bind(&model, &parameters).expect("a model that fits");
            let machine = Interpreter::new(&bound);
            let plant = |block: usize, _: usize, query: &[f64], key: &mut [f64]| match algorithm.name {
                "knorm" if block == needle => key.iter_mut().for_each(|x| *x *= 0.2),
                // Every other key leans one way.
                "keydiff" => key.iter_mut().for_each(|x| *x += if block == needle { -2.0 } else { 2.0 }),
                "q-filter" if block == needle => key.iter_mut().for_each(|x| *x += 1.5),
                _ if block == needle => key.iter_mut().enumerate().for_each(|(i, x)| *x += 2.0 * query[i]),
                _ => {}
            };
            let mut hay = haystack(machine, model, &mut rng, &plant);
            let budget = Budget::new(1, 0.0, 1, 1).expect("a budget");
            let outcomes = hay.machine.step(&hay.pool, &mut hay.requests, &hay.query, &budget).expect("a step");
            // The window of streaming-llm is the latest candidate, wherever the needle is.
            let wanted = if algorithm.name == "streaming-llm" { BLOCKS - 2 } else { needle };
            for (head, row) in outcomes.iter().enumerate() {
                let found = &row.selected.positions;
                assert_eq!(
                    *found,
                    [0, wanted as u32, BLOCKS as u32 - 1],
                    "{}, seed {seed}, head {head}",
                    algorithm.name
                );
            }
        }
    }
}

/// Attention over everything, by the definition, from the pool.
fn dense(hay: &Haystack<'_>, model: ModelShape, head: usize, query: &[f64]) -> Vec<f64> {
    let blocks = hay.requests[0].blocks(hay.pool.shape(), head);
    let rows = |all: fn(&FlowPool<f64>, usize) -> &[f64]| -> Vec<Vec<f64>> {
        let of_block = |block: &u32| all(&hay.pool, *block as usize).chunks_exact(model.head_dim).map(<[f64]>::to_vec);
        blocks.iter().flat_map(of_block).collect()
    };
    let keys = rows(FlowPool::keys);
    let values = rows(FlowPool::values);
    let scale = 1.0 / (model.head_dim as f64).sqrt();
    let logit = |key: &Vec<f64>| scale * key.iter().zip(query).map(|(k, q)| k * q).sum::<f64>();
    let weights: Vec<f64> = keys.iter().map(|key| logit(key).exp()).collect();
    let sum: f64 = weights.iter().sum();
    (0..model.head_dim).map(|j| weights.iter().zip(&values).map(|(w, v)| w * v[j]).sum::<f64>() / sum).collect()
}

#[test]
fn a_budget_that_covers_the_sequence_is_dense_attention() {
    for (number, algorithm) in algorithms::ALL.iter().enumerate() {
        let mut rng = Rng::new(number as u64);
        let traced = traced(algorithm.name);
        let model = ModelShape { kv_heads: 2, group: 2, head_dim: 16, block_tokens: block_tokens(algorithm.name) };
        let bound = bind(&mut rng, &traced, &model);
        let machine = Interpreter::new(&bound);
        let mut hay = haystack(machine, model, &mut rng, &|_, _, _, _| {});
        let all = BLOCKS as u32;
        // Exactly enough, more than enough, by the number and by the share; then too few.
        for (top_k, ratio, covers) in
            [(all - 2, 0.0, true), (all + 9, 0.0, true), (1, 1.0, true), (all / 2, 0.0, false)]
        {
            let budget = Budget::new(top_k, ratio, 1, 1).expect("a budget");
            let outcomes = hay.machine.step(&hay.pool, &mut hay.requests, &hay.query, &budget).expect("a step");
            for (head, row) in outcomes.iter().enumerate() {
                for query in hay.query.chunks_exact(model.head_dim).skip(head * model.group).take(model.group) {
                    let found = attend(&hay.pool, &hay.requests[0], head, query, &row.selected);
                    let wanted = dense(&hay, model, head, query);
                    let error = found.output.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    let name = algorithm.name;
                    let mass = found.mass;
                    assert_eq!(error < 1e-12, covers, "{name}, top {top_k}: {error}");
                    assert_eq!((mass - 1.0).abs() < 1e-12, covers, "{name}, top {top_k}: mass {mass}");
                    assert!(mass > 0.0);
                }
            }
        }
    }
}

#[test]
fn an_empty_selection_attends_to_nothing() {
    let traced = traced("moba");
    let model = ModelShape { kv_heads: 1, group: 1, head_dim: 4, block_tokens: 2 };
    let bound = bind(&mut Rng::new(1), &traced, &model);
    let pool: FlowPool<f64> = FlowPool::new(&bound, 2, 1).expect("a pool");
    let request = FlowRequest::new(&pool, &[0], 0).expect("a request");
    let found = attend(&pool, &request, 0, &[1.0; 4], &BlockSelection::default());
    assert_eq!((found.output, found.mass), (vec![0.0; 4], 0.0));
}

fn view(traced: &Traced, name: &str) -> String {
    let model = ModelShape { block_tokens: if name == "h2o-tokens" { 1 } else { 16 }, ..MODEL };
    let extents = traced.extents(&model).expect("a model that fits");
    FlowText::new(&FlowView::new(traced, extents), 8, 2048).to_string()
}

#[test]
fn flows_as_text() {
    let all: Vec<String> = algorithms::ALL.iter().map(|a| view(&traced(a.name), a.name)).collect();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_flow_as_a_picture() {
    let traced = traced("running-average");
    let view = FlowView::new(&traced, traced.extents(&MODEL).expect("a model that fits"));
    insta::assert_snapshot!(FlowDot(&view).to_string());
    let svg = FlowSvg(&view).to_string();
    insta::assert_snapshot!(svg);
    let boxes = traced.cache.ids().count() + traced.indexer.ids().count();
    assert!(
        svg.matches("<rect").count() > boxes && svg.contains("stroke-dasharray"),
        "a box each, a frame each, the edge of the state"
    );
}
