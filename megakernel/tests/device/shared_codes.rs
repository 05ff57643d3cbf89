//! Quantised models that several devices share: q, k, v, gate and up by rows of codes, o and down
//! by columns, whose groups a cut may fall into. The logits of the reference machine on one device,
//! whatever the scheme.

use std::sync::Arc;

use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_kernels::quant::{Code, QuantMatrix, QuantParts, Zeros};
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, Plan};
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::vm::{LoadError, Unsupported};
use tilewright_megakernel::weights::{RandomCodes, WeightTensor, Weights};

use super::devices::peers;
use super::lab::{Cells, PAGES, chain, normed, options, relative, tiny};
use super::quantised::{Changed, blocks, codes};

/// The bound for one device.
const MOST: f64 = 2e-2;

/// Four devices have a kv head on two of them each, 32 columns of o and 64 of down.
fn wide() -> Llama {
    tiny().inner(256).vocab(120).tied(false).heads(8, 2)
}

/// Random codes, whose parts are changed by name.
fn drawn(
    spec: &Llama,
    code: Code,
    group: Option<usize>,
    change: impl Fn(&str, QuantParts) -> QuantParts,
) -> Changed<impl Fn(&str, QuantMatrix) -> QuantMatrix> {
    let change =
        move |name: &str, matrix: QuantMatrix| QuantMatrix::new(change(name, matrix.parts().clone())).expect("sound");
    Changed { weights: codes(spec, code, group), change }
}

fn as_they_are(_: &str, parts: QuantParts) -> QuantParts {
    parts
}

/// A zero point for each group, near the middle.
fn with_zeros(_: &str, parts: QuantParts) -> QuantParts {
    let middle = parts.code.middle();
    let zeros = Zeros::Each((0..parts.scales.len()).map(|at| middle - 2 + (at % 5) as i16).collect());
    QuantParts { zeros, ..parts }
}

/// Gives blocks of `rows` rows and a group one scale.
fn with_blocks(rows: usize) -> impl Fn(&str, QuantParts) -> QuantParts {
    move |_, parts| {
        let groups = parts.k.div_ceil(parts.group);
        let of = |at: usize| parts.scales[at / groups / rows * rows * groups + at % groups];
        QuantParts { scales: (0..parts.scales.len()).map(of).collect(), ..parts }
    }
}

/// Gives the matrix one scale.
fn of_tensor(_: &str, parts: QuantParts) -> QuantParts {
    QuantParts { scales: vec![parts.scales[0]; parts.scales.len()], ..parts }
}

/// Columns in any order.
fn shuffled(parts: QuantParts) -> QuantParts {
    let k = parts.k as u32;
    QuantParts { order: Some((0..k).map(|place| (place * 37 + 11) % k).collect()), ..parts }
}

fn placed(spec: &Llama, rows: usize, devices: usize, weights: &dyn Weights) -> Placed {
    let target = Target { sms: 2, ..Target::named("h100").unwrap() };
    let base = LowerOptions::for_context(64);
    let options = LowerOptions { rows, kv: DType::BF16, page_tokens: 16, pages: Some(PAGES * 16), devices, ..base };
    schedule(lower(spec, &|_| DType::BF16, target, &options).unwrap().stored_as(weights), 64).unwrap()
}

fn load(placed: Placed, weights: &dyn Weights, seed: u64, options: DeviceOptions) -> Result<DeviceMachine, LoadError> {
    let on = peers(seed, placed.devices, placed.target.sms);
    DeviceMachine::load_on(placed, weights, &on, options, &mut |_, _| ())
}

/// Three steps on several devices are close to those of the reference machine on one.
fn agrees(spec: &Llama, [rows, devices]: [usize; 2], weights: &dyn Weights, seed: u64) {
    let alone = placed(spec, rows, 1, weights);
    let mut kv = KvState::new(&alone).unwrap();
    let mut reference = Machine::new(alone, weights, 1).unwrap();
    let shared = placed(spec, rows, devices, weights);
    let mut machine = load(shared, weights, seed, options()).unwrap_or_else(|error| panic!("{}", chain(&error)));
    for position in 0..3 {
        let cells = Cells::at(rows, position);
        machine.step(&cells.view()).unwrap_or_else(|error| panic!("seed {seed}: {}", chain(&error)));
        let expected = reference.step(&mut kv, &cells.view()).unwrap();
        let error = relative(&machine.f32(LOGITS).unwrap(), &expected.f32(LOGITS).unwrap());
        assert!(error < MOST, "{rows} rows on {devices} devices, seed {seed}: {error:.2e} of the logits");
    }
}

#[test]
fn every_form_of_codes_is_shared() {
    let spec = wide();
    for (at, (code, group)) in [
        (Code::U4, Some(32)),
        (Code::I4, None),
        (Code::U8, Some(64)),
        (Code::I8, None),
        (Code::E4m3, None),
        (Code::E4m3, Some(128)),
        (Code::E2m1, Some(32)),
        (Code::E2m1, Some(16)),
    ]
    .into_iter()
    .enumerate()
    {
        let devices = [2, 4][at % 2];
        let rows = [1, 2, 3][at % 3];
        agrees(&spec, [rows, devices], &drawn(&spec, code, group, as_they_are), at as u64);
        agrees(&spec, [1, 6 - devices], &drawn(&spec, code, group, as_they_are), 100 + at as u64);
    }
    agrees(&spec, [2, 2], &blocks(&spec), 18);
    agrees(&spec, [1, 4], &blocks(&spec), 19);
    agrees(&spec, [1, 2], &drawn(&spec, Code::U4, Some(32), with_zeros), 20);
    agrees(&spec, [1, 4], &drawn(&spec, Code::E4m3, Some(128), with_blocks(128)), 21);
    agrees(&spec, [1, 2], &drawn(&spec, Code::I8, None, of_tensor), 22);
    let normed = normed(wide());
    agrees(&normed, [2, 4], &drawn(&normed, Code::U8, Some(32), with_zeros), 23);
}

