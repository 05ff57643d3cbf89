//! A page of the repository with what kernels take on each target, and how far it may drift.
//!
//! Spills and warnings fail at once. The rest is compared with the page: threads and shared memory
//! exactly; registers and stack exactly under the release of the assembler that wrote the page,
//! under another within an eighth and eight.

use super::{AssembleError, Ptxas};
use crate::ptx;
use crate::sample::Sample;
use crate::verify::Verified;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The resources of a kernel on a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRow {
    /// The kernel's name.
    pub kernel: String,
    /// The target's name.
    pub target: String,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of stack of a thread.
    pub stack: u32,
    /// Bytes of shared memory of a block, with what the launch adds.
    pub shared: u32,
}

/// The resources of kernels, as this assembler reports them.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    title: &'a str,
    ptxas: &'a Ptxas,
    rows: Vec<ResourceRow>,
    /// The kernels that are assembled.
    sample: Sample,
    /// Kernels that [`Table::takes_next`] was asked for.
    asked: usize,
}

/// Why a table is not as it should be.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TableError {
    /// The assembler failed.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// A kernel spills, or the assembler warns of it.
    #[error("{kernel} for {target}: {}", flaws.join("; "))]
    Flawed {
        /// The kernel.
        kernel: String,
        /// The target.
        target: String,
        /// The flaws that the assembler reports.
        flaws: Vec<String>,
    },
    /// The page cannot be read or written.
    #[error("{}: {error}; TILEWRIGHT_BLESS=1 writes the page", path.display())]
    Page {
        /// The page.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The page says something else.
    #[error("{} says otherwise:\n{}\nif that is right, run this test with TILEWRIGHT_BLESS=1", path.display(), lines.join("\n"))]
    Drift {
        /// The page.
        path: PathBuf,
        /// One line for each kernel and target that differ.
        lines: Vec<String>,
    },
}

/// The environment's word for writing pages instead of comparing them.
const BLESS: &str = "TILEWRIGHT_BLESS";

/// The page's words for a kernel that may spill.
const SPILLS: &str = "spills at most";

const HEAD: &str = "| kernel | target | threads | registers | stack | shared memory |\n|---|---|---|---|---|---|\n";

