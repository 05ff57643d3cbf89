//! The rules of the house that a compiler does not check.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below the rooms with that extension.
fn files(extension: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                walk(&path, extension, found);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    for room in ["src", "layout", "codegen", "kernels", "megakernel", "flow", "tests", "benches", "docs"] {
        let folder = root().join(room);
        if folder.is_dir() {
            walk(&folder, extension, &mut found);
        }
    }
    assert!(!found.is_empty(), "no .{extension} file: does the test look in the right place?");
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a text file")
}

/// A page without its fenced blocks.
fn prose(page: &str) -> String {
    let mut inside = false;
    let outside = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    };
    page.split_inclusive('\n').filter(outside).collect()
}

#[test]
fn every_source_file_opens_with_its_front_page() {
    let bare: Vec<PathBuf> = files("rs").into_iter().filter(|path| !read(path).starts_with("//!")).collect();
    assert!(bare.is_empty(), "these files do not start with `//!`: {bare:#?}");
}

#[test]
fn no_drawer_names() {
    let drawers = ["utils", "util", "common", "base", "misc", "helpers"];
    let named = |path: &PathBuf| path.file_stem().is_some_and(|stem| drawers.iter().any(|d| stem == *d));
    let found: Vec<PathBuf> = files("rs").into_iter().filter(named).collect();
    assert!(found.is_empty(), "name these after what they hold: {found:#?}");
}

#[test]
fn every_dependency_has_a_reason() {
    let page = read(&root().join("docs/dependencies.md"));
    let mut missing = Vec::new();
    let rooms = ["layout", "codegen", "kernels", "megakernel", "flow"].map(|room| format!("{room}/Cargo.toml"));
    for manifest in rooms.iter().map(String::as_str).chain(["Cargo.toml"]) {
        let text = read(&root().join(manifest));
        let mut in_dependencies = false;
        for line in text.lines() {
            if line.starts_with('[') {
                in_dependencies = line.trim_end_matches(']').ends_with("dependencies");
                continue;
            }
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            let ours = name.starts_with("tilewright");
            if in_dependencies && !name.is_empty() && !ours && !page.contains(&format!("`{name}`")) {
                missing.push(format!("{name} ({manifest})"));
            }
        }
    }
    assert!(missing.is_empty(), "docs/dependencies.md does not name {missing:?}");
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut broken = Vec::new();
    let front = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"].map(|page| root().join(page));
    for page in files("md").into_iter().chain(front) {
        let text = prose(&read(&page));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            let is_file = !target.is_empty() && !target.contains("://");
            if is_file && !page.parent().expect("a folder").join(target).exists() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The names of the device beside those of Mojo and CuTe; the layout crate's tests hold those of the host.
#[test]
fn the_table_of_names_has_no_name_that_the_kernels_have_not() {
    let sources = |room: &str| -> String {
        let room = root().join("kernels/src").join(room);
        files("rs").iter().filter(|path| path.starts_with(&room)).map(|path| read(path)).collect()
    };
    let (tile, mma) = (sources("tile"), sources("mma"));
    let mut names = 0;
    for row in read(&root().join("docs/names.md")).lines().filter(|line| line.starts_with("| ")) {
        let device = row.split(" | ").nth(3).expect("a row has Mojo, CuTe, host and device");
        for path in device.split('`').skip(1).step_by(2) {
            let text = if path.starts_with("tile::") { &tile } else { &mma };
            let name = path.rsplit("::").next().expect("a name");
            let declared = |item: &&str| text.match_indices(&format!("pub {item} {name}")).count() > 0;
            assert!(["fn", "const fn", "struct"].iter().any(declared), "docs/names.md: `{path}` is not in kernels/src");
            names += 1;
        }
    }
    assert!(names >= 40, "{names} names of the device");
}
