//! What `plan` says of a model on several devices, and what it refuses.

use std::path::Path;

use crate::{failure, stdout};

fn shape(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/shapes").join(name);
    path.to_str().expect("UTF-8").to_owned()
}

fn plan(config: &str, device: &str, devices: &str) -> Vec<String> {
    ["plan", "--config", config, "--device", device, "--devices", devices].map(str::to_owned).to_vec()
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

#[test]
fn what_devices_cannot_share_is_refused_by_name() {
    let args = plan(&shape("llama-3.1-8b.json"), "h200", "3");
    let line = failure(&args.iter().map(String::as_str).collect::<Vec<_>>(), b"");
    assert!(line.contains("the model's `heads` is 32, which 3 devices cannot share evenly"), "{line}");
}