/// Groups of 96 in rows of 128 and 256: cuts at 32, 64 and 96 are within them, and what is left are
/// groups of 32.
#[test]
fn a_group_may_lie_on_two_devices() {
    let spec = wide();
    for (devices, code) in [(2, Code::U4), (4, Code::U4), (4, Code::U8), (2, Code::E4m3)] {
        agrees(&spec, [1, devices], &drawn(&spec, code, Some(96), as_they_are), devices as u64);
    }
    agrees(&spec, [3, 2], &drawn(&spec, Code::U4, Some(96), with_zeros), 7);
}

/// Activations of more rows are f16, held, reloaded; their sums are packets to all devices.
#[test]
fn more_rows_meet_codes_of_several_devices() {
    let spec = wide();
    for (rows, devices) in [(5, 2), (8, 4), (16, 2)] {
        agrees(&spec, [rows, devices], &drawn(&spec, Code::U4, Some(32), as_they_are), rows as u64);
    }
}

/// The head's codes are shared by rows, as its numbers are; a table of codes embeds the ids of its
/// device.
#[test]
fn tables_and_heads_of_codes_are_shared() {
    /// Codes of the same extents, under another name.
    struct Tables(RandomCodes, RandomCodes);
    impl Weights for Tables {
        fn tensor(&self, name: &str) -> Option<WeightTensor> {
            self.0.tensor(name)
        }

        fn quantized(&self, name: &str) -> Option<Arc<QuantMatrix>> {
            match name {
                "lm_head.weight" => self.1.quantized("model.layers.0.mlp.up_proj.weight"),
                "model.embed_tokens.weight" => self.1.quantized("model.layers.0.mlp.gate_proj.weight"),
                _ => self.0.quantized(name),
            }
        }
    }
    let spec = wide();
    let tables = spec.clone().inner(spec.decoder.sizes.vocab as usize).layers(1);
    let of = |spec| RandomCodes::new(spec, DType::BF16, 7, Code::U4, Some(32)).unwrap();
    for devices in [2, 4] {
        agrees(&spec, [2, devices], &Tables(of(&spec), of(&tables)), devices as u64);
    }
}

/// An act-order of what is cut by rows stays as it is, and so does one of rows that are one group,
/// in the order of places.
#[test]
fn an_order_that_can_be_cut_is_shared() {
    let spec = wide();
    let by_rows = |name: &str| !name.contains("o_proj") && !name.contains("down_proj");
    let rows =
        drawn(&spec, Code::U4, Some(32), |name: &str, parts| if by_rows(name) { shuffled(parts) } else { parts });
    agrees(&spec, [1, 2], &rows, 1);
    agrees(&spec, [3, 4], &rows, 2);
    let all = drawn(&spec, Code::U8, None, |_: &str, parts| shuffled(parts));
    agrees(&spec, [1, 2], &all, 3);
}

#[test]
fn what_cannot_be_shared_is_named() {
    let spec = wide();
    let refused = |weights: &dyn Weights, devices| {
        let shared = placed(&spec, 1, devices, weights);
        chain(&load(shared, weights, 0, options()).map(drop).unwrap_err())
    };
    let ordered = drawn(&spec, Code::U4, Some(32), |_: &str, parts| shuffled(parts));
    insta::assert_snapshot!(refused(&ordered, 2), @"the weights do not fit the program: weight `model.layers.0.self_attn.o_proj.weight` cannot be shared by 2 devices, run it on one: columns 0..64 have 17 of the 32 places of group 0, which an act-order spreads over all columns");
    insta::assert_snapshot!(refused(&ordered, 4), @"the weights do not fit the program: weight `model.layers.0.self_attn.o_proj.weight` cannot be shared by 4 devices, run it on one: columns 0..32 have 9 of the 32 places of group 0, which an act-order spreads over all columns");
    // On the reference machine, too.
    let error = Machine::new(placed(&spec, 1, 2, &ordered), &ordered, 1).map(drop).unwrap_err();
    insta::assert_snapshot!(error, @"weight `model.layers.0.self_attn.o_proj.weight` cannot be shared by 2 devices, run it on one: columns 0..64 have 17 of the 32 places of group 0, which an act-order spreads over all columns");
    let uneven = wide().inner(144);
    let weights = drawn(&uneven, Code::U4, Some(48), as_they_are);
    let error = Plan::new(&placed(&uneven, 1, 2, &weights), options()).unwrap_err();
    let Unsupported::Task { source, .. } = error else { panic!("{error}") };
    insta::assert_snapshot!(source, @"weight `model.layers.0.mlp.down_proj.weight` is cut at column 72 for 2 devices, within a group, which leaves groups of 24, no multiple of 16; share it by fewer, or run it on `cpu`");
}
