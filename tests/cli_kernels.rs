//! The commands that show and try kernels: `ir`, `ptx`, `sim`, `selftest`.

use std::process::{Command, Output};

fn tilewright(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tilewright")).args(args).output().expect("the program starts")
}

fn success(args: &[&str]) -> String {
    let output = tilewright(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The one line of a failure with exit code 2.
fn failure(args: &[&str]) -> String {
    let output = tilewright(args);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    text
}

#[test]
fn a_kernel_is_shown_as_recorded_and_as_ptx() {
    let text = success(&["ir", "--kernel", "saxpy"]);
    assert!(text.starts_with("kernel saxpy(p0 n: u32, p1 a: f32, p2 x: global, p3 y: global) sm_90a"), "{text}");
    assert!(text.contains("fma.f32") && text.ends_with("}\n"), "{text}");
    for (target, version) in [("sm_80", "8.4"), ("sm_90a", "8.4"), ("sm_100a", "8.6"), ("sm_120", "8.7")] {
        let ptx = success(&["ptx", "--kernel", "saxpy", "--target", target]);
        assert!(ptx.starts_with(&format!(".version {version}\n.target {target}\n")), "{ptx}");
        assert!(ptx.contains(".visible .entry saxpy("), "{ptx}");
    }
}

#[test]
fn a_simulated_launch_is_reported() {
    insta::assert_snapshot!(success(&["sim", "--kernel", "transpose", "--seed", "2"]), @"
    transpose, seed 2: n 128; grid 4 x 4 x 1
      x: 16384 elements, max error 0.0e0
      y: 16384 elements, max error 0.0e0
    lane instructions                  471040
      arith                            270336
      bits                              32768
      mem                               65536
      sync                               4096
      value                             98304
    sectors of global memory             4096
    bank conflicts                          0
    right, no faults
    ");
}

#[test]
fn a_selftest_is_a_table_and_the_same_for_the_same_seed() {
    let args = ["selftest", "--device", "sim:3", "--cases", "4", "--seed", "1", "--kernel", "tensor_tile"];
    let table = success(&args);
    insta::assert_snapshot!(table, @"
    sim:3 (simulated H100), sm_90a; 4 cases of each kernel from seed 1
    kernel                    right  wrong  max error  relative  verdict
    tensor_tile                   4      0      0.0e0     0.0e0  right
    4 of 4 trials right
    ");
    assert_eq!(success(&args), table);
    let fresh = [&args[..5], &args[7..]].concat();
    assert!(success(&fresh).contains("4 of 4 trials right"), "a seed of its own");
}

#[test]
fn kernels_of_both_libraries_are_known() {
    let line = failure(&["ir", "--kernel", "saxpi"]);
    assert!(line.starts_with("error: there is no kernel `saxpi`; there are saxpy, block_sum, "), "{line}");
    assert!(line.contains("specialised") && line.contains("gemm"), "{line}");
    for command in ["ptx", "sim", "selftest"] {
        assert!(failure(&[command, "--kernel", "saxpi"]).contains("there is no kernel `saxpi`"), "{command}");
    }
}

#[test]
fn what_cannot_be_is_one_line() {
    let line = failure(&["ptx", "--kernel", "wgmma_tile", "--target", "sm_100a"]);
    assert_eq!(line, "error: kernel `wgmma_tile` is not for sm_100a: it needs sm_90a only\n");
    let line = failure(&["ptx", "--kernel", "saxpy", "--target", "sm_70"]);
    assert!(success(&["ptx", "--kernel", "saxpy", "--target", "H100"]).contains(".target sm_90a"), "a GPU's name");
    assert!(line.contains("`sm_70` is not a target; known are sm_80, sm_89, sm_90a, sm_100a, sm_120"), "{line}");
    let line = failure(&["selftest", "--device", "tpu"]);
    assert!(line.contains("`tpu` is not a device; devices are sim, sim:SEED and cuda:N"), "{line}");
    assert!(failure(&["selftest", "--cases", "0"]).contains('0'));
}

/// Without a GPU; with one, a device of a number that no machine has.
#[test]
fn a_device_that_is_not_there_is_one_line() {
    let line = failure(&["selftest", "--device", "cuda:4000000000"]);
    assert!(line.contains("no CUDA driver was found") || line.contains("there is no device"), "{line}");
}
