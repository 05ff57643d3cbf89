//! Uses between source files of the libraries: never in circles, and never across layers that are
//! closed to each other.
//!
//! A file uses another where it imports or names an item that the other defines; a re-export is not
//! a use. Tests and doc comments are not read.

mod module;
mod tokens;
mod tree;

use std::collections::BTreeSet;
use std::path::PathBuf;
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
    let found: Vec<String> = circles(&ARROWS).iter().map(text).collect();
    assert!(found.is_empty(), "these files use one another in circles:{}", found.concat());
}

#[test]
fn closed_layers_are_not_used() {
    let files = ARROWS.keys().flat_map(|(from, to)| [from, to]);
    for closed in &CLOSED {
        for folder in [closed.from, closed.to] {
            assert!(files.clone().any(|file| file.starts_with(folder)), "{folder} has no file");
        }
    }
    for ((from, to), names) in &*ARROWS {
        if let Some(closed) = CLOSED.iter().find(|c| from.starts_with(c.from) && to.starts_with(c.to)) {
            panic!("{from} uses {} of {to}: {}", joined(names), closed.reason);
        }
    }
}
