//! The trees of sources, for tests of who may spell what.

use std::fs;
use std::path::{Path, PathBuf};

/// Every source of the kernels and of the megakernel outside of one room of the kernels: its path
/// and its text.
pub fn sources_outside(room: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    sources(&root.join("../../megakernel/src"), &mut files);
    assert!(files.len() > 100, "the trees are where they were");
    files.retain(|path| !path.starts_with(root.join(room)));
    let with_text = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path, text)
    };
    files.into_iter().map(with_text).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
