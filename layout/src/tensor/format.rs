//! The addressing of a tensor's leading axis.

use core::fmt;

/// Meaning of the rows of a tensor `[rows, d0, d1]`. The other two axes mean the same in every
/// format.
///
/// ```
/// use tilewright_layout::tensor::{AnyFormat, Format, Ragged};
/// assert_eq!(Ragged::FORMAT, Format::Ragged);
/// assert_eq!(Format::from_name("paged"), Some(Format::Paged));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// A row per (request, head).
    Batched,
    /// A row per position of a flat list of unequal runs, one run per (request, head).
    Ragged,
    /// A row per block of a pool, found through a table of block numbers.
    Paged,
    /// No rows that a step knows: a constant of the model, one per (layer, head).
    Parameter,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 4] = [Format::Batched, Format::Ragged, Format::Paged, Format::Parameter];

    /// The name in text forms.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Batched => "batched",
            Format::Ragged => "ragged",
            Format::Paged => "paged",
            Format::Parameter => "parameter",
        }
    }

    /// The format of that name.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A format as a type, for signatures that accept one format only.
pub trait AnyFormat: Copy + Default + Send + Sync + 'static {
    /// The format as a value.
    const FORMAT: Format;
}

/// [`Format::Batched`] as a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batched;

/// [`Format::Ragged`] as a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ragged;

/// [`Format::Paged`] as a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paged;

/// [`Format::Parameter`] as a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameter;

impl AnyFormat for Batched {
    const FORMAT: Format = Format::Batched;
}

impl AnyFormat for Ragged {
    const FORMAT: Format = Format::Ragged;
}

impl AnyFormat for Paged {
    const FORMAT: Format = Format::Paged;
}

impl AnyFormat for Parameter {
    const FORMAT: Format = Format::Parameter;
}
