//! Time to validate a program of the size of Llama-3.1-70B: 80 layers, about 132 tasks a level, 400
//! levels.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tilewright_megakernel::validate::validate;

#[path = "../tests/validate/layered.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod layered;

fn llama_70b(c: &mut Criterion) {
    let mut group = c.benchmark_group("validate/llama-70b");
    group.sample_size(10);
    let shape = layered::Shape::llama_70b();
    for (name, placed, shared) in
        [("unplaced", false, false), ("placed", true, false), ("placed, arena shared", true, true)]
    {
        let program = shape.program(placed, shared);
        group.bench_function(name, |b| {
            b.iter(|| {
                let report = validate(black_box(&program));
                assert!(report.is_valid(), "{report}");
                report
            });
        });
    }
    // One wait for all producers but one: rejected, after asking by withholding tasks.
    let mut program = shape.program(true, false);
    let partial = &mut program.tasks[200].waits[0];
    partial.threshold -= 1;
    group.bench_function("placed, one threshold lowered", |b| b.iter(|| validate(black_box(&program))));
    group.finish();
}

criterion_group!(benches, llama_70b);
criterion_main!(benches);
