//! The conformance list of sparse-attention flows, by letter: A to D, F to H, L. E is in
//! `algorithms`, I and K are in `state`.

use tilewright_flow::memory::{Budget, Chunk, FlowPool, FlowRequest, PoolShape, RowTable, order_key, top_k};
use tilewright_flow::prelude::*;
use tilewright_flow::run::{FlowExecutor, Interpreter};
use tilewright_flow::{BindError, FlowProblem, ModelShape, Parameters, RunError, Traced, trace};
use tilewright_graph::op::Op;
use tilewright_graph::rows::{Comparison, Elementwise, InnerAxis};
use tilewright_layout::DType;
use tilewright_layout::tensor::Format;

use crate::agree::check;
use crate::sketch::{Handles, Sketch, scores, sketch};
use crate::world::{Rng, World, bind};

const ONE: [Dim; 2] = [Dim::ONE, Dim::ONE];
const MODEL: ModelShape = ModelShape { kv_heads: 2, group: 5, head_dim: 8, block_tokens: 2 };

fn known(name: &str) -> Traced {
    tilewright_flow::algorithms::named(name).expect("known").trace().expect("no errors")
}

/// A: rounding to powers of two is that of `VTensor`; inner extents alone are rounded.
#[test]
fn a_a_value_has_its_padded_extents() {
    let traced = known("quest");
    let product = traced.indexer.ids().find(|id| traced.indexer.op(*id).name() == "multiply").expect("q·max");
    for (group, padded) in [(4, 4), (5, 8), (7, 8), (1, 1)] {
        let extents = traced.extents(&ModelShape { group, head_dim: 128, ..MODEL }).expect("fits");
        let tensor = traced.vtensor(&extents, product).expect("a shape");
        assert_eq!(tensor.shape().extents(), [0, group, 128]);
        assert_eq!(tensor.padded_shape().extents(), [0, padded, 128]);
        assert_eq!((tensor.needs_padding(), tensor.format()), (group != padded, Format::Ragged));
    }
}

/// B: an op of two values is `Batched` where both are, else `Ragged`; of one value likewise.
#[test]
fn b_formats_join_by_the_table() {
    let flow = Sketch {
        states: vec![(ONE, 0.0)],
        ..scores(|step: Step<'_>, _: &Handles, states: Vec<State>| {
            let batched = step.query().mean(D0);
            let paged = step.keys().mean(D0);
            let ragged = paged.abs();
            let [state] = <[State; 1]>::try_from(states).expect("one");
            let keys = step.keys();
            let (loaded, slot) = step.load(state);
            let all = (batched * batched).gemv(batched * ragged) + (ragged * batched).gemv(ragged * ragged);
            let all = all + (batched * keys).sum(D1).max(D0) + (keys * batched).min(D0).sum(D1);
            let all =
                all + (keys * ragged).sum(D0).sum(D1) + (ragged * keys).sum(D0).sum(D1) + (keys * keys).sum(D0).sum(D1);
            slot.save(all + loaded);
            step.select(all)
        })
    };
    let traced = trace(&flow).expect("no errors");
    let graph = &traced.indexer;
    for id in graph.ids().filter(|id| !graph.op(*id).is_source() && !graph.op(*id).is_effect()) {
        let all_batched = graph.operands(id).into_iter().all(|o| graph.row(o).format == Format::Batched);
        let wanted = if all_batched { Format::Batched } else { Format::Ragged };
        assert_eq!(graph.row(id).format, wanted, "{}", graph.op(id).name());
    }
    let batched = graph.ids().filter(|id| graph.row(*id).format == Format::Batched && !graph.op(*id).is_source());
    assert_eq!(batched.count(), 2, "the mean of the query, and its square");
}

