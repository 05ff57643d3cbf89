//! Writes each program of the pages to a file of its own, and a table of all of them.

#[path = "src/page.rs"]
mod page;

use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut modules = String::new();
    let mut table = String::new();
    println!("cargo:rerun-if-changed={}", page::root().join("docs/guide").display());
    for page in page::pages() {
        println!("cargo:rerun-if-changed={}", page.path.display());
        for (name, index) in page.programs() {
            let folder = out.join(&name).join("src");
            fs::create_dir_all(&folder).expect("OUT_DIR is writable");
            let file = folder.join("main.rs");
            fs::write(&file, page.lines_of(&page.blocks[index])).expect("OUT_DIR is writable");
            assert!(page.output_after(index).is_some(), "{name}: a block `output` must follow the program");
            let module = format!("page_{}", name.replace('-', "_"));
            // A program is a module here, so that all of them are linked once.
            writeln!(
                modules,
                "mod {module} {{\n    include!({file:?});\n    pub fn program() -> std::process::ExitCode {{\n        \
                 crate::end_of(main)\n    }}\n}}"
            )
            .expect("a String takes all text");
            writeln!(table, "    ({name:?}, {module}::program),").expect("a String takes all text");
        }
    }
    let entry = "type Entry = (&'static str, fn() -> std::process::ExitCode);";
    let programs = format!("{modules}\n{entry}\nconst PROGRAMS: &[Entry] = &[\n{table}];\n");
    fs::write(out.join("programs.rs"), programs).expect("OUT_DIR is writable");
}
