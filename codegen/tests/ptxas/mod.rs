//! The assembler of the CUDA toolkit as an outside oracle.
//!
//! Found by `TILEWRIGHT_PTXAS`, else on the path. Where `CI` is `true` it must be there; elsewhere tests go on without.

use std::path::PathBuf;
use std::process::Command;
use tilewright_codegen::ir::Arch;

/// What the assembler says of one entry point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub entry: String,
    pub registers: u32,
    pub shared: u32,
    pub spills: u32,
}

/// What it says of a module.
#[derive(Clone, Debug, Default)]
pub struct Assembled {
    pub entries: Vec<Report>,
    pub warnings: Vec<String>,
}

/// The assembler, if there is one.
///
/// # Panics
/// Where `CI` is `true` and there is none.
pub fn find() -> Option<PathBuf> {
    let named = std::env::var_os("TILEWRIGHT_PTXAS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = named.or_else(|| std::env::split_paths(&path).map(|dir| dir.join("ptxas")).find(|file| file.is_file()));
    let required = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(found.is_some() || !required, "CI must have ptxas: put it on the path or name it in TILEWRIGHT_PTXAS");
    found
}

/// Assembles a module for a target.
///
/// # Panics
/// If the assembler refuses it, with its message.
pub fn assemble(ptxas: &PathBuf, arch: Arch, ptx: &str) -> Assembled {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("module.ptx"), dir.path().join("module.cubin"));
    std::fs::write(&input, ptx).unwrap();
    let ran = Command::new(ptxas)
        .args(["-v", "-arch", arch.name(), "-o"])
        .args([&output, &input])
        .output()
        .unwrap_or_else(|error| panic!("{} does not start: {error}", ptxas.display()));
    let said = String::from_utf8_lossy(&ran.stderr).into_owned() + &String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{arch}: {said}\n{ptx}");
    read(&said)
}

fn read(said: &str) -> Assembled {
    let mut out = Assembled::default();
    for line in said.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            let entry = rest.split('\'').next().unwrap_or_default().into();
            out.entries.push(Report { entry, ..Report::default() });
        } else if line.contains("Advisory") {
            // Multicast works on every target with clusters; on some it is merely slow.
        } else if line.contains("warning") || line.contains("Potential Performance Loss") {
            out.warnings.push(line.trim().into());
        } else if let Some(entry) = out.entries.last_mut() {
            let before = |noun: &str| {
                let words: Vec<&str> = line.split(noun).next()?.split_whitespace().collect();
                line.contains(noun).then(|| words.last()?.parse::<u32>().ok())?
            };
            entry.registers = before(" registers").unwrap_or(entry.registers);
            entry.shared = before(" bytes smem").unwrap_or(entry.shared);
            entry.spills += before(" bytes spill stores").unwrap_or(0);
        }
    }
    out
}
