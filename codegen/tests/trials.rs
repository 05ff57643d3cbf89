//! Trials on the simulator: shipped kernels are right, and what is wrong is found and said.

use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::device::{DeviceError, sim};
use tilewright_codegen::gallery;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{Expected, Trial};
use tilewright_codegen::verify::{Verified, verify};

fn kernel(threads: u32, build: fn(&Builder)) -> Verified {
    verify(record("kernel", Arch::Sm90a, block(threads), build)).expect("it verifies")
}

/// `y[i] = 2·x[i]`, one block.
fn double(k: &Builder) {
    let x = k.global::<f32>("x");
    let y = k.global::<f32>("y");
    y.at(k.tid()).store(x.at(k.tid()).load() * 2.0);
}

/// A block of threads doubles 0, 1, ...; `expected` differs from that where `spoilt` says.
fn doubling(threads: u32, len: usize, spoilt: &[usize]) -> Trial {
    let x: Vec<f32> = (0..len).map(|i| i as f32).collect();
    let y: Vec<f32> = (0..len).map(|i| (2 * i + usize::from(spoilt.contains(&i))) as f32).collect();
    let mut trial = Trial::new(kernel(threads, double), 1).note("doubling");
    let x = trial.input("x", &x);
    let y = trial.output("y", Expected::exact(&y));
    trial.pass(x).pass(y)
}

#[test]
fn the_gallery_is_right_on_random_trials() {
    for shipped in gallery::shipped() {
        let device = sim::open(0);
        for seed in 0..12 {
            let trial = shipped.draw(Arch::Sm90a, seed).unwrap_or_else(|errors| panic!("{errors}"));
            let outcome = trial.run(&device).unwrap_or_else(|error| panic!("{}: {error}", shipped.name()));
            assert!(outcome.is_right(), "seed {seed}: {outcome}");
            assert!(outcome.compared.iter().all(|output| output.elements > 0));
        }
    }
}

#[test]
fn a_trial_of_a_seed_is_the_same_trial() {
    for shipped in gallery::shipped() {
        let text = |seed| format!("{:?}", shipped.draw(Arch::Sm90a, seed).expect("it verifies"));
        assert_eq!(text(5), text(5));
        assert_ne!(text(5), text(6), "{}", shipped.name());
    }
}

#[test]
fn wrong_missing_and_changed_elements_are_named() {
    let device = sim::open(0);
    let run = |trial: &Trial| trial.run(&device).expect("it runs").to_string();
    let mut touched = Trial::new(kernel(32, |k: &Builder| k.global::<u32>("x").at(k.tid()).store(7u32)), 1);
    let mut sevens = [7u32; 33];
    (sevens[3], sevens[32]) = (8, 9);
    let x = touched.input("x", &sevens);
    let texts = [
        run(&doubling(32, 32, &[])),
        run(&doubling(32, 32, &[2, 30])),
        run(&doubling(32, 33, &[])),
        run(&touched.pass(x)),
    ];
    insta::assert_snapshot!(texts.join("\n"), @"
    kernel (doubling): right, max error 0.0e0
    kernel (doubling): y: 2 of 32 elements are wrong, the first [2] = 4, not 5
    kernel (doubling): y: 1 of 33 elements are wrong, the first [32] never written, not 64
    kernel: x: 1 of 33 elements are wrong, the first [3] = 7, not 8
    ");
}

#[test]
fn a_buffer_is_passed_for_the_parameter_of_its_name() {
    let x: Vec<f32> = (0..32).map(|i| i as f32).collect();
    let trial = || {
        let mut trial = Trial::new(kernel(32, double), 1);
        let ids = (trial.input("x", &x), trial.output("y", Expected::exact(&x)));
        (trial, ids)
    };
    let said = |trial: Trial| trial.run(&sim::open(0)).expect_err("the names do not match").to_string();
    let ((swapped, (a, b)), (short, (c, _))) = (trial(), trial());
    let mut renamed = doubling(32, 32, &[]);
    renamed.scratch::<f32>("work", 4);
    let texts = [said(swapped.pass(b).pass(a)), said(short.pass(c)), said(renamed)];
    insta::assert_snapshot!(texts.join("\n"), @"
    buffer `x` of a trial of `kernel` is passed for argument 1, `y`, first: pass it for the parameter of its name, or name it after the parameter
    buffer `y` of a trial of `kernel` is passed for no parameter: pass it for the parameter of its name, or name it after the parameter
    buffer `work` of a trial of `kernel` is passed for no parameter: pass it for the parameter of its name, or name it after the parameter
    ");
}

#[test]
fn a_fault_is_an_error_with_its_whole_report() {
    let error = doubling(64, 32, &[]).run(&sim::open(3)).expect_err("it reads beyond x");
    let DeviceError::Fault { kernel, seed, report } = &error else { panic!("{error}") };
    assert_eq!((kernel.as_str(), *seed), ("kernel", 3));
    assert!(report.contains("x + 128") && report.contains("ld.f32 global"), "{report}");
}