impl<'a> Table<'a> {
    /// An empty table.
    pub fn new(title: &'a str, ptxas: &'a Ptxas) -> Table<'a> {
        Table { title, ptxas, rows: Vec::new(), sample: Sample::ALL, asked: 0 }
    }

    /// Makes the table one of a part of its kernels, of those that [`Table::takes_next`] is asked
    /// for. With `TILEWRIGHT_BLESS` in the environment it stays the whole table.
    #[must_use]
    pub fn sampled(self, sample: Sample) -> Table<'a> {
        let sample = if std::env::var_os(BLESS).is_some() { Sample::ALL } else { sample };
        Table { sample, ..self }
    }

    /// Whether the next kernel is of the part that the table is of; always, unless it is
    /// [sampled](Table::sampled).
    pub fn takes_next(&mut self) -> bool {
        self.asked += 1;
        self.sample.has(self.asked - 1)
    }

    /// Assembles a kernel for its target and adds its row.
    ///
    /// # Errors
    /// [`TableError::Flawed`] if it spills or the assembler warns; [`TableError::Assemble`] if it
    /// is refused.
    pub fn add(&mut self, kernel: &Verified) -> Result<&ResourceRow, TableError> {
        let name = kernel.kernel().name.clone();
        self.add_as(name, kernel)
    }

    /// [`Table::add`] under another name, for kernels of one entry point in several shapes.
    ///
    /// # Errors
    /// As [`Table::add`].
    pub fn add_as(&mut self, name: impl Into<String>, kernel: &Verified) -> Result<&ResourceRow, TableError> {
        self.add_within(name.into(), kernel, 0)
    }

    /// Adds a kernel that may spill this many bytes of a thread, stores and loads together: its
    /// name says so on the page.
    ///
    /// # Errors
    /// As [`Table::add`], where it spills more.
    pub fn add_spilling(&mut self, name: &str, kernel: &Verified, most: u32) -> Result<&ResourceRow, TableError> {
        self.add_within(format!("{name}, {SPILLS} {most} bytes"), kernel, most)
    }

    fn add_within(&mut self, name: String, kernel: &Verified, most: u32) -> Result<&ResourceRow, TableError> {
        let recorded = kernel.kernel();
        let mut said = self.ptxas.assemble(recorded.arch, &ptx::emit(kernel))?;
        let target = recorded.arch.name().to_string();
        let registers = said.entries.iter().map(|entry| entry.registers).max().unwrap_or(0);
        let stack = said.entries.iter().map(|entry| entry.stack).max().unwrap_or(0);
        let shared = said.entries.iter().map(|entry| entry.shared).max().unwrap_or(0).max(recorded.shared_bytes());
        said.entries.retain(|entry| entry.spills > most);
        let flaws = said.flaws();
        if !flaws.is_empty() {
            return Err(TableError::Flawed { kernel: name, target, flaws });
        }
        let threads = recorded.launch.threads.iter().product();
        self.rows.push(ResourceRow { kernel: name, target, threads, registers, stack, shared });
        Ok(&self.rows[self.rows.len() - 1])
    }

    /// The rows, in order of addition.
    pub fn rows(&self) -> &[ResourceRow] {
        &self.rows
    }

    /// The page.
    pub fn page(&self) -> String {
        let mut out = format!("# {}, assembled\n\nptxas {}. ", self.title, self.ptxas.version());
        let spills = self.rows.iter().any(|row| row.kernel.contains(SPILLS));
        let what = if spills { "Nothing spills but what says so" } else { "Nothing spills" };
        out.push_str("Registers and bytes of stack are a thread's, bytes of shared memory a block's.\n");
        write!(out, "{what}, nothing warns. ").unwrap_or_default();
        out.push_str("Tests compare this page and write it with `TILEWRIGHT_BLESS=1`.\n\n");
        out.push_str(HEAD);
        for ResourceRow { kernel, target, threads, registers, stack, shared } in &self.rows {
            writeln!(out, "| {kernel} | {target} | {threads} | {registers} | {stack} | {shared} |").unwrap_or_default();
        }
        out
    }

    /// Compares with the page at a path; with `TILEWRIGHT_BLESS` set, writes it instead.
    ///
    /// # Errors
    /// [`TableError::Drift`] with the rows that differ; [`TableError::Page`] if there is no such
    /// page.
    pub fn check(&self, path: &Path) -> Result<(), TableError> {
        let failed = |error| TableError::Page { path: path.into(), error };
        if std::env::var_os(BLESS).is_some() {
            return write_whole(path, &self.page()).map_err(failed);
        }
        let lines = self.drift(&std::fs::read_to_string(path).map_err(failed)?);
        if lines.is_empty() { Ok(()) } else { Err(TableError::Drift { path: path.into(), lines }) }
    }

    /// The differences of a page that exceed the tolerance, one line each.
    pub fn drift(&self, page: &str) -> Vec<String> {
        let recorded: Vec<ResourceRow> = page.lines().filter_map(row).collect();
        let version =
            page.split_once("\nptxas ").and_then(|(_, rest)| rest.split_once(". ")).map(|(version, _)| version);
        let known = version == Some(self.ptxas.version());
        let same = |a: &ResourceRow, b: &ResourceRow| (&a.kernel, &a.target) == (&b.kernel, &b.target);
        let mut lines = Vec::new();
        for found in &self.rows {
            let name = format!("{} for {}", found.kernel, found.target);
            match recorded.iter().find(|was| same(was, found)) {
                None => lines.push(format!("{name}: the page has no such row")),
                Some(was) => {
                    let quantities = [
                        ("threads", found.threads, was.threads, 0),
                        ("registers", found.registers, was.registers, slack(known, was.registers)),
                        ("bytes of stack", found.stack, was.stack, slack(known, was.stack)),
                        ("bytes of shared memory", found.shared, was.shared, 0),
                    ];
                    for (what, now, before, _) in quantities.iter().filter(|(_, a, b, slack)| a.abs_diff(*b) > *slack) {
                        lines.push(format!("{name}: {now} {what}, the page has {before}"));
                    }
                }
            }
        }
        let missing = if self.sample.is_all() { &recorded[..] } else { &[] };
        for was in missing.iter().filter(|was| !self.rows.iter().any(|found| same(was, found))) {
            lines.push(format!("{} for {}: only on the page", was.kernel, was.target));
        }
        lines
    }
}

