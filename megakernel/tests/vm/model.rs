//! Whole models: the same numbers whatever the workers, the placement, the batch and the pages.

use proptest::prelude::*;
use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, NEXT_TOKEN, lower};
use tilewright_megakernel::program::Program;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::weights::RandomWeights;

use super::lab::{Random, random_queues};

const CONTEXT: usize = 64;
const PAGES: usize = 12;

/// A small model with the odd parts that a family may have.
pub fn spec(family: &str) -> Llama {
    let qwen3 = family == "qwen3";
    let head_dim = if qwen3 { 20 } else { 16 };
    Llama {
        qkv_bias: family == "qwen2",
        qk_norm: qwen3,
        ..Llama::small().hidden(48).head_dim(head_dim).inner(72).vocab(101).max_positions(128).tied(family == "llama")
    }
}

fn program(spec: &Llama, rows: usize, sms: usize, kv: DType, splits: usize) -> Program {
    let options = LowerOptions {
        rows,
        page_tokens: 16,
        pages: Some(PAGES),
        splits: Some(splits),
        kv,
        ..LowerOptions::for_context(CONTEXT)
    };
    lower(spec, &|_| DType::BF16, Target::host(sms), &options).unwrap()
}

fn machine(program: Program, weights: &RandomWeights, workers: usize, placement: u64) -> Machine {
    let mut program = program;
    program.queues = Some(random_queues(&program, &mut Random(placement)));
    Machine::new(Placed::new(program).unwrap(), weights, workers).unwrap()
}

/// The feeding of a token sequence.
struct Feeding {
    family: &'static str,
    kv: DType,
    splits: usize,
    workers: usize,
    sms: usize,
    placement: u64,
    /// Rows of each step; a row of a step that the sequence does not fill is idle.
    chunks: Vec<usize>,
    table: Vec<i32>,
}

const TOKENS: [i32; 21] = [3, 100, 0, 7, 7, 55, 21, 90, 14, 3, 3, 2, 1, 77, 64, 32, 16, 8, 4, 2, 99];

/// The bits of the logits after each token, and the choices.
fn feed(feeding: &Feeding) -> Vec<(Vec<u32>, i32)> {
    let spec = spec(feeding.family);
    let weights = RandomWeights::new(&spec, DType::BF16, 11).unwrap();
    let shape = |rows| program(&spec, rows, feeding.sms, feeding.kv, feeding.splits);
    let mut kv = KvState::new(&shape(1)).unwrap();
    kv.poison();
    let mut at = 0;
    let mut out = Vec::new();
    for &rows in feeding.chunks.iter().cycle() {
        if at == TOKENS.len() {
            break;
        }
        let mut machine = machine(shape(rows), &weights, feeding.workers, feeding.placement);
        machine.poison();
        let live = rows.min(TOKENS.len() - at);
        let position = |row: usize| if row < live { (at + row) as i32 } else { -1 };
        let tokens: Vec<i32> = (0..rows).map(|row| TOKENS.get(at + row).copied().unwrap_or(-7)).collect();
        let positions: Vec<i32> = (0..rows).map(position).collect();
        let page_table: Vec<i32> = (0..rows).flat_map(|_| feeding.table.clone()).collect();
        let cells = StepCells { tokens: &tokens, positions: &positions, page_table: &page_table };
        let output = machine.step(&mut kv, &cells).unwrap_or_else(|error| panic!("{error}"));
        let next = output.i32(NEXT_TOKEN).unwrap();
        for (row, &next) in next.iter().enumerate().take(live) {
            let logits = output.f32_row(LOGITS, row).unwrap();
            assert!(logits.iter().all(|x| x.is_finite()), "row {row} of the step at {at}");
            out.push((logits.iter().map(|x| x.to_bits()).collect(), next));
        }
        at += live;
    }
    out
}

fn plain(family: &'static str, kv: DType, splits: usize) -> Feeding {
    Feeding { family, kv, splits, workers: 1, sms: 1, placement: 0, chunks: vec![1], table: vec![0, 1, 2, 3] }
}

const FAMILIES: [&str; 3] = ["llama", "qwen2", "qwen3"];

#[test]
fn worker_counts_do_not_change_a_bit() {
    for family in FAMILIES {
        let expected = feed(&plain(family, DType::F32, 2));
        for workers in [1, 2, 3, 5] {
            let found = feed(&Feeding { workers, sms: 4, placement: 9, ..plain(family, DType::F32, 2) });
            assert!(found == expected, "{family}, {workers} workers");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Placement, workers, chunks of rows with idle ones among them, and pages: the same bits.
    #[test]
    fn feeding_does_not_change_a_bit(
        family in prop::sample::select(FAMILIES.to_vec()),
        kv in prop::sample::select(vec![DType::F32, DType::F16, DType::BF16]),
        splits in 1usize..4,
        workers in 1usize..5,
        sms in 1usize..7,
        placement: u64,
        chunks in prop::collection::vec(1usize..9, 1..4),
        pages in Just((0..PAGES as i32).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let expected = feed(&plain(family, kv, splits));
        let table = pages[..CONTEXT / 16].to_vec();
        let found = feed(&Feeding { family, kv, splits, workers, sms, placement, chunks, table });
        prop_assert!(found == expected);
    }
}

#[test]
fn three_sequences_in_a_batch_are_three_single_runs() {
    let spec = spec("llama");
    let weights = RandomWeights::new(&spec, DType::BF16, 11).unwrap();
    let single = program(&spec, 1, 2, DType::F32, 2);
    let sequences: [&[i32]; 3] = [&TOKENS[..20], &TOKENS[4..9], &TOKENS[7..19]];
    let tables = [[5, 1, 0, 0], [7, 0, 0, 0], [2, 9, 0, 0]];
    let alone: Vec<Vec<Vec<f32>>> = sequences
        .iter()
        .map(|tokens| {
            let mut machine = machine(single.clone(), &weights, 1, 0);
            let mut kv = KvState::new(&single).unwrap();
            let step = |(at, &token): (usize, &i32)| {
                let cells = StepCells { tokens: &[token], positions: &[at as i32], page_table: &tables[0] };
                machine.step(&mut kv, &cells).unwrap().f32(LOGITS).unwrap()
            };
            tokens.iter().enumerate().map(step).collect()
        })
        .collect();
    let batch = program(&spec, 3, 4, DType::F32, 2);
    let mut machine = machine(batch.clone(), &weights, 2, 3);
    let mut kv = KvState::new(&batch).unwrap();
    for at in 0..20 {
        // A sequence that has ended leaves its row idle.
        let row = |s: &[i32]| s.get(at).map_or((-1, -1), |&token| (token, at as i32));
        let rows = sequences.map(row);
        let tokens = rows.map(|r| r.0);
        let positions = rows.map(|r| r.1);
        let cells = StepCells { tokens: &tokens, positions: &positions, page_table: tables.as_flattened() };
        let output = machine.step(&mut kv, &cells).unwrap();
        for (row, alone) in alone.iter().enumerate() {
            if let Some(expected) = alone.get(at) {
                assert_eq!(&output.f32_row(LOGITS, row).unwrap(), expected, "sequence {row} at {at}");
            }
        }
    }
}
