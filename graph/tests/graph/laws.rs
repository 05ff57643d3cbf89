//! Laws of random graphs, and of the families' graphs.

use proptest::prelude::*;
use tilewright_graph::Graph;
use tilewright_graph::graph::Body;
use tilewright_graph::interpret::{Interpreter, Sequence, Tensor};
use tilewright_graph::op::{NormKind, Op};
use tilewright_graph::passes::{fuse, normalise, unfuse};
use tilewright_graph::testing::{graphs, weights};

use crate::checkpoint::{cases, error_of, folder, graph, weights as stored};

/// Cases of a law: more where `TILEWRIGHT_LONG=1` asks for it.
pub fn budget() -> ProptestConfig {
    let is_long = std::env::var_os("TILEWRIGHT_LONG").is_some();
    ProptestConfig::with_cases(if is_long { 10_000 } else { 300 })
}

/// The outputs' rows, bit by bit, with tokens fed in steps of `step`.
pub fn computed(graph: &Graph, tokens: &[u32], step: usize, seed: u64) -> Vec<Vec<u64>> {
    let weights = weights(graph, seed);
    let interpreter = Interpreter::new(graph, &weights).expect("the weights fit");
    let mut sequence = Sequence::default();
    let mut outputs = vec![Vec::new(); graph.parts().outputs.len()];
    for tokens in tokens.chunks(step) {
        let results: Vec<Tensor> = interpreter.run(&mut sequence, tokens).expect("runs");
        for (output, result) in outputs.iter_mut().zip(results) {
            // One NaN is as good as another.
            output.extend(result.data.iter().map(|x| if x.is_nan() { f64::NAN } else { *x }.to_bits()));
        }
    }
    outputs
}

pub fn whole(graph: &Graph, tokens: &[u32], seed: u64) -> Vec<Vec<u64>> {
    computed(graph, tokens, tokens.len(), seed)
}

/// Tokens that every vocabulary of the generator has.
pub fn prompts() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0u32..2, 1..7)
}

proptest! {
    #![proptest_config(budget())]

    #[test]
    fn json_gives_the_same_graph(graph in graphs()) {
        let text = serde_json::to_string(&graph).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<Graph>(&text).expect("a valid graph"), graph);
    }

    #[test]
    fn a_sequence_gives_equal_rows_in_any_split(graph in graphs(), tokens in prompts(), step in 1usize..4, seed: u64) {
        let expected = whole(&graph, &tokens, seed);
        prop_assert_eq!(&computed(&graph, &tokens, step, seed), &expected);
        let [short, rows] = [tokens.len() - 1, tokens.len()];
        if short > 0 {
            for (prefix, output) in whole(&graph, &tokens[..short], seed).iter().zip(&expected) {
                prop_assert_eq!(prefix, &output[..output.len() / rows * short]);
            }
        }
    }

    #[test]
    fn passes_keep_what_a_graph_computes(graph in graphs(), tokens in prompts(), seed: u64) {
        let expected = whole(&graph, &tokens, seed);
        let normal = normalise(&graph).expect("valid");
        prop_assert_eq!(&whole(&normal, &tokens, seed), &expected, "normalise: {}", normal);
        for graph in [graph, normal] {
            let fused = fuse(&graph).expect("valid");
            prop_assert_eq!(&whole(&fused, &tokens, seed), &expected, "fuse: {}", fused);
            prop_assert_eq!(unfuse(&fused).expect("valid").steps().count(), graph.steps().count());
        }
    }

    #[test]
    fn a_pass_changes_nothing_the_second_time(graph in graphs()) {
        let normal = normalise(&graph).expect("valid");
        let again = normalise(&normal).expect("valid");
        prop_assert!(again == normal, "normalise: {} then {}", normal, again);
        let fused = fuse(&graph).expect("valid");
        let again = fuse(&fused).expect("valid");
        prop_assert!(again == fused, "fuse: {} then {}", fused, again);
    }

    #[test]
    fn a_normal_graph_has_no_unit_offset_identity_or_dead_op(graph in graphs()) {
        let normal = normalise(&graph).expect("valid");
        for step in normal.steps() {
            let is_offset = matches!(step.op, Op::Norm { kind: NormKind::Rms { unit_offset: true }, .. });
            prop_assert!(!is_offset && !matches!(step.op, Op::Scale { by: 1.0, .. }), "{}", normal);
        }
        let read: Vec<_> = normal.steps().flat_map(|step| step.op.operands()).map(|(_, id)| id).collect();
        for step in normal.steps() {
            let mut ids = (0..step.results.len() as u32).map(|result| step.first.0 + result);
            prop_assert!(ids.any(|id| read.iter().chain(&normal.parts().outputs).any(|known| known.0 == id)));
        }
    }
}