/// C: what a trace is given, and what it makes of it.
#[test]
fn c_sources_have_their_shapes_and_values_in_between_are_f32() {
    let traced = known("centered");
    let graph = &traced.indexer;
    let source = |name: &str| graph.row(graph.ids().find(|id| graph.op(*id).name() == name).expect("a source"));
    assert_eq!((source("query").format, source("query").shape.to_string()), (Format::Batched, "[G, D]".into()));
    assert_eq!((source("field").format, source("field").shape.to_string()), (Format::Paged, "[1, D]".into()));
    assert_eq!(source("select").shape.to_string(), "[1, 1]");
    let extents = traced.extents(&MODEL).expect("fits");
    for id in traced.indexer.ids() {
        let wanted = match graph.op(id) {
            op if op.is_source() => DType::BF16,
            op if op.is_effect() => DType::U32,
            _ => DType::F32,
        };
        assert_eq!(traced.vtensor(&extents, id).expect("a shape").dtype(), wanted);
    }
}

/// D: what is dead is removed and reported, with its line; what is repeated is one.
#[test]
fn d_what_was_removed_is_said() {
    let flow = scores(|step: Step<'_>, _: &Handles, _: Vec<State>| {
        let forgotten = step.query().mean(D0).exp();
        let _ = forgotten.abs();
        let a = step.keys().sum(D1);
        let b = step.keys().sum(D1);
        let score = (a + b).max(D0);
        step.select(score)
    });
    let traced = trace(&flow).expect("no errors");
    let said: Vec<String> = traced.report.removed.iter().map(|r| r.to_string()).collect();
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(
        said[0].starts_with("mean at ") && said[0].contains("conformance.rs:") && said[0].contains(": dead: "),
        "{said:?}"
    );
    assert!(said[3].starts_with("sum at ") && said[3].ends_with("the same as an op before it"), "{said:?}");
    assert_eq!(
        traced.indexer.steps().map(|step| step.op.name()).collect::<Vec<_>>(),
        ["keys", "sum", "add", "max", "select"]
    );
}

/// A flow of one op, as a sketch with a field `f0 [1, D]` and a parameter.
macro_rules! one {
    ($name:literal, |$step:ident, $q:ident, $f:ident, $handles:ident| $score:expr) => {
        ($name, &|world: &World| {
            let flow = sketch(
                &[[Dim::ONE, Dim::HEAD_DIM]],
                &[],
                &[[Dim::GROUP.times(Dim::HEAD_DIM), Dim::of(3)], [Dim::of(3), Dim::HEAD_DIM]],
                |block: &Block<'_>, handles: &Handles| {
                    let projected = block.keys().gemm(block.parameter(handles.parameters[1])).mean(D1).sum(D0);
                    let part = block.values().interleave(Reduce::Max, D0, 2);
                    block.store(handles.fields[0], block.keys().mean(D0) + projected + part.mean(D0));
                },
                |$step: Step<'_>, $handles: &Handles, _: Vec<State>| {
                    let $q = $step.query();
                    let $f = $step.field($handles.fields[0]);
                    let score = $score;
                    $step.select(score)
                },
            );
            check(&flow, 7, world).known
        })
    };
}

type Case = (&'static str, &'static dyn Fn(&World) -> usize);

