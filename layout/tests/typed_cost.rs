//! The compile-time cost of typed layouts: `cargo check` of 500 distinct ones against none.
//!
//! A measurement of the machine, so it does not run with the suite:
//! `cargo test -p tilewright-layout --test typed_cost -- --ignored --nocapture`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LAYOUTS: usize = 500;
const LIMIT: Duration = Duration::from_secs(3);

/// A library that names `count` distinct layouts, each of three combinators over two numbers of its
/// own.
fn source(count: usize) -> String {
    let mut text = "use tilewright_layout::{layout, typed::*};\n".to_owned();
    for i in 0..count {
        let m = 8 * (1 + i % 20);
        let n = 8 * (1 + i / 20);
        let layout = format!("TiledBy<BlockedProduct<RowMajor<{m}, 16>, ColMajor<4, {n}>>, {m}, 16>");
        writeln!(text, "layout! {{ pub type L{i} = Swizzled<Swizzle<3, 3, 3>, {layout}>; }}").unwrap();
    }
    text
}

/// A crate of that source, and the least time of three checks of it, its dependencies checked
/// before.
fn least_check_time(name: &str, count: usize) -> Duration {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(root.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"{name}\"\nedition = \"2024\"\n[dependencies]\ntilewright-layout = {{ path = {here:?} }}\n[workspace]\n"
    );
    std::fs::write(root.join("Cargo.toml"), manifest).unwrap();
    std::fs::copy(here.join("../Cargo.lock"), root.join("Cargo.lock")).unwrap();
    let check = |comment: usize| {
        std::fs::write(root.join("src/lib.rs"), format!("// {comment}\n{}", source(count))).unwrap();
        let started = Instant::now();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let shared = root.parent().unwrap().join("typed-cost-target");
        let arguments = ["check", "--offline", "--quiet"];
        let status = Command::new(cargo).args(arguments).env("CARGO_TARGET_DIR", shared).current_dir(&root).status();
        assert!(status.unwrap().success(), "the {count} layouts do not check");
        started.elapsed()
    };
    check(0);
    (1..4).map(check).min().unwrap()
}

#[test]
#[ignore = "measures the machine: run it alone"]
fn five_hundred_layouts_cost_under_three_seconds() {
    let none = least_check_time("typed-cost-none", 0);
    let all = least_check_time("typed-cost-all", LAYOUTS);
    println!("cargo check: no layout {none:.2?}, {LAYOUTS} layouts {all:.2?}, the difference {:.2?}", all - none);
    assert!(all - none < LIMIT, "{LAYOUTS} layouts cost {:.2?}", all - none);
}