/// Logits of real models are equal before and after the passes, bit by bit.
#[test]
fn passes_keep_logits_of_the_families() {
    let ours = ["granite", "phi4-longrope", "cohere2", "qwen2-moe", "gpt-oss"];
    let ours = ours.map(|name| format!("graph/tests/data/families/{name}"));
    let others = ["models/tiny-qwen3", "tests/data/families/gemma2", "tests/data/families/llama-biases-linear"];
    for path in ours.iter().map(String::as_str).chain(others) {
        let folder = folder(path);
        let graph = graph(&folder);
        let weights = stored(&folder);
        let mut cases = cases(&folder);
        cases.truncate(1);
        let expected = error_of(&graph, &weights, &cases, 7);
        let normal = normalise(&graph).expect("valid");
        for graph in [fuse(&graph).expect("valid"), fuse(&normal).expect("valid"), normal] {
            assert_eq!(error_of(&graph, &weights, &cases, 7), expected, "{path}: {graph}");
        }
    }
}

/// The groups of a layer of each family: the numbers of ops in prologue, core and epilogue of each
/// group, and single ops by name.
fn layer(path: &str) -> String {
    let fused = fuse(&normalise(&graph(&folder(path))).expect("valid")).expect("valid");
    let describe = |body: &Body| match body {
        Body::Single(op) => op.name().to_owned(),
        Body::Fused(fused) => {
            let names = |ops: &[Op]| ops.iter().map(Op::name).collect::<Vec<_>>().join(" ");
            format!("({} | {} | {})", names(&fused.prologue), names(&fused.core), names(&fused.epilogue))
        }
    };
    let nodes: Vec<String> = fused.parts().nodes.iter().map(|node| describe(&node.body)).collect();
    let first = nodes.iter().position(|node| node == "embed").expect("an embedding");
    let end = nodes.iter().rposition(|node| node.contains("logits")).expect("logits");
    let layers = fused.steps().filter(|step| matches!(step.op, Op::Attention { .. })).count();
    let all = nodes[first + 1..end].iter().filter(|node| *node != "input").cloned().collect::<Vec<_>>();
    format!("{}; {}", all[..all.len() / layers].join(" "), nodes[end])
}

#[test]
fn a_layer_of_each_family_becomes_few_groups() {
    insta::assert_snapshot!(layer("models/tiny-llama"), @"(norm | linear linear linear | rope rope cache_append) attention ( | linear | binary) (norm | linear linear | activation) ( | linear | binary); (norm | logits | choose)");
    insta::assert_snapshot!(layer("models/tiny-qwen3"), @"(norm | linear linear linear | norm norm rope rope cache_append) attention ( | linear | binary) (norm | linear linear | activation) ( | linear | binary); (norm | logits | choose)");
    insta::assert_snapshot!(layer("tests/data/families/gemma2"), @"(norm | linear linear linear | rope rope cache_append) attention linear norm binary (norm | linear linear | activation) linear norm binary; (norm | logits | soft_cap choose)");
    let ours = |name: &str| layer(&format!("graph/tests/data/families/{name}"));
    insta::assert_snapshot!(ours("olmo2"), @"( | linear linear linear | norm norm rope rope cache_append) attention linear norm binary ( | linear linear | activation) linear norm binary; (norm | logits | choose)");
    insta::assert_snapshot!(ours("cohere2"), @"(norm | linear linear linear linear linear | rope rope cache_append activation) attention ( | linear | binary) ( | linear | binary); (norm | logits | scale choose)");
    insta::assert_snapshot!(ours("starcoder2"), @"(norm | linear linear linear | rope rope cache_append) attention ( | linear | binary) (norm | linear | activation) ( | linear | binary); (norm | logits | choose)");
    insta::assert_snapshot!(ours("mixtral"), @"(norm | linear linear linear | rope rope cache_append) attention ( | linear | binary) norm ( | linear | route) ( | expert_linear expert_linear | activation) ( | expert_linear | weighted_sum binary); (norm | logits | choose)");
}
