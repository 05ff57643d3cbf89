//! The cost of an op: the files that name it. An op is one row, so these are its own files, the
//! list of ops, the tables of back ends, and its lowering.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tilewright_megakernel::ops::Op;

/// All source files below a folder, with their text.
fn sources(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).expect("a folder of the crate") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.insert(path.clone(), fs::read_to_string(&path).expect("a text file"));
        }
    }
}

/// The type of an op: its name in capitals.
fn type_name(name: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(word).collect()
}

/// Whether code, comments aside, uses a name.
fn names(text: &str, name: &str) -> bool {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).any(|word| word == name)
}

/// Whether a file may name an op: the op's own files and those of ops that fuse it, the list of
/// ops, its entries in the tables of back ends, the lowering, generators of programs for tests, and
/// tests. The sizes of a model are read
/// from a graph, whose ops have names of their own, `Embed` among them.
fn may_name(path: &str) -> bool {
    let rooms = ["ops/", "vm/device/functions/", "vm/graph/launches/", "lower/", "testing/"];
    path == "model.rs" || path.ends_with("/tests.rs") || rooms.iter().any(|room| path.starts_with(room))
}

#[test]
fn an_op_is_named_by_its_own_files_the_lists_of_ops_and_the_lowering() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = BTreeMap::new();
    sources(&root, &mut files);
    // These two are names of other things as well.
    for name in Op::names().into_iter().filter(|name| !["copy", "rope"].contains(name)) {
        let op = type_name(name);
        let naming = files.iter().filter(|(_, text)| names(text, &op));
        let naming: Vec<&str> = naming.filter_map(|(path, _)| path.strip_prefix(&root).ok()?.to_str()).collect();
        assert!(naming.contains(&"ops/registry.rs"), "the test looks for `{op}` in the right way");
        let elsewhere: Vec<&&str> = naming.iter().filter(|path| !may_name(path)).collect();
        assert!(elsewhere.is_empty(), "`{op}` is named in {elsewhere:?}: ask the op's row instead");
    }
}
