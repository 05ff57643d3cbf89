//! scratch
use tilewright_codegen::{ptx, target::Target, verify::verify};
use tilewright_layout::DType;
use tilewright_megakernel::vm::device::{DeviceOptions, Plan, record};
use tilewright_megakernel::{
    lower::{LowerOptions, lower},
    model::ModelSpec,
    schedule::schedule,
};
fn main() {
    let name = std::env::args().nth(1).unwrap();
    let spec = ModelSpec::named(&name).unwrap();
    let options = LowerOptions { kv: DType::BF16, ..LowerOptions::for_context(4096) };
    let program = lower(&spec, &|_| DType::BF16, Target::named("h100").unwrap(), &options).unwrap();
    let placed = schedule(program, 64).unwrap();
    let plan = Plan::new(&placed, DeviceOptions::default()).unwrap();
    eprintln!(
        "classes {} table {} operand {} stages {} image {}",
        plan.classes.len(),
        plan.table_bytes,
        plan.operand_bytes,
        plan.options.stages,
        plan.image_bytes
    );
    for c in &plan.classes {
        eprintln!("{c:?}");
    }
    let kernel = record(&plan);
    eprintln!("shared {}", kernel.shared_bytes());
    match verify(kernel) {
        Ok(v) => println!("{}", ptx::emit(&v)),
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(1)
        }
    }
}
