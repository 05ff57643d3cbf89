//! Uses between source files of the libraries: never in circles, and never across layers that are
//! closed to each other.
//!
//! A file uses another where it imports or names an item that the other defines; a re-export is no
//! use. Tests and doc comments are not read. `closed.txt` lists the uses that are left: an entry
//! that is no longer needed must be removed. With `TILEWRIGHT_BLESS` set, it is written instead; a
//! list that has grown needs a reason in the commit.

mod module;
mod tokens;
mod tree;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tree::{Arrows, SourceTree, circles};

/// A layer that must not use another, by the folders of both.
struct Closed {
    from: &'static str,
    to: &'static str,
    reason: &'static str,
}

const CLOSED: [Closed; 9] = [
    Closed {
        from: "megakernel/src/ops/",
        to: "megakernel/src/vm/device/",
        reason: "an op states facts, from which the persistent back end chooses",
    },
    Closed {
        from: "megakernel/src/ops/",
        to: "megakernel/src/vm/graph/",
        reason: "an op states facts, from which the launch back end chooses",
    },
    Closed {
        from: "megakernel/src/vm/graph/",
        to: "megakernel/src/vm/device/",
        reason: "what back ends share has a module of its own",
    },
    Closed {
        from: "megakernel/src/vm/device/",
        to: "megakernel/src/vm/graph/",
        reason: "what back ends share has a module of its own",
    },
    Closed {
        from: "megakernel/src/vm/device/",
        to: "megakernel/src/vm/reference/",
        reason: "what back ends share has a module of its own",
    },
    Closed {
        from: "megakernel/src/vm/graph/",
        to: "megakernel/src/vm/reference/",
        reason: "what back ends share has a module of its own",
    },
    Closed {
        from: "megakernel/src/program/",
        to: "megakernel/src/ops/",
        reason: "a program is data; ops are rows over it",
    },
    Closed {
        from: "megakernel/src/vm/device/",
        to: "kernels/src/gemv/linear/",
        reason: "a back end calls a product by its front page, not by its parts",
    },
    Closed {
        from: "megakernel/src/vm/graph/",
        to: "kernels/src/gemv/linear/",
        reason: "a back end calls a product by its front page, not by its parts",
    },
];

static ARROWS: LazyLock<Arrows> = LazyLock::new(|| SourceTree::read(&root()).arrows());

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The lines of a list beside this file, comments left out.
fn list(name: &str) -> Vec<String> {
    let path = Path::new("tests/layers").join(name);
    let text = std::fs::read_to_string(root().join(&path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Writes a list below its first line, if that is asked for.
fn blessed(name: &str, lines: impl Iterator<Item = String>) -> bool {
    if std::env::var_os("TILEWRIGHT_BLESS").is_none() {
        return false;
    }
    let path = root().join("tests/layers").join(name);
    let text = std::fs::read_to_string(&path).expect("the list");
    let head = text.lines().take_while(|line| line.starts_with('#')).map(str::to_owned);
    let lines: Vec<String> = head.chain(lines).collect();
    std::fs::write(path, lines.join("\n") + "\n").expect("writes");
    true
}

/// The arrows inside a circle, one a line.
fn text(circle: &BTreeSet<String>) -> String {
    let inside = ARROWS.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
    inside.map(|((from, to), names)| format!("\n  {from} -> {to}: {}", joined(names))).collect()
}

fn joined(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[test]
fn files_do_not_use_one_another_in_circles() {
    assert!(ARROWS.len() > 5000, "the trees are where they were");
    for circle in circles(&ARROWS) {
        panic!("these files use one another in a circle:{}", text(&circle));
    }
}

#[test]
fn closed_layers_are_not_used() {
    let closed = |from: &str, to: &str| CLOSED.iter().find(|c| from.starts_with(c.from) && to.starts_with(c.to));
    let lines =
        ARROWS.keys().filter(|(from, to)| closed(from, to).is_some()).map(|(from, to)| format!("{from} -> {to}"));
    if blessed("closed.txt", lines) {
        return;
    }
    let mut allowed: BTreeSet<String> = list("closed.txt").into_iter().collect();
    for ((from, to), names) in &*ARROWS {
        if let Some(closed) = closed(from, to)
            && !allowed.remove(&format!("{from} -> {to}"))
        {
            panic!("{from} uses {} of {to}: {}", joined(names), closed.reason);
        }
    }
    assert!(allowed.is_empty(), "these arrows are gone, remove them from closed.txt: {allowed:#?}");
}
