//! Programs that are valid and that the device machine does not run: each is refused before
//! anything is generated, and says what is in the way and what to do.

use std::fmt::Write;

use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::model::Architecture;
use tilewright_megakernel::program::{Region, Span};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::device::{DeviceOptions, Plan};
use tilewright_megakernel::vm::{CellError, StepCells};
use tilewright_megakernel::vm::{LaunchError, NoFeedback, Unsupported};

use super::lab::{least, machine, options, tiny};

/// The difference from a program that runs.
struct Variant {
    what: &'static str,
    spec: Llama,
    lowering: LowerOptions,
    target: &'static str,
    options: DeviceOptions,
}

impl Variant {
    fn new(what: &'static str) -> Variant {
        let lowering = LowerOptions { kv: DType::BF16, page_tokens: 16, ..LowerOptions::for_context(64) };
        Variant { what, spec: tiny(), lowering, target: "h100", options: options() }
    }

    fn refusal(&self) -> Option<Unsupported> {
        let target = Target { sms: 3, ..Target::named(self.target).unwrap_or_else(|| Target::host(3)) };
        let program = lower(&self.spec, &|_| DType::BF16, target, &self.lowering).expect("the model lowers");
        let placed = schedule(program, 64).expect("the program is placed");
        Plan::new(&placed, self.options).err()
    }
}

fn heads_of(dim: usize) -> Llama {
    tiny().head_dim(dim)
}

#[test]
fn each_refusal_says_what_is_in_the_way_and_what_to_do() {
    assert_eq!(Variant::new("nothing").refusal(), None, "what the variants differ from runs");
    let new = Variant::new;
    let lowering = new("").lowering;
    let variants = [
        Variant { target: "host", ..new("a host's program") },
        Variant { lowering: LowerOptions { rows: 17, ..lowering.clone() }, ..new("17 rows") },
        Variant { lowering: LowerOptions { kv: DType::F32, ..lowering.clone() }, ..new("pools of f32") },
        Variant { lowering: LowerOptions { page_tokens: 24, ..lowering.clone() }, ..new("pages of 24 tokens") },
        Variant { spec: heads_of(20), ..new("heads of 20 dimensions") },
        Variant { spec: tiny().inner(98), ..new("weight rows of 98 elements") },
        Variant { options: DeviceOptions { stage_bytes: 1024, ..options() }, ..new("stages of 1 KB") },
        Variant {
            lowering: LowerOptions { sampling: true, ..lowering.clone() },
            spec: tiny().vocab((1 << 18) + 8),
            ..new("choices at random among 2^18 + 8 tokens")
        },
        Variant {
            lowering: LowerOptions { context: 1 << 28, pages: Some(4), splits: Some(1), ..lowering },
            spec: tiny().max_positions(1 << 28),
            ..new("cosines and sines of 2^28 positions")
        },
    ];
    let mut table = String::new();
    for variant in &variants {
        let refusal = variant.refusal().map_or_else(|| "runs".into(), |refused| refused.to_string());
        writeln!(table, "{}: {refusal}", variant.what).expect("text grows");
    }
    insta::assert_snapshot!(table);
}

#[test]
fn what_no_block_can_hold_is_refused() {
    let whole = DeviceOptions { table_bytes: u32::MAX, ..options() };
    let deep = |options| Variant { spec: tiny().layers(600), options, ..Variant::new("600 layers on 3 SMs") };
    let Some(Unsupported::Shared { needed, limit }) = deep(whole).refusal() else { panic!("it is planned") };
    assert!(needed > limit);
    // Sections have room.
    assert_eq!(deep(options()).refusal(), None);
}

#[test]
fn activations_of_any_length_are_planned() {
    for rows in [1, 2, 8, 16] {
        let new = Variant::new("rows of 60000 activations");
        let lowering = LowerOptions { rows, ..new.lowering.clone() };
        let wide = Variant { spec: tiny().inner(60_000), lowering, ..new };
        assert_eq!(wide.refusal(), None, "{rows} rows");
    }
}

/// A launch of many steps would feed tokens to an embedding that has no rows for them.
#[test]
fn tokens_are_not_fed_back_to_an_embedding_of_fewer_rows() {
    let spec = tiny().tied(false).model().unwrap().into_owned();
    for sampling in [false, true] {
        let lowering = LowerOptions { kv: DType::BF16, page_tokens: 16, sampling, ..LowerOptions::for_context(64) };
        let target = Target { sms: 3, ..Target::named("h100").unwrap() };
        let mut program = lower(&spec, &|_| DType::BF16, target, &lowering).expect("the model lowers");
        let table = program.buffer_named("model.embed_tokens.weight").expect("an embedding").id;
        program.buffers[table.index()].shape[0] = spec.vocab - 1;
        for region in program.tasks.iter_mut().flat_map(|task| &mut task.reads).filter(|read| read.buffer == table) {
            *region = Region::new(table, &[Span::all(spec.vocab - 1), region.spans()[1]]);
        }
        let plan = Plan::new(&schedule(program, 64).expect("the program is placed"), options()).expect("steps run");
        let refused = NoFeedback::Vocab { tokens: spec.vocab, rows: spec.vocab - 1 };
        assert_eq!(plan.feedback, Err(refused), "sampling {sampling}");
    }
}

/// Two sequences that come to one page in the middle of a launch.
#[test]
fn pages_that_two_sequences_come_to_in_a_launch_are_refused() {
    let mut machine = machine(&least(), 2, 2, 0, options());
    let cells = StepCells { tokens: &[1, 2], positions: &[15, 15], page_table: &[0, 7, 2, 3, 1, 7, 5, 6] };
    let error = machine.run(&cells, 18).expect_err("both append to page 7");
    let shared = CellError::SharedPage { reader: 1, writer: 0, page: 7 };
    assert!(matches!(&error, LaunchError::Cells(found) if *found == shared), "{error:?}");
}
