//! Texts that a change must keep: hashes of PTX, programs and plans, in a file next to the test.
//!
//! A refactoring proves that nothing was lost by equal hashes. A commit that changes one says which
//! and why. With `TILEWRIGHT_FROZEN=DIR` the texts themselves are written there too, so that two
//! builds can be compared line by line.
//!
//! ```
//! use tilewright_codegen::frozen::Frozen;
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("frozen.txt");
//! # std::fs::write(&file, "answer 7a13e64ea14f9fb5\n")?;
//! let mut frozen = Frozen::default();
//! frozen.add("answer", "forty-two");
//! // With TILEWRIGHT_BLESS=1 it writes the file.
//! let error = frozen.check(&file, true).unwrap_err().to_string();
//! assert!(error.contains("answer: changed"), "{error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::assemble::write_whole;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Hashes of texts by name.
#[derive(Clone, Debug, Default)]
pub struct Frozen {
    hashes: BTreeMap<String, u64>,
}

/// Why texts are not those of the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FrozenError {
    /// The file cannot be read or written.
    #[error("{}: {error}; TILEWRIGHT_BLESS=1 writes it", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A line of the file is not a name and a hash.
    #[error("{}, line {line}: expected a name and 16 hexadecimal digits", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
    },
    /// Texts that changed, came or went.
    #[error("{} says otherwise:\n{}\nif that is right, run this test with TILEWRIGHT_LONG=1 TILEWRIGHT_BLESS=1 and \
             name in the commit what changes and why", path.display(), lines.join("\n"))]
    Changed {
        /// The file.
        path: PathBuf,
        /// A line for each text.
        lines: Vec<String>,
    },
}

impl Frozen {
    /// Adds a text.
    ///
    /// # Panics
    /// If a text of that name was added before.
    pub fn add(&mut self, name: &str, text: &str) {
        assert!(!name.contains('\n'), "a name is one line");
        let before = self.hashes.insert(name.to_owned(), fnv1a(text.bytes()));
        assert!(before.is_none(), "{name} is added twice");
        if let Some(folder) = std::env::var_os("TILEWRIGHT_FROZEN") {
            let file = Path::new(&folder).join(name.replace(['/', ' '], "_"));
            write_whole(&file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
    }

    /// Compares with the file at a path; with `TILEWRIGHT_BLESS` set, writes it instead.
    ///
    /// `whole`: whether all texts were added, so that those that only the file has are gone. Where
    /// a sample was added, the file's other lines stay.
    ///
    /// # Errors
    /// [`FrozenError::Changed`] with the texts that differ; [`FrozenError::File`] and
    /// [`FrozenError::Line`] if the file cannot be read.
    pub fn check(&self, path: &Path, whole: bool) -> Result<(), FrozenError> {
        let failed = |error| FrozenError::File { path: path.into(), error };
        let bless = std::env::var_os("TILEWRIGHT_BLESS").is_some();
        let text = match std::fs::read_to_string(path) {
            Err(error) if bless && error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.map_err(failed)?,
        };
        let kept = parse(&text).map_err(|line| FrozenError::Line { path: path.into(), line })?;
        if bless {
            let mut new = if whole { BTreeMap::new() } else { kept };
            new.extend(self.hashes.clone());
            let mut out = String::new();
            for (name, hash) in new {
                writeln!(out, "{name} {hash:016x}").unwrap_or_default();
            }
            return write_whole(path, &out).map_err(failed);
        }
        let mut lines = Vec::new();
        for (name, hash) in &self.hashes {
            match kept.get(name) {
                None => lines.push(format!("{name}: the file has no such text")),
                Some(was) if was != hash => lines.push(format!("{name}: changed")),
                Some(_) => {}
            }
        }
        let gone = kept.keys().filter(|name| whole && !self.hashes.contains_key(*name));
        lines.extend(gone.map(|name| format!("{name}: only in the file")));
        if lines.is_empty() { Ok(()) } else { Err(FrozenError::Changed { path: path.into(), lines }) }
    }
}

/// The lines of a file, or the number of an invalid line.
fn parse(text: &str) -> Result<BTreeMap<String, u64>, usize> {
    let line = |line: &str| {
        let (name, hash) = line.rsplit_once(' ')?;
        (hash.len() == 16).then_some((name.to_owned(), u64::from_str_radix(hash, 16).ok()?))
    };
    (1..).zip(text.lines()).map(|(number, text)| line(text).ok_or(number)).collect()
}

/// The 64-bit hash FNV-1a (Fowler, Noll and Vo; draft-eastlake-fnv), the same on every machine.
///
/// ```
/// assert_eq!(tilewright_codegen::frozen::fnv1a(*b"foobar"), 0x8594_4171_f739_67e8);
/// ```
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_draft() {
        assert_eq!(fnv1a(*b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(*b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn every_difference_is_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("frozen.txt");
        let mut frozen = Frozen::default();
        frozen.add("kept", "a");
        frozen.add("changed by one", "b");
        frozen.add("new", "c");
        std::fs::write(
            &file,
            format!("changed by one {:016x}\ngone 0000000000000000\nkept {:016x}\n", 1, fnv1a(*b"a")),
        )
        .unwrap();
        let lines = |whole| match frozen.check(&file, whole) {
            Err(FrozenError::Changed { lines, .. }) => lines,
            other => panic!("{other:?}"),
        };
        assert_eq!(lines(false), ["changed by one: changed", "new: the file has no such text"]);
        assert_eq!(lines(true)[2], "gone: only in the file");
        std::fs::write(&file, "kept 12\n").unwrap();
        assert!(matches!(frozen.check(&file, true), Err(FrozenError::Line { line: 1, .. })));
    }
}
