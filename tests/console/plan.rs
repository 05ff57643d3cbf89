//! The output of `plan` for a model on several devices, and its refusals; the output of `compile`
//! for quantised models.

use std::fs;
use std::path::Path;

use crate::{failure, run, stdout};

fn shape(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/shapes").join(name);
    path.to_str().expect("UTF-8").to_owned()
}

fn plan(config: &str, device: &str, devices: &str) -> Vec<String> {
    ["plan", "--config", config, "--target", device, "--devices", devices].map(str::to_owned).to_vec()
}

#[test]
fn what_each_of_several_devices_keeps_is_said() {
    let said = |config: &str, device: &str, devices: &str| {
        let args = plan(&shape(config), device, devices);
        stdout(&args.iter().map(String::as_str).collect::<Vec<_>>(), b"")
    };
    let four = said("llama-3.1-8b.json", "h200", "4");
    for part in [
        "on h200, 4 devices, batch 1",
        "each: 4.15 GB weights",
        " GB program and its state",
        "read by each",
        "for 65 exchanges",
    ] {
        assert!(four.contains(part), "{part}: {four}");
    }
    // One H100 is too small for it, two are not.
    assert!(said("llama-3.1-70b.json", "h100", "1").contains("DOES NOT FIT"));
    assert!(said("llama-3.1-70b.json", "h100", "2").contains(": fits"));
}

/// Of one row activations are flagged words, of eight they are split for the products that follow.
#[test]
fn edges_of_a_plan_are_explained() {
    let explained = |batch: &str| {
        let mut args = plan(&shape("llama-3.2-1b.json"), "h200", "1");
        args.extend(["--batch", batch, "--explain"].map(str::to_owned));
        let text = stdout(&args.iter().map(String::as_str).collect::<Vec<_>>(), b"");
        let line = |buffer: &str| text.lines().find(|line| line.starts_with(buffer)).map(str::to_owned);
        ["q ", "mlp ", "next_token "].map(|buffer| line(buffer).unwrap_or_else(|| panic!("{buffer} in {text}")))
    };
    let [q, mlp, next] = explained("1");
    assert!(q.contains("flagged words, no semaphore") && q.ends_with("current token"), "{q}");
    assert!(mlp.contains("16 from 1") && mlp.contains("flagged words, no semaphore"), "{mlp}");
    assert!(next.contains("semaphore, released") && next.ends_with("rows"), "{next}");
    let [q, mlp, _] = explained("8");
    assert!(q.contains("semaphore, released") && q.ends_with("rows"), "{q}");
    assert!(mlp.contains("semaphore, released") && mlp.ends_with("split terms"), "{mlp}");
}

#[test]
fn what_devices_cannot_share_is_refused_by_name() {
    let args = plan(&shape("llama-3.1-8b.json"), "h200", "3");
    let line = failure(&args.iter().map(String::as_str).collect::<Vec<_>>(), b"");
    assert!(line.contains("the model's `heads` is 32, which 3 devices cannot share evenly"), "{line}");
}

/// Codes are an eighth of bf16's bits beside their scales' share, whether the command line asks for
/// them or the configuration has them.
#[test]
fn codes_are_counted_as_they_are_stored() {
    let said = |config: &str, more: &[&str]| {
        let args = plan(config, "h200", "4");
        stdout(&args.iter().map(String::as_str).chain(more.iter().copied()).collect::<Vec<_>>(), b"")
    };
    let four = said(&shape("llama-3.1-8b.json"), &["--weights", "w4a16"]);
    // A fourth of 6.98 billion weights of 4.125 bits, of table and head in bf16, and the rotations.
    assert!(four.contains("each: 1.46 GB weights"), "{four}");
    let quantised = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/quant/tiny-llama-gptq/config.json");
    let text = std::fs::read_to_string(quantised).expect("it is there");
    let folder = tempfile::tempdir().expect("a folder");
    let written = |text: &str| {
        let path = folder.path().join("config.json");
        std::fs::write(&path, text).expect("writes");
        path.to_str().expect("UTF-8").to_owned()
    };
    let two = |config: &str| {
        let args = plan(config, "h200", "2");
        stdout(&args.iter().map(String::as_str).collect::<Vec<_>>(), b"")
    };
    assert!(two(&written(&text)).contains("the megakernel"));
    let ordered = two(&written(&text.replace("\"desc_act\": false", "\"desc_act\": true")));
    let why = "no kernel: weight `model.layers.0.mlp.down_proj.weight` has an act-order of groups, whose columns 2 devices cannot share";
    assert!(ordered.contains(why), "{ordered}");
    let mut twice = plan(&written(&text), "h200", "1");
    twice.extend(["--weights", "fp8"].map(str::to_owned));
    let line = failure(&twice.iter().map(String::as_str).collect::<Vec<_>>(), b"");
    assert!(line.contains("28 quantised modules"), "{line}");
}

#[test]
fn quantised_models_are_compiled_with_their_weights_or_by_their_configuration() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/quant/tiny-llama-fp8block");
    let config = format!("{model}/config.json");
    let out = tempfile::tempdir().expect("a folder");
    let program = out.path().join("program.json");
    let program = program.to_str().expect("UTF-8");
    // What types scales need is known of a checkpoint alone.
    for ([of, path], scale) in [(["--model", model], "f32"), (["--config", &config], "bf16")] {
        let compiled = run(&["compile", of, path, "--target", "h100", "--out", program], b"");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let form = format!(r#""code":"e4m3","group":128,"zeros":false,"scale":"{scale}""#);
        let text = fs::read_to_string(program).expect("a program");
        assert_eq!(text.matches("\"code\":").count(), 28, "{of}");
        assert!(text.contains(&form), "{of}");
    }
    let random = ["compile", "--config", &config, "--random-weights", "--target", "h100", "--out", program];
    let line = failure(&random, b"");
    let wanted = "has quantised modules (fp8 by blocks with weight_scale_inv), and random weights are dense; leave --random-weights out";
    assert!(line.contains(wanted), "{line}");
}