fn cases() -> Vec<Case> {
    vec![
        one!("sum mean max min l2_norm", |step, q, f, handles| {
            let all = Reduce::ALL.map(|r| (q * f).reduce(r, D0).reduce(r, D1) + (f * q).reduce(r, D1).reduce(r, D0));
            all[1..].iter().fold(all[0], |a, b| a + *b)
        }),
        one!("interleave", |step, q, f, handles| (step.keys() * f).interleave(Reduce::Min, D0, 2).sum(D1).max(D0)
            + q.interleave(Reduce::L2Norm, D1, 2).sum(D1).mean(D0)),
        one!("relu sigmoid silu affine", |step, q, f, handles| {
            let x = (q * f).sum(D1);
            (x.relu(0.1, -0.2) + x.sigmoid(-1.0, 0.0) + x.silu(-1.5, 0.25) + x.affine(3.0, 1.0)).mean(D0)
        }),
        one!("abs ln exp", |step, q, f, handles| ((q * f).sum(D1).abs() + 0.1).ln().mean(D0).exp()),
        one!("maximum minimum mix", |step, q, f, handles| {
            let a = q.gemm(f).max(D1);
            let b = f.sum(D1);
            a.maximum(b).mix(0.5, a.minimum(b), -2.0)
        }),
        one!("where", |step, q, f, handles| {
            let a = (q * f).sum(D1);
            let b = f.mean(D1);
            let all = Comparison::ALL.map(|c| a.where_is(c, b) * 1e-30);
            all[1..].iter().fold(all[0], |a, b| a + *b).sum(D0)
        }),
        one!("mask_slice", |step, q, f, handles| (q.mask_slice(D1, 1, 3, 2.0, -1.0) * f).sum(D1).sum(D0)),
        one!("gemm gemv transpose", |step, q, f, handles| {
            let logits = q.gemm(step.keys());
            logits.transpose().max(D1).mean(D0) + q.mean(D0).gemv(f)
        }),
        one!("gemm with a parameter", |step, q, f, handles| {
            let low = q.mean(D0).gemm(step.parameter(handles.parameters[1])).sum(D0);
            f.sum(D1) * low
        }),
        one!("learned_query", |step, q, f, handles| {
            let w = step.parameter(handles.parameters[0]);
            q.learned_query(w, w, Scale::inverse_root(Dim::HEAD_DIM)).gemv(f)
        }),
        one!("kron", |step, q, f, handles| q.kron(&[D0], step.keys()).sum(D1).max(D0)
            + q.mean(D0).kron(&[D1, D0], f).sum(D1)),
        one!("reshape", |step, q, f, handles| {
            let flat = (q * f).reshape([Dim::ONE, Dim::GROUP.times(Dim::HEAD_DIM)]);
            flat.mask_slice(D1, 0, 2, 1.0, 0.0).gemv(flat)
        }),
        one!("over_blocks", |step, q, f, handles| {
            let x = (q * f).sum(D1);
            Reduce::ALL.iter().fold(x, |sum, r| sum + x.over_blocks(*r)).mean(D0)
        }),
        one!("softmax", |step, q, f, handles| q.gemm(f).softmax(Scale::from(-0.7)).max(D1)),
        one!("normalize", |step, q, f, handles| {
            (f.load().normalize(Norm::L1) + q.mean(D0) * f.load().normalize(Norm::L2)).sum(D1)
        }),
        one!("conv1d", |step, q, f, handles| {
            let taps = Taps::shared(&[1.0, 0.5, -0.25]).expect("weights");
            let score = taps_of_one(&[2.0, 1.0]);
            (q * f).sum(D1).mean(D0).conv1d(score) + f.load().conv1d(taps).sum(D1)
        }),
        one!("values positions", |step, q, f, handles| {
            step.values().l2_norm(D1).mean(D0) * step.positions() + q.mean(D0).gemv(f)
        }),
    ]
}

fn taps_of_one(weights: &[f64]) -> Taps {
    Taps::new(weights, [weights.len() as u32, 1, 1]).expect("weights")
}

/// F: every op by its definition, at lengths around budget, chunk and page, for groups that are no
/// powers of two.
#[test]
fn f_every_op_is_what_its_definition_says() {
    for (number, (name, run)) in cases().iter().enumerate() {
        let mut known = 0;
        for (seed, group) in [3, 5].into_iter().enumerate() {
            let mut rng = Rng::new((number * 10 + seed) as u64);
            let budget = Budget::new(2, 0.0, 1, 1).expect("a budget");
            // 0, 1, budget, budget + 1 blocks; a token less and more than a page of 3 blocks, and
            // three pages.
            let tokens = [0, 1, 8, 9, 10, 5, 7, 18];
            let world = World::new(&mut rng, ModelShape { kv_heads: 1, group, ..MODEL }, 3, budget, &tokens);
            known += run(&world);
        }
        assert!(known > 30, "{name}: {known} scores were judged");
    }
}

