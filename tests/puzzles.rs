//! Every puzzle of `examples/puzzles` is right on the simulator, and short.

use std::path::Path;

use tilewright::codegen::device::sim;

#[path = "../examples/puzzles/asynchronous.rs"]
mod asynchronous;
#[path = "../examples/puzzles/blocks.rs"]
mod blocks;
#[path = "../examples/puzzles/case.rs"]
mod case;
#[path = "../examples/puzzles/clusters.rs"]
mod clusters;
#[path = "../examples/puzzles/list.rs"]
mod list;
#[path = "../examples/puzzles/maps.rs"]
mod maps;
#[path = "../examples/puzzles/products.rs"]
mod products;
#[path = "../examples/puzzles/rows.rs"]
mod rows;
#[path = "../examples/puzzles/shared.rs"]
mod shared;
#[path = "../examples/puzzles/warps.rs"]
mod warps;

#[test]
fn every_puzzle_is_right() {
    let puzzles = list::all();
    assert!(puzzles.len() >= 30, "{} puzzles", puzzles.len());
    for puzzle in puzzles {
        for seed in 0..4 {
            puzzle.run(&sim::open(seed), seed).unwrap_or_else(|error| panic!("{}, seed {seed}: {error}", puzzle.name));
        }
        println!("{}: right", puzzle.name);
    }
}

/// Device functions have a statement and at most 20 lines, their signature included.
#[test]
fn device_functions_are_short_and_have_a_statement() {
    let mut names = Vec::new();
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/puzzles")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let Some(name) = line.strip_prefix("fn ").and_then(|rest| rest.strip_suffix("(k: &Builder) {")) else {
                continue;
            };
            let length = lines[number..].iter().position(|line| *line == "}").expect("an end") + 1;
            assert!(length <= 20, "{name} has {length} lines");
            assert!(lines[number - 1].starts_with("///"), "{name} has no statement");
            names.push(name.to_owned());
        }
    }
    let mut listed: Vec<String> = list::all().iter().map(|puzzle| puzzle.name.to_owned()).collect();
    names.sort();
    listed.sort();
    assert_eq!(names, listed, "device functions and the list");
}
