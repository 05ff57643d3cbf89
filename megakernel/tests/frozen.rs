//! Programs, persistent kernels and launch plans of known shapes: a refactoring keeps them.
//!
//! A case is a shape, a form of its weights, a number of rows and of devices. Programs are hashed
//! as JSON, kernels as PTX, plans of launches as text. CI makes the cases of few layers; all of
//! them are made by `TILEWRIGHT_LONG=1 cargo test -p tilewright-megakernel --test frozen`.

use std::path::Path;

use tilewright_codegen::frozen::Frozen;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ptx;
use tilewright_codegen::target::Target;
use tilewright_codegen::verify::verify;
use tilewright_graph::models::Llama;
use tilewright_kernels::quant::Code;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower, plan};
use tilewright_megakernel::model::Architecture;
use tilewright_megakernel::program::{Program, Quantised};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::device::{DeviceOptions, Plan, record};
use tilewright_megakernel::vm::graph::{GraphOptions, GraphPlan, GraphTarget};

/// Rows of a step. Up to 16 have a persistent kernel, more have launches.
const ROWS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Most rows of a persistent kernel.
const MOST_PERSISTENT: usize = 16;
/// The interval of sampled cases if not all are made: coprime to the number of rows.
const SAMPLE: usize = 9;

/// A shape, and its name.
struct Shape {
    name: &'static str,
    spec: Llama,
    /// Devices that its heads and columns can be dealt to.
    devices: &'static [usize],
}

/// The known shapes cut to two layers, whose tasks are those of every layer, and variants of one.
fn shapes() -> Vec<Shape> {
    let cut = |name: &str| Llama::named(name).expect("a known model").layers(2);
    let biased = Llama { qkv_bias: true, ..cut("llama-3.2-1b") };
    let normed = Llama { qk_norm: true, ..cut("llama-3.1-8b") };
    let all_biased = Llama { qkv_bias: true, o_bias: true, mlp_bias: true, ..cut("llama-3.2-1b") };
    vec![
        Shape { name: "1b", spec: cut("llama-3.2-1b"), devices: &[1, 2, 4] },
        Shape { name: "3b", spec: cut("llama-3.2-3b"), devices: &[1] },
        Shape { name: "8b", spec: cut("llama-3.1-8b"), devices: &[1, 2, 4] },
        Shape { name: "70b", spec: cut("llama-3.1-70b"), devices: &[1, 4] },
        Shape { name: "1b biased", spec: biased, devices: &[1, 2] },
        Shape { name: "1b all biased", spec: all_biased, devices: &[1] },
        Shape { name: "8b normed", spec: normed, devices: &[1, 2] },
    ]
}

