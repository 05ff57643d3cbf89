//! The text form of a program: JSON with a format name and a version. `docs/program.md` describes
//! every field.

use std::io::Write;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Program;

/// Value of the `format` field.
pub const FORMAT: &str = "tilewright.program";
/// Version that this build writes, and the only one it reads.
pub const VERSION: u32 = 1;

/// Why a text is not a program. Whether a program is *valid* is another question, for
/// [`crate::validate`].
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum JsonError {
    #[error("the program is not JSON of the documented schema")]
    Syntax(#[from] serde_json::Error),
    #[error("the `format` is `{found}`, a program has `{FORMAT}`")]
    Format { found: String },
    #[error("the program has version {found}, this build reads version {VERSION}; compile it again")]
    Version { found: u32 },
}

#[derive(Serialize)]
struct Out<'a> {
    format: &'static str,
    version: u32,
    program: &'a Program,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct In {
    format: String,
    version: u32,
    program: Program,
}

/// The fields that an envelope of any version must have.
#[derive(Deserialize)]
struct VersionEnvelope {
    format: String,
    version: u32,
}

impl Program {
    /// Writes the program as JSON, on one line.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write_json(&self, writer: impl Write) -> Result<(), JsonError> {
        let out = Out { format: FORMAT, version: VERSION, program: self };
        Ok(serde_json::to_writer(writer, &out)?)
    }

    /// The program as JSON, on one line.
    ///
    /// # Errors
    /// None in practice: every program can be written.
    pub fn to_json(&self) -> Result<String, JsonError> {
        let out = Out { format: FORMAT, version: VERSION, program: self };
        Ok(serde_json::to_string(&out)?)
    }

    /// Reads a program.
    ///
    /// # Errors
    /// If the text is not JSON, is another format or version, or does not follow the schema.
    pub fn from_json(text: &str) -> Result<Program, JsonError> {
        match serde_json::from_str::<In>(text) {
            Ok(In { format, version, program }) => check(&format, version).map(|()| program),
            Err(error) => {
                // The envelope explains a file of another version better than the first field that
                // differs.
                if let Ok(envelope) = serde_json::from_str::<VersionEnvelope>(text) {
                    check(&envelope.format, envelope.version)?;
                }
                Err(error.into())
            }
        }
    }
}

fn check(format: &str, version: u32) -> Result<(), JsonError> {
    if format != FORMAT {
        return Err(JsonError::Format { found: format.to_owned() });
    }
    if version != VERSION {
        return Err(JsonError::Version { found: version });
    }
    Ok(())
}
