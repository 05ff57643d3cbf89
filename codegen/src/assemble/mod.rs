//! The assembler of the CUDA toolkit as an outside oracle: what it makes of a kernel's PTX.
//!
//! Nothing needs it at run time, the driver compiles PTX by itself. Tests do: it rejects what is
//! not PTX, and says how many registers and bytes a kernel takes, whether it spills, and whether it
//! serialises `wgmma`. [`Ptxas::find`] looks in `TILEWRIGHT_PTXAS`, then on the path; where `CI` is
//! `true` it must be there. `pip install nvidia-cuda-nvcc` has it.
//!
//! [`Table`] records these numbers for a set of kernels in a page of the repository, and fails
//! where they drift. A test of a crate with kernels reads
//!
//! ```no_run
//! use tilewright_codegen::assemble::{Ptxas, Table};
//! use tilewright_codegen::{gallery, ir::Arch, verify::verify};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let Some(ptxas) = Ptxas::find()? else { return Ok(()) };
//! let mut table = Table::new("The gallery", &ptxas);
//! for entry in gallery::all() {
//!     for arch in Arch::ALL.into_iter().filter(|&arch| entry.needs.met_by(arch)) {
//!         table.add(&verify(entry.record(arch))?)?;
//!     }
//! }
//! let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ptxas/gallery.md");
//! table.check(page.as_ref())?; // with TILEWRIGHT_BLESS=1 it writes the page instead
//! # Ok(())
//! # }
//! ```

mod report;
mod table;

pub use report::{Assembled, Resources};
pub(crate) use table::write_whole;
pub use table::{ResourceRow, Table, TableError};

use crate::ir::Arch;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use thiserror::Error;

/// Why a module was not assembled.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// CI has no assembler.
    #[error("CI must have ptxas: put it on the path or name it in TILEWRIGHT_PTXAS (`pip install nvidia-cuda-nvcc`)")]
    Missing,
    /// The assembler does not run.
    #[error("{} does not run: {error}; TILEWRIGHT_PTXAS names the assembler", path.display())]
    NotRunning {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The file runs, and is not a known assembler.
    #[error("{} --version names no release of ptxas: {said}", path.display())]
    NotPtxas {
        /// The file.
        path: PathBuf,
        /// The output of the assembler.
        said: String,
    },
    /// No folder for its input and output.
    #[error("no temporary folder for the assembler: {0}")]
    Folder(#[source] std::io::Error),
    /// The assembler does not accept the text.
    #[error("ptxas refuses the module for {arch}:\n{said}\n{ptx}")]
    Refused {
        /// The target.
        arch: Arch,
        /// Its messages.
        said: String,
        /// The text.
        ptx: String,
    },
}

/// An assembler that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptxas {
    path: PathBuf,
    version: String,
}

impl Ptxas {
    /// The assembler, if there is one.
    ///
    /// # Errors
    /// [`AssembleError::Missing`] if `CI` is `true` and there is none; otherwise if the assembler
    /// that was found does not run.
    pub fn find() -> Result<Option<Ptxas>, AssembleError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let named = std::env::var_os("TILEWRIGHT_PTXAS").map(PathBuf::from);
        let found =
            named.or_else(|| std::env::split_paths(&path).map(|dir| dir.join("ptxas")).find(|file| file.is_file()));
        match found {
            Some(path) => Ptxas::at(&path).map(Some),
            None if std::env::var("CI").is_ok_and(|ci| ci == "true") => Err(AssembleError::Missing),
            None => Ok(None),
        }
    }

    /// The assembler at a path.
    ///
    /// # Errors
    /// If it does not run, or does not name its release.
    pub fn at(path: &Path) -> Result<Ptxas, AssembleError> {
        let ran = ran(path, Command::new(path).arg("--version"))?;
        let said = words(&ran);
        match report::version(&said) {
            Some(version) => Ok(Ptxas { path: path.into(), version: version.into() }),
            None => Err(AssembleError::NotPtxas { path: path.into(), said }),
        }
    }

    /// Its release, such as `13.0.88`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Assembles a module for a target and returns the assembler's report.
    ///
    /// # Errors
    /// [`AssembleError::Refused`] with its messages and the text; otherwise if it does not run.
    ///
    /// ```
    /// use tilewright_codegen::assemble::Ptxas;
    /// use tilewright_codegen::{gallery, ir::Arch, ptx, verify::verify};
    ///
    /// let saxpy = verify(gallery::named("saxpy").unwrap().record(Arch::Sm80)).unwrap();
    /// if let Some(ptxas) = Ptxas::find().unwrap() {
    ///     let said = ptxas.assemble(Arch::Sm80, &ptx::emit(&saxpy)).unwrap();
    ///     assert!(said.flaws().is_empty() && said.entries[0].registers < 32);
    /// }
    /// ```
    pub fn assemble(&self, arch: Arch, ptx: &str) -> Result<Assembled, AssembleError> {
        let dir = tempfile::tempdir().map_err(AssembleError::Folder)?;
        let input = dir.path().join("module.ptx");
        let output = dir.path().join("module.cubin");
        std::fs::write(&input, ptx).map_err(AssembleError::Folder)?;
        let mut command = Command::new(&self.path);
        let ran = ran(&self.path, command.args(["-v", "-arch", arch.name(), "-o"]).args([&output, &input]))?;
        let said = words(&ran);
        if ran.status.success() {
            Ok(report::read(&said))
        } else {
            Err(AssembleError::Refused { arch, said, ptx: ptx.into() })
        }
    }
}

fn ran(path: &Path, command: &mut Command) -> Result<Output, AssembleError> {
    command.output().map_err(|error| AssembleError::NotRunning { path: path.into(), error })
}

fn words(ran: &Output) -> String {
    String::from_utf8_lossy(&ran.stderr).into_owned() + &String::from_utf8_lossy(&ran.stdout)
}