/// F: groups of 3, 5, 6, 7 under Max and Min, with operands of one sign: a padded zero would win.
#[test]
fn f_padding_never_wins_a_maximum_or_minimum() {
    for group in [3, 5, 6, 7] {
        for (sign, reduce) in [(-1.0, Reduce::Max), (1.0, Reduce::Min)] {
            let flow = scores(move |step: Step<'_>, _: &Handles, _: Vec<State>| {
                let logits = step.query().gemm(step.keys().abs()).transpose();
                step.select(logits.reduce(reduce, D0).reduce(reduce, D1))
            });
            let model = ModelShape { kv_heads: 1, group, head_dim: 3, block_tokens: 3 };
            let traced = trace(&flow).expect("no errors");
            let bound = bind(&mut Rng::new(1), &traced, &model);
            let budget = Budget::new(1, 0.0, 0, 1).expect("a budget");
            let mut world = World::new(&mut Rng::new(group as u64), model, 1, budget, &[12]);
            world.queries.iter_mut().flatten().for_each(|x| *x = sign * (x.abs() + 0.5));
            let oracle = Interpreter::new(&bound);
            for row in world.play::<f64>(&oracle, 3).outcomes.iter().flatten() {
                assert!(row.scores.iter().all(|score| score * sign > 0.0), "group {group}: {:?}", row.scores);
            }
        }
    }
}

/// G: rows and chunks in closed form.
#[test]
fn g_the_row_table_is_its_closed_form() {
    let budget = Budget::new(3, 0.25, 1, 2).expect("a budget");
    let blocks = [0usize, 1, 6, 7, 23, 40];
    let heads = 3;
    for chunk in [1, 4, 16, 17, 18, 64] {
        let table = RowTable::new(&blocks, heads, &budget, chunk).expect("a table");
        let rows: Vec<usize> = blocks.iter().flat_map(|b| [*b; 3]).collect();
        let selected = |l: usize| l.min(6.max(l / 4));
        for (row, l) in rows.iter().enumerate() {
            assert_eq!(table.dense[row + 1] - table.dense[row], *l as u32);
            assert_eq!(table.sparse[row + 1] - table.sparse[row], selected(*l) as u32);
            let chunks: Vec<&Chunk> = table.chunks.iter().filter(|c| c.row as usize == row).collect();
            // Nothing is scored if and only if the budget covers the row.
            assert_eq!(chunks.is_empty(), *l <= selected(*l));
            let scored: u32 = chunks.iter().map(|c| c.len).sum();
            assert_eq!(scored as usize, if chunks.is_empty() { 0 } else { l - 3 });
            for (number, c) in chunks.iter().enumerate() {
                assert_eq!((c.begin as usize, c.is_first), (1 + number * chunk, number == 0));
                assert!(c.len as usize == chunk || number + 1 == chunks.len() && c.len > 0);
            }
        }
    }
    let error = RowTable::new(&[usize::MAX / 2], 3, &budget, 4).unwrap_err();
    assert!(matches!(error, RunError::Blocks { .. }), "{error}");
    assert!(RowTable::new(&[1], 1, &budget, 0).is_err());
}