/// Forms of the weights of linear layers.
fn forms() -> [(&'static str, Option<Quantised>); 7] {
    let form = |code, group, zeros, scale| Quantised { code, group, zeros, scale, ordered: false };
    let codes = form(Code::U4, Some(128), false, DType::BF16);
    [
        ("bf16", None),
        ("u4", Some(codes)),
        ("u4 with zeros", Some(form(Code::U4, Some(128), true, DType::F16))),
        ("u4 ordered", Some(Quantised { ordered: true, ..codes })),
        ("u8", Some(form(Code::U8, Some(128), false, DType::BF16))),
        ("e4m3", Some(form(Code::E4m3, None, false, DType::BF16))),
        ("e2m1", Some(form(Code::E2m1, Some(32), false, DType::BF16))),
    ]
}

/// The program with the linear layers of its decoder in a form.
fn form_of(spec: &Llama, form: Option<Quantised>) -> impl Fn(&str) -> Option<(Quantised, usize)> {
    let tensors = spec.model().unwrap().tensors();
    move |name| {
        let tensor = tensors.iter().find(|tensor| tensor.name == name && name.ends_with("_proj.weight"))?;
        Some((form?, tensor.shape.last().copied()?))
    }
}

fn h100() -> Target {
    Target::named("h100").expect("a known target")
}

/// A case.
struct Case<'a> {
    shape: &'a Shape,
    form: (&'static str, Option<Quantised>),
    rows: usize,
    devices: usize,
}

impl Case<'_> {
    fn name(&self) -> String {
        let Case { shape, form, rows, devices } = self;
        format!("{}, {}, rows {rows}, devices {devices}", shape.name, form.0)
    }

    fn options(&self) -> LowerOptions {
        LowerOptions {
            rows: self.rows,
            devices: self.devices,
            pages: Some(64),
            kv: DType::BF16,
            activation: DType::BF16,
            ..LowerOptions::for_context(4096)
        }
    }

    /// The program for a number of SMs, or why there is none.
    fn program(&self, sms: usize) -> Result<Program, String> {
        let spec = &self.shape.spec;
        let target = Target { sms, ..h100() };
        let options = self.options().splits_for_gpu(spec.decoder.sizes.kv_heads as usize, sms);
        let program = lower(spec, &|_| DType::BF16, target, &options).map_err(|error| error.to_string())?;
        Ok(program.with_forms(&form_of(spec, self.form.1)))
    }

    /// Adds the program and its persistent kernel.
    fn add_persistent(&self, frozen: &mut Frozen) -> Result<(), String> {
        let options = DeviceOptions::default();
        let program = self.program(132)?.with_cut_sums(&options).map_err(|error| error.to_string())?;
        frozen.add(&format!("program, {}", self.name()), &program.to_json().map_err(|error| error.to_string())?);
        let placed = schedule(program, 1024).map_err(|error| error.to_string())?;
        let plan = Plan::new(&placed, options).map_err(|error| error.to_string())?;
        let kernel = verify(record(&plan)).map_err(|errors| errors.to_string())?;
        frozen.add(&format!("persistent, {}", self.name()), &ptx::emit(&kernel));
        Ok(())
    }

    /// Adds the program of one SM, the plan of the step's launches and their kernels, for the first
    /// device.
    fn add_launches(&self, frozen: &mut Frozen) -> Result<(), String> {
        let program = self.program(1)?;
        frozen.add(&format!("program, {}", self.name()), &program.to_json().map_err(|error| error.to_string())?);
        let spec = &self.shape.spec;
        let step = plan(spec, &|_| DType::BF16, h100(), &self.options()).map_err(|error| error.to_string())?;
        let step = step.with_forms(&form_of(spec, self.form.1));
        let target = GraphTarget { arch: Arch::Sm90a, multiprocessors: 132 };
        let mut plan =
            GraphPlan::of_device(&step, 0, target, None, GraphOptions::default()).map_err(|error| error.to_string())?;
        let kernels = std::mem::take(&mut plan.kernels);
        let mut text = format!("{plan:#?}\n");
        for kernel in kernels {
            let kernel = verify(kernel).map_err(|errors| errors.to_string())?;
            text.push_str(&ptx::emit(&kernel));
        }
        frozen.add(&format!("launches, {}", self.name()), &text);
        Ok(())
    }

    /// Adds what the case makes; where something refuses it, the refusal.
    fn add(&self, frozen: &mut Frozen) {
        let many = self.rows > MOST_PERSISTENT;
        let added = if many { self.add_launches(frozen) } else { self.add_persistent(frozen) };
        if let Err(refusal) = added {
            frozen.add(&format!("refusal, {}", self.name()), &refusal);
        }
    }
}

#[test]
fn what_known_shapes_become_is_as_it_was() {
    let whole = std::env::var_os("TILEWRIGHT_LONG").is_some();
    let shapes = shapes();
    let mut frozen = Frozen::default();
    let mut number = 0;
    for shape in &shapes {
        for form in forms() {
            // Forms of weights are of the products, which the variants share.
            let devices: &[usize] = match form.1 {
                None => shape.devices,
                Some(_) if matches!(shape.name, "1b" | "8b") => &[1, 2],
                Some(_) => continue,
            };
            for &devices in devices {
                for rows in ROWS {
                    number += 1;
                    if whole || number % SAMPLE == 0 {
                        Case { shape, form, rows, devices }.add(&mut frozen);
                    }
                }
            }
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frozen.txt");
    frozen.check(&file, whole).unwrap_or_else(|error| panic!("{error}"));
}
