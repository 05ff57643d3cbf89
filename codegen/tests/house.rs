//! Modules import only what their docs allow.

use std::path::{Path, PathBuf};

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    found
}

fn crate_root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn rooms_import_what_they_may() {
    let rooms: [(&str, &[&str]); 9] = [
        ("ir", &["ir"]),
        ("build", &["build", "ir"]),
        ("verify", &["verify", "ir"]),
        ("ptx", &["ptx", "ir", "verify"]),
        ("gallery", &["gallery", "build", "ir", "trial", "verify"]),
        ("trial", &["trial", "device", "ir", "sim", "verify"]),
        ("device", &["device", "ir", "verify", "ptx", "sim", "target"]),
        ("params", &["params", "build", "device", "ir", "kernel_params"]),
        ("assemble", &["assemble", "ir", "verify", "ptx", "sample"]),
    ];
    for (room, allowed) in rooms {
        for file in sources(&crate_root().join("src").join(room)) {
            let text = std::fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for (number, line) in code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
                for import in line.split("crate::").skip(1) {
                    let name: String = import.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                    let place = format!("{}:{}", file.display(), number + 1);
                    assert!(allowed.contains(&name.as_str()), "{place} reaches into `{name}`");
                }
            }
        }
    }
}
