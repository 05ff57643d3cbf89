//! Stages of a pipeline: one after the other they give the bits of the whole, each reads its own
//! weights, keeps its own pools.

use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::prelude::*;
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{HIDDEN_IN, HIDDEN_OUT, LOGITS, LayerParts, LowerOptions, NEXT_TOKEN, lower};
use tilewright_megakernel::model::{Architecture, ModelSpec};
use tilewright_megakernel::program::{BufferKind, Span};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::weights::{RandomWeights, WeightTensor, Weights};

const PAGES: usize = 8;
const CONTEXT: usize = 32;

/// A small model of a family, of which up to four devices have shares.
fn spec(family: &str, layers: usize) -> ModelSpec {
    super::model::spec(family).layers(layers).heads(12, 4).vocab(96).model().unwrap().into_owned()
}

/// Weights that note who asks for them.
struct Noted<'w> {
    weights: &'w RandomWeights,
    asked: RefCell<BTreeSet<String>>,
}

impl Weights for Noted<'_> {
    fn tensor(&self, name: &str) -> Option<WeightTensor> {
        self.asked.borrow_mut().insert(name.to_owned());
        self.weights.tensor(name)
    }
}

/// The parameters of a model's run.
#[derive(Clone, Debug)]
struct Run {
    /// Rows of each step, and how many of them are no idle ones.
    steps: Vec<[usize; 2]>,
    devices: usize,
    sms: usize,
    workers: usize,
}

/// The results of each step: the bits of the logits, and the choices.
type Given = Vec<(Vec<u32>, Vec<i32>)>;

/// A program of some layers, one after another of which compute a model.
type Piece = (Span, LayerParts);

/// The stages whose last layers are `ends`.
fn stages(ends: &[usize]) -> Vec<Piece> {
    let layers = ends.iter().scan(0, |lo, &hi| Some(Span::new(std::mem::replace(lo, hi), hi)));
    layers.map(|layers| (layers, LayerParts::Stage)).collect()
}

/// Runs a sequence of tokens on the pieces; `wire` transforms the data between them.
fn run(spec: &ModelSpec, pieces: &[Piece], run: &Run, wire: impl Fn(&mut Vec<f32>)) -> Given {
    let weights = RandomWeights::new(spec, DType::BF16, 5).unwrap();
    let mut pools: Vec<Option<KvState>> = pieces.iter().map(|_| None).collect();
    let mut given = Vec::new();
    let mut at = 0;
    for &[rows, live] in &run.steps {
        let positions: Vec<i32> = (0..rows).map(|row| if row < live { (at + row) as i32 } else { -1 }).collect();
        let tokens: Vec<i32> = (0..rows).map(|row| ((at + row) * 37 % spec.vocab) as i32).collect();
        let page_table: Vec<i32> = (0..rows).flat_map(|_| [5, 2]).collect();
        let mut hidden = Vec::new();
        for (&(layers, parts), kv) in pieces.iter().zip(&mut pools) {
            let whole = layers == Span::all(spec.layers);
            let options = LowerOptions {
                rows,
                page_tokens: 16,
                pages: Some(PAGES),
                splits: Some(2),
                devices: run.devices,
                layers: (!whole).then_some(layers),
                parts,
                ..LowerOptions::for_context(CONTEXT)
            };
            let program = lower(spec, &|_| DType::BF16, Target::host(run.sms), &options).unwrap();
            let placed = schedule(program, CONTEXT).unwrap_or_else(|error| panic!("{error:?}"));
            let kv = kv.get_or_insert_with(|| {
                let mut kv = KvState::new(&placed).unwrap();
                kv.poison();
                kv
            });
            let mut machine = Machine::new(placed, &weights, run.workers).unwrap();
            machine.poison();
            let mut tokens = tokens.as_slice();
            if layers.lo > 0 {
                machine.set_input(HIDDEN_IN, &hidden).unwrap();
                tokens = &[];
            }
            // An MLP has no positions.
            let [positions, page_table] = match parts {
                LayerParts::Mlp => [&[][..]; 2],
                _ => [&positions[..], &page_table],
            };
            let cells = StepCells { tokens, positions, page_table };
            let output = machine.step(kv, &cells).unwrap_or_else(|error| panic!("{error}"));
            if layers.hi < spec.layers {
                hidden = output.f32(HIDDEN_OUT).unwrap();
                wire(&mut hidden);
                continue;
            }
            let bits = output.f32(LOGITS).unwrap()[..live * spec.vocab].iter().map(|x| x.to_bits()).collect();
            given.push((bits, output.i32(NEXT_TOKEN).unwrap()[..live].to_vec()));
        }
        at += live;
    }
    given
}

const FAMILIES: [&str; 4] = ["llama", "mistral", "qwen2", "qwen3"];

