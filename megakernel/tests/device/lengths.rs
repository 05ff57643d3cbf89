//! Lengths are not code: kernels of a model are the same text for every context and every size of
//! the pools.

use proptest::prelude::*;
use tilewright_codegen::ptx;
use tilewright_codegen::target::Target;
use tilewright_codegen::verify::verify;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::model::{Architecture, ModelSpec};
use tilewright_megakernel::schedule::{TYPICAL_CONTEXT, schedule};
use tilewright_megakernel::vm::Lengths;
use tilewright_megakernel::vm::device::{DeviceOptions, Plan, record};

use super::lab::{normed, options, tiny};

/// The step that a program decodes.
#[derive(Clone, Copy)]
struct Step {
    /// The number of sequences.
    rows: usize,
    /// Whether tokens are sampled.
    sampling: bool,
}

/// The plan of a model for sequences of `context` tokens, with `spare` pages more than they need.
fn plan(spec: &ModelSpec, target: &Target, step: Step, context: usize, spare: usize) -> Plan {
    let Step { rows, sampling } = step;
    let base = LowerOptions { rows, sampling, kv: DType::BF16, ..LowerOptions::for_context(context) };
    let pages = Some(rows * base.pages_per_sequence() + spare);
    let lowering = LowerOptions { pages, ..base }.splits_for_gpu(spec.kv_heads, target.sms);
    let program = lower(spec, &|_| DType::BF16, target.clone(), &lowering).expect("the model is lowered");
    let ships = if target.sms < 20 { options() } else { DeviceOptions::default() };
    Plan::new(&schedule(program, TYPICAL_CONTEXT).expect("it is placed"), ships).expect("a device runs it")
}

fn text(plan: &Plan) -> String {
    ptx::emit(&verify(record(plan)).expect("the kernel keeps every rule"))
}

/// Models that are quick to lower, for devices of few SMs.
fn small() -> impl Strategy<Value = (ModelSpec, Target)> {
    let long = tiny().max_positions(1 << 20);
    let models = prop::sample::select(vec![long.clone(), normed(long)]);
    let targets = prop::sample::select(vec![("a100", 3), ("h100", 3), ("h100", 19), ("rtx5090", 5)]);
    (models, targets).prop_map(|(spec, (name, sms))| {
        (
            spec.model().expect("sizes that fit").into_owned(),
            Target { sms, ..Target::named(name).expect("it is known") },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn no_context_and_no_pool_makes_another_kernel(
        (spec, target) in small(),
        rows in prop::sample::select(vec![1usize, 2, 3, 8, 16]),
        sampling: bool,
        contexts in prop::array::uniform2((1usize..200_000).prop_map(|tokens| tokens.min(1 << (tokens % 18)))),
        spare in 0usize..5000,
    ) {
        let [a, b] = [(contexts[0], 0), (contexts[1], spare)]
            .map(|(context, spare)| plan(&spec, &target, Step { rows, sampling }, context, spare));
        prop_assert_eq!(a.lengths.table_width as usize, contexts[0].div_ceil(64));
        prop_assert_eq!(a.options.thresholds.stages, b.options.thresholds.stages);
        prop_assert!(text(&a) == text(&b), "contexts of {:?} tokens make different kernels", contexts);
    }
}

#[test]
fn known_models_have_one_kernel_for_each_width() {
    for (target, model, rows) in
        [("h100", "llama-3.2-1b", 1), ("h100", "llama-3.1-8b", 16), ("a100", "llama-3.2-1b", 8)]
    {
        let spec = ModelSpec::named(model).expect("it is known");
        let target = Target::named(target).expect("it is known");
        let [short, long] = [8, 10_000].map(|context| plan(&spec, &target, Step { rows, sampling: false }, context, 0));
        assert_eq!(short.lengths, Lengths { pages: rows as u32, table_width: 1 });
        assert!(text(&short) == text(&long), "{model}, {rows} rows");
    }
}
