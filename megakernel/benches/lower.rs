//! Measures how long it takes to make a program: lowering, validation and scheduling of known
//! models for an H100.
//!
//! One thread; the bound for Llama-3.1-70B is 1 s for lowering and 1 s for validation.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::program::Program;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::validate;

fn lowered(spec: &ModelSpec) -> Program {
    let target = Target::named("h100").expect("a known target");
    let options = LowerOptions { kv: DType::BF16, ..LowerOptions::for_context(4096) };
    lower(spec, &|_| DType::BF16, target, &options).expect("lowers")
}

fn programs(c: &mut Criterion) {
    let mut group = c.benchmark_group("program");
    group.sample_size(10);
    for name in ["llama-3.2-1b", "llama-3.1-70b"] {
        let spec = ModelSpec::named(name).expect("a known model");
        group.bench_function(format!("lower/{name}"), |b| b.iter(|| lowered(black_box(&spec))));
        let program = lowered(&spec);
        group.bench_function(format!("validate/unplaced/{name}"), |b| {
            b.iter(|| assert!(validate(black_box(&program)).is_valid()));
        });
        let placed = schedule(program.clone(), 1024).expect("schedules");
        group.bench_function(format!("validate/placed/{name}"), |b| {
            b.iter(|| assert!(validate(black_box(&placed)).is_valid()));
        });
        group.bench_function(format!("schedule/{name}"), |b| {
            b.iter(|| schedule(black_box(program.clone()), 1024).expect("schedules"));
        });
    }
    group.finish();
}

criterion_group!(benches, programs);
criterion_main!(benches);