/// The tolerance of a quantity: none under the release that wrote the page, else an eighth plus
/// eight.
fn slack(known: bool, was: u32) -> u32 {
    if known { 0 } else { was / 8 + 8 }
}

/// A row of a page.
fn row(line: &str) -> Option<ResourceRow> {
    let cells: Vec<&str> = line.trim().strip_prefix('|')?.split('|').map(str::trim).collect();
    let [kernel, target, threads, registers, stack, shared, _] = cells[..] else { return None };
    let number = |cell: &str| cell.parse().ok();
    Some(ResourceRow {
        kernel: kernel.into(),
        target: target.into(),
        threads: number(threads)?,
        registers: number(registers)?,
        stack: number(stack)?,
        shared: number(shared)?,
    })
}

pub(crate) fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    std::io::Write::write_all(&mut file, text.as_bytes())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ptxas(version: &str) -> Ptxas {
        Ptxas { path: PathBuf::new(), version: version.into() }
    }

    fn sample(registers: u32, shared: u32) -> ResourceRow {
        ResourceRow { kernel: "tile".into(), target: "sm_90a".into(), threads: 128, registers, stack: 0, shared }
    }

    #[test]
    fn a_page_has_no_drift_from_itself() {
        let ptxas = ptxas("13.0.88");
        let table = Table { rows: vec![sample(168, 4096)], ..Table::new("Sample", &ptxas) };
        assert_eq!(table.drift(&table.page()), Vec::<String>::new());
        assert!(row(table.page().lines().last().unwrap()).is_some_and(|row| row == table.rows[0]));
    }

    #[test]
    fn a_part_is_compared_with_its_rows_of_the_page() {
        let ptxas = ptxas("13.0.88");
        let rows = [168, 32, 40, 255]
            .map(|registers| ResourceRow { kernel: registers.to_string(), ..sample(registers, 4096) });
        let page = Table { rows: rows.to_vec(), ..Table::new("Sample", &ptxas) }.page();
        for part in 0..2 {
            let mut table = Table { sample: Sample::new(2, part), ..Table::new("Sample", &ptxas) };
            for row in &rows {
                if table.takes_next() {
                    table.rows.push(row.clone());
                }
            }
            assert_eq!((table.rows.len(), table.drift(&page)), (2, Vec::new()));
            table.rows[0].registers += 1;
            assert_eq!(table.drift(&page).len(), 1);
        }
    }

    #[test]
    fn drift_is_found() {
        let old = ptxas("13.0.88");
        let new = ptxas("13.1.2");
        let page = Table { rows: vec![sample(168, 4096)], ..Table::new("Sample", &old) }.page();
        let drift =
            |ptxas, row: ResourceRow| Table { rows: vec![row], ..Table::new("Sample", ptxas) }.drift(&page).len();
        assert_eq!(drift(&old, sample(169, 4096)), 1, "one register, same release");
        assert_eq!(drift(&new, sample(197, 4096)), 0, "a little, another release");
        assert_eq!(drift(&new, sample(198, 4096)), 1, "too much");
        assert_eq!(drift(&new, sample(168, 4112)), 1, "shared memory");
        assert_eq!(drift(&old, ResourceRow { kernel: "other".into(), ..sample(168, 4096) }), 2, "one gone, one new");
    }
}
