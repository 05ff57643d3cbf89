//! Long prompts, whose pages lie in any order: the logits of the reference machine at every token,
//! however the prompt is cut.
//!
//! `TILEWRIGHT_LONG` in the environment: prompts of up to 9000 tokens instead of some hundred.

use std::ops::Range;
use std::sync::Arc;

use tilewright_codegen::ir::Arch;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::testing::Rng;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::graph::GraphWeights;
use tilewright_megakernel::vm::reference::{KvState, Machine};

use super::lab::{device, planned_with, program_with, prompt, random, relative, tiny};

/// Logits, relative, of the worst row, as of short prompts.
const BOUND: f64 = 2e-2;

const PAGE: usize = 64;

/// A model of one layer, with heads of 64 and positions for the longest prompt.
fn spec() -> Llama {
    tiny(64).layers(1).max_positions(16_384).heads(2, 1).rope_base(500_000.0)
}

fn options(rows: usize, pages: usize) -> LowerOptions {
    LowerOptions {
        rows,
        page_tokens: PAGE,
        pages: Some(pages),
        splits: Some(1),
        kv: DType::BF16,
        ..LowerOptions::for_context(PAGE * pages)
    }
}

/// Step inputs of a chunk of a prompt, padded with idle rows.
struct Chunk {
    tokens: Vec<i32>,
    positions: Vec<i32>,
    tables: Vec<i32>,
}

impl Chunk {
    fn new(prompt: &[i32], chunk: Range<usize>, pages: &[i32], rows: usize) -> Chunk {
        let mut tokens = prompt[chunk.clone()].to_vec();
        let mut positions: Vec<i32> = chunk.map(|at| at as i32).collect();
        tokens.resize(rows, 0);
        positions.resize(rows, -1);
        Chunk { tokens, positions, tables: pages.repeat(rows) }
    }

    fn view(&self) -> StepCells<'_> {
        StepCells { tokens: &self.tokens, positions: &self.positions, page_table: &self.tables }
    }
}

/// The chunks of a prompt, by chunk sizes that are taken in turn.
fn cuts(tokens: usize, chunks: &[usize]) -> Vec<(usize, usize)> {
    let mut cuts = Vec::new();
    for &chunk in chunks.iter().cycle() {
        let first = cuts.last().map_or(0, |&(_, end)| end);
        if first == tokens {
            break;
        }
        cuts.push((first, tokens.min(first + chunk)));
    }
    cuts
}

/// The logits of every token by the reference machine, which feeds chunks of its own.
fn expected(spec: &Llama, prompt: &[i32], pages: &[i32]) -> Vec<Vec<f32>> {
    let rows = prompt.len().min(256);
    let placed = schedule(program_with(spec, 1, &options(rows, pages.len())), PAGE * pages.len()).unwrap();
    let mut machine = Machine::new(placed, &random(spec), 1).unwrap();
    let mut kv = KvState::new(machine.program()).unwrap();
    let mut all = Vec::new();
    for (first, end) in cuts(prompt.len(), &[rows]) {
        let output = machine.step(&mut kv, &Chunk::new(prompt, first..end, pages, rows).view()).unwrap();
        all.extend((0..end - first).map(|row| output.f32_row(LOGITS, row).unwrap()));
    }
    all
}

fn agrees(tokens: usize, chunks: &[usize], seed: u64) {
    let spec = spec();
    let prompt = prompt(tokens, seed as i32);
    let mut pages: Vec<i32> = (0..tokens.div_ceil(PAGE) as i32).collect();
    Rng::new(seed).shuffle(&mut pages);
    let rows = chunks.iter().copied().max().unwrap().max(17);
    let mut weights = GraphWeights::new(device(Arch::Sm90a, seed), Arc::new(random(&spec)));
    let step = planned_with(&spec, &options(rows, pages.len()));
    let mut machine = weights.machine(step, None, &mut |_, _| ()).unwrap();
    let expected = expected(&spec, &prompt, &pages);
    let mut at = 0;
    let mut worst = 0.0f64;
    for (first, end) in cuts(tokens, chunks) {
        let chunk = Chunk::new(&prompt, first..end, &pages, rows);
        let active: Vec<usize> = (0..end - first).collect();
        machine
            .step(&chunk.view(), &active, &mut |_, logits| {
                worst = worst.max(relative(logits, &expected[at]));
                at += 1;
            })
            .unwrap();
    }
    assert_eq!(at, tokens, "every token has logits");
    println!("{tokens} tokens in chunks of {chunks:?}, seed {seed}: {worst:.1e}");
    assert!(worst < BOUND, "{tokens} tokens in chunks of {chunks:?}, seed {seed}: {worst}");
}

#[test]
fn long_prompts_agree_at_every_token() {
    let cases: &[(usize, &[usize])] = match std::env::var_os("TILEWRIGHT_LONG") {
        Some(_) => &[
            (1, &[32]),
            (63, &[512]),
            (513, &[512]),
            (1000, &[77, 300]),
            (2049, &[512]),
            (4097, &[256, 31, 512]),
            (9000, &[512]),
            (9000, &[1, 500, 128]),
        ],
        None => &[(300, &[128]), (257, &[77, 3, 128])],
    };
    for (seed, &(tokens, chunks)) in (0u64..).zip(cases) {
        agrees(tokens, chunks, seed);
    }
}
