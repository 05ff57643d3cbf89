//! The report of `ptxas` on the kernel: registers and shared memory as on the page, no spills, no
//! warnings.

use std::path::Path;
use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemv::{Epilogue, GemvPlan, GemvTuning, gemv, hopper};
use tilewright_kernels::quant::Code;
use tilewright_kernels::tile::Float;
use tilewright_kernels::weights::{Codes, Strip};

/// Forms of codes.
const CODES: [(&str, Codes); 5] = [
    ("bf16 scales", Codes { code: Code::U4, group: Some(128), zeros: false, scale: Float::Bf16, blocks: false }),
    ("f16 scales and zeros", Codes { code: Code::U4, group: Some(128), zeros: true, scale: Float::F16, blocks: false }),
    ("a scale a row", Codes { code: Code::U8, group: None, zeros: false, scale: Float::Bf16, blocks: false }),
    ("a scale a row", Codes { code: Code::E4m3, group: None, zeros: false, scale: Float::F32, blocks: false }),
    ("groups of 32", Codes { code: Code::E2m1, group: Some(32), zeros: false, scale: Float::F32, blocks: false }),
];

#[test]
fn kernels_assemble_to_what_the_page_says() {
    let Some(ptxas) = Ptxas::find().expect("it runs where it is") else { return };
    let mut table = Table::new("GEMV", &ptxas);
    // Two models' shapes: k, and the tiles of a block of 132.
    for (k, n) in [(2048, 128_256), (4096, 4096), (4096, 14336), (14336, 4096)] {
        for batch in [1, 8, 16, 64] {
            let plan = GemvPlan::new(batch, k, GemvPlan::strips(n, 132), GemvTuning::h100(batch)).expect("a plan");
            let kernel = gemv(Arch::Sm90a, &plan, Epilogue::default());
            // The tiles of a block are in the code, and not in the kernel's name.
            let name = format!("{} n {n}", kernel.name);
            table.add_as(&name, &verify(kernel).expect("it verifies")).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    // The same shapes by wgmma, as the settings are chosen for 132 multiprocessors.
    for (k, n) in [(2048, 128_256), (4096, 4096), (4096, 14336), (14336, 4096), (2048, 8192), (8192, 2048)] {
        for batch in [17, 64, 256] {
            let strip = Strip::new(k, 8, 16384).expect("rows that can be streamed");
            let plan =
                hopper::HopperPlan::new(batch, n, strip, hopper::choose(batch, n, strip, 132, 8)).expect("a plan");
            let kernel = verify(hopper::gemv(Arch::Sm90a, &plan, Epilogue::default())).expect("it verifies");
            table.add(&kernel).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    // Room for a block of the next launch.
    for (k, n) in [(4096, 4096), (4096, 14336), (14336, 4096), (8192, 2048)] {
        let strip = Strip::new(k, 8, 16384).expect("rows that can be streamed");
        let tuning = hopper::HopperTuning {
            stage_tiles: 2,
            stages: 8,
            in_flight: 8,
            vectors: 0,
            per_sm: 2,
            ..hopper::choose(64, n, strip, 132, 8)
        };
        let plan = hopper::HopperPlan::new(64, n, strip, tuning).expect("a plan");
        let kernel = verify(hopper::gemv(Arch::Sm90a, &plan, Epilogue::default())).expect("it verifies");
        let name = format!("{}, 2 a multiprocessor", kernel.kernel().name);
        table.add_as(name, &kernel).unwrap_or_else(|error| panic!("{error}"));
    }
    // Codes of every kind by wgmma, for few vectors and many.
    for (name, codes) in CODES {
        for (batch, n, k) in
            [(17, 4096, 4096), (64, 14336, 4096), (64, 4096, 14336), (512, 14336, 4096), (2048, 4096, 14336)]
        {
            let strip = Strip::of_codes(k, 8, 16384, codes).expect("rows that can be streamed");
            let plan =
                hopper::HopperPlan::new(batch, n, strip, hopper::choose(batch, n, strip, 132, 2)).expect("a plan");
            let kernel = verify(hopper::gemv(Arch::Sm90a, &plan, Epilogue::default())).expect("it verifies");
            let tile = format!("{} x {}", plan.rows(), plan.columns());
            let name = format!("{}, {name}, {tile}", kernel.kernel().name);
            table.add_as(name, &kernel).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ptxas/gemv.md");
    table.check(&page).unwrap_or_else(|error| panic!("{error}"));
}
