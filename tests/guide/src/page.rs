//! Fenced blocks of the pages: programs, commands, and the output that follows them.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A fenced block of a page.
pub struct Block {
    /// The text after the opening fence, such as `rust`.
    pub kind: String,
    /// The byte range of the lines between the fences.
    pub at: Range<usize>,
}

/// A page with its blocks in order.
pub struct Page {
    /// The path.
    pub path: PathBuf,
    /// The file's stem: `1-layout`.
    pub name: String,
    /// The whole file.
    pub text: String,
    /// Its fenced blocks.
    pub blocks: Vec<Block>,
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and the pages of the guide, in order of their names.
pub fn pages() -> Vec<Page> {
    let guide = root().join("docs/guide");
    let entries = fs::read_dir(&guide).expect("docs/guide is a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    // The guide has a README.md too; its programs, if any, would need another name.
    paths.insert(0, root().join("README.md"));
    paths.into_iter().map(|path| Page::read(&path)).collect()
}

impl Page {
    fn read(path: &Path) -> Page {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let stem = path.file_stem().expect("a file").to_string_lossy();
        let of_guide = path.parent().is_some_and(|folder| folder.ends_with("guide"));
        let name = if stem == "README" && of_guide { "index".into() } else { stem.to_lowercase() };
        Page { path: path.to_owned(), name, blocks: blocks(&text), text }
    }

    /// The page's whole programs, each with its name and the index of its block.
    pub fn programs(&self) -> impl Iterator<Item = (String, usize)> {
        let rust = self.blocks.iter().enumerate().filter(|(_, block)| block.kind == "rust");
        rust.enumerate().map(|(number, (index, _))| match number {
            0 => (self.name.clone(), index),
            _ => (format!("{}-part-{}", self.name, number + 1), index),
        })
    }

    /// The lines of a block.
    pub fn lines_of(&self, block: &Block) -> &str {
        &self.text[block.at.clone()]
    }

    /// The block of output that follows a block.
    pub fn output_after(&self, index: usize) -> Option<&Block> {
        self.blocks.get(index + 1).filter(|block| block.kind == "output")
    }
}

/// The fenced blocks of a page.
fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<(String, usize)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        if let Some(kind) = line.trim_end().strip_prefix("```") {
            open = match open {
                None => Some((kind.to_owned(), end)),
                Some((kind, from)) => {
                    found.push(Block { kind, at: from..at });
                    None
                }
            };
        }
        at = end;
    }
    assert!(open.is_none(), "a fence is not closed");
    found
}