/// The ends of stages: some of the layers' borders, the last among them.
fn ends(borders: &[bool]) -> Vec<usize> {
    let inner = borders.iter().enumerate().filter(|(_, is_cut)| **is_cut).map(|(at, _)| at + 1);
    inner.chain([borders.len() + 1]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the model, the cuts, the batches, idle rows, devices, queues and workers.
    #[test]
    fn stages_give_the_bits_of_the_whole(
        family in prop::sample::select(FAMILIES.to_vec()),
        borders in prop::collection::vec(any::<bool>(), 0..4),
        steps in prop::collection::vec((1usize..6, 0usize..3).prop_map(|(live, idle)| [live + idle, live]), 1..4),
        devices in prop::sample::select(vec![1usize, 1, 2, 4]),
        [sms, more_sms] in [1usize..5, 1usize..5],
        workers in 1usize..4,
    ) {
        let spec = spec(family, borders.len() + 1);
        let ends = ends(&borders);
        let how = Run { steps, devices, sms, workers };
        let whole = run(&spec, &stages(&[spec.layers]), &how, |_| ());
        let found = run(&spec, &stages(&ends), &Run { sms: more_sms, ..how }, |_| ());
        prop_assert!(found == whole, "stages that end at {ends:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Layers of any number, whole or in halves, between a stage with the embedding and one with the
    /// choice.
    #[test]
    fn layers_and_halves_of_them_give_the_bits_of_the_whole(
        family in prop::sample::select(FAMILIES.to_vec()),
        halved in prop::collection::vec(any::<bool>(), 1..4),
        steps in prop::collection::vec((1usize..6, 0usize..3).prop_map(|(live, idle)| [live + idle, live]), 1..3),
        devices in prop::sample::select(vec![1usize, 1, 2]),
        sms in 1usize..5,
    ) {
        let spec = spec(family, halved.len() + 2);
        let how = Run { steps, devices, sms, workers: 2 };
        let inner = halved.iter().zip(1..).flat_map(|(&is_halved, layer)| {
            let parts = if is_halved { vec![LayerParts::Attention, LayerParts::Mlp] } else { vec![LayerParts::Layers] };
            parts.into_iter().map(move |parts| (Span::one(layer), parts))
        });
        let last = spec.layers - 1;
        let ends = [(Span::one(0), LayerParts::Stage), (Span::one(last), LayerParts::Stage)];
        let pieces: Vec<Piece> = [ends[0]].into_iter().chain(inner).chain([ends[1]]).collect();
        let whole = run(&spec, &stages(&[spec.layers]), &how, |_| ());
        let found = run(&spec, &pieces, &how, |_| ());
        prop_assert!(found == whole, "{pieces:?}");
    }
}

#[test]
fn half_of_several_layers_is_refused() {
    let options =
        LowerOptions { layers: Some(Span::new(0, 2)), parts: LayerParts::Mlp, ..LowerOptions::for_context(16) };
    let error = lower(&spec("llama", 2), &|_| DType::BF16, Target::host(2), &options).unwrap_err();
    assert_eq!(error.to_string(), "half a layer is of one layer, 2 were named; name a layer");
}

/// The law has teeth: a number that is handed on wrongly is seen, wherever it is.
#[test]
fn a_bit_that_a_stage_gets_wrong_is_seen() {
    let spec = spec("qwen3", 3);
    let how = Run { steps: vec![[2, 2]], devices: 1, sms: 2, workers: 1 };
    let whole = run(&spec, &stages(&[3]), &how, |_| ());
    for at in [0, 47, 48, 95] {
        let found = run(&spec, &stages(&[1, 2, 3]), &how, |hidden| hidden[at] += 1.0);
        assert!(found != whole, "element {at}");
    }
}

/// A worker needs the files of its own layers.
#[test]
fn a_stage_asks_for_its_own_weights_and_keeps_its_own_pools() {
    let spec = spec("qwen2", 4);
    let all = RandomWeights::new(&spec, DType::BF16, 5).unwrap();
    let stage = |lo, hi| {
        let options =
            LowerOptions { page_tokens: 16, layers: Some(Span::new(lo, hi)), ..LowerOptions::for_context(CONTEXT) };
        let program = lower(&spec, &|_| DType::BF16, Target::host(2), &options).unwrap();
        let pools = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool);
        let pools: Vec<String> = pools.map(|buffer| buffer.name.clone()).collect();
        let weights = Noted { weights: &all, asked: RefCell::default() };
        Machine::new(schedule(program, CONTEXT).unwrap(), &weights, 1).unwrap();
        (weights.asked.into_inner(), pools)
    };
    let (asked, pools) = stage(1, 3);
    let of_layers = |name: &String| name.starts_with("model.layers.1.") || name.starts_with("model.layers.2.");
    assert!(asked.iter().all(of_layers), "{asked:?}");
    assert_eq!(pools, ["layers.1.k", "layers.1.v", "layers.2.k", "layers.2.v"]);
    let outer = |(asked, _): (BTreeSet<String>, _)| {
        asked.into_iter().filter(|name| !name.starts_with("model.layers.")).collect::<Vec<_>>()
    };
    assert_eq!(outer(stage(0, 1)), ["model.embed_tokens.weight"]);
    assert_eq!(outer(stage(3, 4)), ["lm_head.weight", "model.norm.weight"]);
}

#[test]
fn a_stage_of_all_layers_is_the_program() {
    let spec = spec("mistral", 2);
    let lowered = |layers| {
        let options = LowerOptions { layers, ..LowerOptions::for_context(CONTEXT) };
        lower(&spec, &|_| DType::BF16, Target::host(2), &options).unwrap()
    };
    assert!(lowered(Some(Span::all(2))) == lowered(None));
}