/// G, H: the winner format: first blocks, winners by score, last blocks in order; the last is the
/// true last block.
#[test]
fn g_first_and_last_blocks_have_their_places() {
    let traced = known("streaming-llm");
    let model = ModelShape { kv_heads: 1, group: 1, head_dim: 2, block_tokens: 4 };
    let bound = traced.bind(&model, &Parameters::new()).expect("fits");
    let machine = Interpreter::new(&bound);
    let budget = Budget::new(2, 0.0, 2, 2).expect("a budget");
    let mut world = World::new(&mut Rng::new(4), model, 2, budget, &[37]);
    world.steps = 0;
    let (pool, mut requests) = world.fill::<f64>(&machine, 8);
    let outcome = machine.step(&pool, &mut requests, &[0.0, 0.0], &budget).expect("a step").remove(0);
    // 10 blocks, the last with one token; of 2 to 7 the latest two win, the later one first.
    assert_eq!(outcome.scores, [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    assert_eq!(outcome.selected.positions, [0, 1, 7, 6, 8, 9]);
    assert_eq!(outcome.selected.tokens(4, 1), 5 * 4 + 1);
    let shape = PoolShape { model, page_tokens: 8 };
    let table = requests[0].blocks(shape, 0);
    let wanted: Vec<u32> = outcome.selected.positions.iter().map(|p| table[*p as usize]).collect();
    assert_eq!(outcome.selected.blocks, wanted);
}

/// H: the exact order: score, then place; NaN last; and the key of 32 bits has the same order.
#[test]
fn h_top_k_is_exact_with_ties_and_nan() {
    let nan = f32::NAN;
    let inf = f32::INFINITY;
    let scores = [nan, -1e30, 2.0, -inf, 2.0, inf, -0.0, 0.0, nan, -3.0, 1e-45];
    assert_eq!(top_k(&scores, 11), [5, 2, 4, 10, 6, 7, 9, 1, 3, 0, 8]);
    assert_eq!(top_k(&scores, 3), [5, 2, 4]);
    assert_eq!(top_k(&scores, 99).len(), 11);
    assert_eq!(top_k::<f32>(&[], 3), [0u32; 0]);
    let mut rng = Rng::new(8);
    for _ in 0..200 {
        let scores: Vec<f32> =
            (0..50).map(|_| [nan, inf, -inf, 0.0, -0.0, rng.unit() as f32, 1.0][rng.below(7)]).collect();
        let mut by_key: Vec<u32> = (0..50).collect();
        by_key.sort_by_key(|i| (std::cmp::Reverse(order_key(scores[*i as usize])), *i));
        assert_eq!(top_k(&scores, 50), by_key);
    }
}

/// L: what cannot be is refused with noun, value, bound and remedy.
#[test]
fn l_budgets_models_and_pools_are_checked() {
    let text = |result: Result<Budget, RunError>| result.unwrap_err().to_string();
    assert_eq!(text(Budget::new(0, 0.0, 0, 1)), "budget: top_k is 0; give at least 1");
    assert_eq!(text(Budget::new(1, 1.5, 0, 1)), "budget: ratio is 1.5; give a number from 0 to 1");
    assert_eq!(text(Budget::new(1, f64::NAN, 0, 1)), "budget: ratio is NaN; give a number from 0 to 1");
    assert_eq!(
        text(Budget::new(1, 0.0, 0, 0)),
        "budget: last is 0; give at least 1, for the block that is not complete"
    );
    assert!(Budget::new(u32::MAX, 0.0, 1, 1).is_err());
    let lserve = known("lserve");
    let error = lserve.extents(&ModelShape { block_tokens: 24, ..MODEL }).unwrap_err().to_string();
    assert!(
        error.starts_with("max at ") && error.contains("asks for B a multiple of 16, but the model has 24 and 16"),
        "{error}"
    );
    assert!(matches!(lserve.extents(&ModelShape { group: 0, ..MODEL }), Err(BindError::Extent { .. })));
    assert_eq!(lserve.extents(&ModelShape { kv_heads: 0, ..MODEL }).unwrap_err(), BindError::NoHeads);
    let filter = known("q-filter");
    let error = filter.bind(&MODEL, &Parameters::new()).unwrap_err().to_string();
    assert_eq!(error, "parameter `filter` was not given; give 8 numbers for each key head");
    let error = filter.bind(&MODEL, &[("filter".to_string(), vec![0.0; 8])].into()).unwrap_err().to_string();
    assert_eq!(error, "parameter `filter` has 8 numbers; give 16: 2 key heads of [1, 8]");
    let quest = known("quest");
    let bound = quest.bind(&MODEL, &Parameters::new()).expect("fits");
    assert!(matches!(
        FlowPool::<f64>::new(&bound, 5, 4),
        Err(RunError::PageTokens { page_tokens: 5, block_tokens: 2 })
    ));
    assert!(matches!(FlowPool::<f64>::new(&bound, 4, usize::MAX), Err(RunError::PoolSize { .. })));
    let mut pool: FlowPool<f64> = FlowPool::new(&bound, 4, 4).expect("a pool");
    assert_eq!(FlowRequest::new(&pool, &[4], 0).unwrap_err(), RunError::Page { page: 4, pages: 4 });
    assert!(FlowRequest::new(&pool, &[1], 5).is_err());
    let machine = Interpreter::new(&bound);
    let mut request = FlowRequest::new(&pool, &[1], 0).expect("a request");
    assert!(matches!(machine.append(&mut pool, &mut request, &[0.0; 15], &[0.0; 15]), Err(RunError::Length { .. })));
    assert!(matches!(
        machine.step(&pool, &mut [request], &[], &Budget::new(1, 0.0, 0, 1).expect("b")),
        Err(RunError::Length { .. })
    ));
    let other = known("h2o");
    let other = other.bind(&MODEL, &Parameters::new()).expect("fits");
    let error = Interpreter::new(&other).step(&pool, &mut [], &[], &Budget::new(1, 0.0, 0, 1).expect("b"));
    assert!(matches!(error, Err(RunError::Foreign { .. })));
}

/// L: everything wrong with a flow is said at once, with op, operand and both shapes, at the flow's
/// line.
#[test]
fn l_trace_errors_name_op_operand_and_both_shapes() {
    let flow = sketch(
        &[[Dim::ONE, Dim::HEAD_DIM], [Dim::of(0), Dim::ONE]],
        &[(ONE, 0.0)],
        &[],
        |block: &Block<'_>, handles: &Handles| {
            block.store(handles.fields[0], block.keys());
            block.store(handles.fields[0], block.keys().mean(D0));
        },
        |step: Step<'_>, handles: &Handles, states: Vec<State>| {
            let bad = step.query() * step.keys();
            let _ = bad.exp().gemm(step.field(handles.fields[0]));
            let _ = step.query().gemm(step.keys().transpose());
            let _ = step.query().mask_slice(D0, 3, 2, 1.0, 0.0).reshape([Dim::ONE, Dim::HEAD_DIM]);
            let _ = step.keys().interleave(Reduce::Max, D0, 0);
            let (_, slot) = step.load(states.into_iter().next().expect("one"));
            drop(slot);
            let score = step_score(step.positions(), step.keys());
            step.select(score)
        },
    );
    let errors = trace(&flow).unwrap_err();
    let text: Vec<String> = errors.errors.iter().map(|e| e.problem.to_string()).collect();
    insta::assert_snapshot!(text.join("\n"));
    assert!(errors.errors.iter().skip(1).any(|e| e.at.file().ends_with("conformance.rs")));
    assert!(errors.to_string().starts_with("flow `sketch`: "), "{errors}");
    assert!(matches!(errors.errors[0].problem, FlowProblem::Extent { .. }));
}

fn step_score<'t>(positions: Value<'t, Ragged>, keys: Value<'t, Paged>) -> Value<'t, Ragged> {
    keys.sum(InnerAxis::D1) * positions
}

/// Save and load do not mix with the constants of an op: what differs in a constant is another op.
#[test]
fn d_ops_that_differ_in_a_constant_are_not_the_same() {
    let flow = scores(|step: Step<'_>, _: &Handles, _: Vec<State>| {
        let x = step.positions();
        step.select((x * 2.0) + (x * 2.0) + (x * -0.0) + (x * 0.0))
    });
    let traced = trace(&flow).expect("no errors");
    let is_unary = |op: &Op| matches!(op, Op::Elementwise { function: Elementwise::Unary(_), .. });
    let affine = traced.indexer.steps().filter(|step| is_unary(step.op));
    assert_eq!((affine.count(), traced.report.removed.len()), (3, 1));
}
