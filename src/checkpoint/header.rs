//! The header of a safetensors file: what each tensor is and where its bytes lie.
//!
//! The format (eight bytes of length, a JSON object, the
//! data): <https://github.com/huggingface/safetensors>. It is read here rather than by the
//! `safetensors` crate, because a key that appears twice or a field that is not known must be an
//! error, every error must name the tensor and the numbers, and eight tensors of 2^61 bytes must
//! not overflow. The tests hold this reader against the crate.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Value};
use tilewright_layout::DType;

use super::json;
use tilewright_graph::models::quote;

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TensorEntry {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// The range of its bytes, from the start of the file.
    pub range: Range<usize>,
    /// Which rows of the range it has.
    pub rows: EntryRows,
}

/// The rows of its range that a tensor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryRows {
    All,
    /// Every other one, from the first or the second on: rows of two tensors take turns.
    Alternate {
        first: usize,
    },
}

impl TensorEntry {
    /// Its bytes in a file; those of every other row are copied. None where the file has no such
    /// range.
    pub fn bytes<'f>(&self, file: &'f [u8]) -> Cow<'f, [u8]> {
        let all = file.get(self.range.clone()).unwrap_or_default();
        let rows = self.shape.first().copied().unwrap_or(1);
        match self.rows {
            EntryRows::Alternate { first } if rows > 0 && all.len() >= 2 * rows => {
                let row = all.len() / (2 * rows);
                Cow::Owned(all.chunks_exact(row).skip(first).step_by(2).collect::<Vec<&[u8]>>().concat())
            }
            EntryRows::All | EntryRows::Alternate { .. } => Cow::Borrowed(all),
        }
    }
}

/// Why a safetensors file is malformed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The file cannot even hold the length of its header.
    #[error("file has {len} bytes; a safetensors file has at least 8, the length of its header")]
    TooShort {
        /// Bytes of the file.
        len: usize,
    },
    /// The header is said to be longer than the file.
    #[error("header has {header} bytes by its length field; {available} bytes follow it, so the file is cut short")]
    TooLong {
        /// Bytes of the header, by the length field.
        header: u64,
        /// Bytes after the length field.
        available: usize,
    },
    /// The header is longer than any sensible one.
    #[error("header has {header} bytes by its length field; at most {limit} are read")]
    Limit {
        /// Bytes of the header, by the length field.
        header: u64,
        /// The most that are read.
        limit: u64,
    },
    /// The header is not JSON.
    #[error("header is not valid JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// The header is JSON, but not an object.
    #[error("header is {value}; it must be a JSON object")]
    NotAnObject {
        /// The value.
        value: String,
    },
    /// The free text is not text.
    #[error("__metadata__ holds {value}; it must be an object of strings")]
    Metadata {
        /// The value.
        value: String,
    },
    /// A field of a tensor is missing or of the wrong type.
    #[error("tensor {tensor} has {field} {value}; it must be {expected}")]
    Field {
        /// The tensor.
        tensor: String,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The expected value.
        expected: &'static str,
    },
    /// A field that the format does not have.
    #[error("tensor {tensor} has a field {field}; the format knows dtype, shape and data_offsets alone")]
    UnknownField {
        /// The tensor.
        tensor: String,
        /// The field.
        field: String,
    },
    /// An element type that is not known.
    #[error("tensor {tensor} has dtype {found}, which is not known; known are {}", known_dtypes())]
    Dtype {
        /// The tensor.
        tensor: String,
        /// Its element type.
        found: String,
    },
    /// Offsets in the wrong order.
    #[error("tensor {tensor} begins at byte {begin} and ends at {end}; the end must not come first")]
    Reversed {
        /// The tensor.
        tensor: String,
        /// Its start, from the start of the data.
        begin: usize,
        /// Its end.
        end: usize,
    },
    /// A tensor passes the end of the file.
    #[error("tensor {tensor} ends at byte {end} of the data; the file has {len} bytes of data, so it is cut short")]
    PastEnd {
        /// The tensor.
        tensor: String,
        /// Its end.
        end: usize,
        /// Bytes of data in the file.
        len: usize,
    },
    /// A shape with more bytes than an address can count.
    #[error("tensor {tensor} has shape {shape:?} of {dtype}; its bytes do not fit {} bits", usize::BITS)]
    Overflow {
        /// The tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Its element type.
        dtype: DType,
    },
    /// Shape and offsets disagree.
    #[error("tensor {tensor} has {found} bytes by its offsets; shape {shape:?} of {dtype} needs {expected}")]
    Size {
        /// The tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Its element type.
        dtype: DType,
        /// Bytes by shape and element type.
        expected: usize,
        /// Bytes by the offsets.
        found: usize,
    },
    /// Two tensors share bytes.
    #[error("tensor {tensor} begins at byte {begin} of the data; {other} before it ends at {other_end}, they overlap")]
    Overlap {
        /// The later tensor.
        tensor: String,
        /// Its start.
        begin: usize,
        /// The tensor before it.
        other: String,
        /// The end of that tensor.
        other_end: usize,
    },
    /// Bytes that belong to no tensor.
    #[error("data has bytes {begin} to {end} that belong to no tensor; the format allows no gaps")]
    Gap {
        /// The first such byte, from the start of the data.
        begin: usize,
        /// The byte after the last.
        end: usize,
    },
}

/// Longest header that is read, as the format's own reader has it.
const LIMIT: u64 = 100_000_000;

/// The format's names of the element types.
const DTYPES: [(&str, DType); 16] = [
    ("F64", DType::F64),
    ("F32", DType::F32),
    ("F16", DType::F16),
    ("BF16", DType::BF16),
    ("F8_E4M3", DType::F8E4M3),
    ("F8_E5M2", DType::F8E5M2),
    ("I64", DType::I64),
    ("I32", DType::I32),
    ("I16", DType::I16),
    ("I8", DType::I8),
    ("U64", DType::U64),
    ("U32", DType::U32),
    ("U16", DType::U16),
    ("U8", DType::U8),
    ("BOOL", DType::Bool),
    // Exponents: the schemes that know them read bytes.
    ("F8_E8M0", DType::U8),
];

fn known_dtypes() -> String {
    DTYPES.map(|(name, _)| name).join(", ")
}

/// Reads the header of a whole file. The entries come in the order of their bytes and cover the
/// data without gaps.
pub(super) fn parse(file: &[u8]) -> Result<Vec<TensorEntry>, HeaderError> {
    let Some((length, rest)) = file.split_first_chunk() else {
        return Err(HeaderError::TooShort { len: file.len() });
    };
    let header = u64::from_le_bytes(*length);
    if header > LIMIT {
        return Err(HeaderError::Limit { header, limit: LIMIT });
    }
    let text = usize::try_from(header).ok().and_then(|len| rest.get(..len));
    let Some(text) = text else {
        return Err(HeaderError::TooLong { header, available: rest.len() });
    };
    let data_len = rest.len() - text.len();
    let mut map = match json::parse(text).map_err(HeaderError::Json)? {
        Value::Object(map) => map,
        value => return Err(HeaderError::NotAnObject { value: quote(&value) }),
    };
    if let Some(value) = map.remove("__metadata__")
        && !value.is_null()
        && !value.as_object().is_some_and(|texts| texts.values().all(Value::is_string))
    {
        return Err(HeaderError::Metadata { value: quote(&value) });
    }
    let mut entries =
        map.into_iter().map(|(name, value)| entry(name, value, data_len)).collect::<Result<Vec<_>, _>>()?;
    // A tensor without elements may begin where another does; it comes first.
    entries.sort_by_key(|entry| (entry.range.start, entry.range.end));
    check_coverage(&entries, data_len)?;
    let data_start = file.len() - data_len;
    for entry in &mut entries {
        entry.range = entry.range.start + data_start..entry.range.end + data_start;
    }
    Ok(entries)
}

/// Reads one tensor; its range counts from the start of the data.
fn entry(name: String, value: Value, data_len: usize) -> Result<TensorEntry, HeaderError> {
    let mut fields = match value {
        Value::Object(fields) => fields,
        value => {
            let field = "the description";
            let expected = "an object";
            return Err(HeaderError::Field { tensor: name, field, value: quote(&value), expected });
        }
    };
    let dtype = read_dtype(&name, &mut fields)?;
    let shape = read_numbers(&name, &mut fields, "shape", "a list of dimensions")?;
    let offsets = read_numbers(&name, &mut fields, "data_offsets", "a list of two offsets")?;
    let &[begin, end] = offsets.as_slice() else {
        let field = "data_offsets";
        let value = format!("{offsets:?}");
        return Err(HeaderError::Field { tensor: name, field, value, expected: "a list of two offsets" });
    };
    if let Some(field) = fields.into_iter().next().map(|(field, _)| field) {
        return Err(HeaderError::UnknownField { tensor: name, field });
    }
    if end < begin {
        return Err(HeaderError::Reversed { tensor: name, begin, end });
    }
    if end > data_len {
        return Err(HeaderError::PastEnd { tensor: name, end, len: data_len });
    }
    match shape.iter().try_fold(dtype.bytes(), |bytes, &dim| bytes.checked_mul(dim)) {
        None => Err(HeaderError::Overflow { tensor: name, shape, dtype }),
        Some(expected) if expected != end - begin => {
            Err(HeaderError::Size { tensor: name, shape, dtype, expected, found: end - begin })
        }
        Some(_) => Ok(TensorEntry { name, dtype, shape, range: begin..end, rows: EntryRows::All }),
    }
}

fn read_dtype(tensor: &str, fields: &mut Map<String, Value>) -> Result<DType, HeaderError> {
    let value = fields.remove("dtype").unwrap_or(Value::Null);
    let Some(found) = value.as_str() else {
        let tensor = tensor.to_owned();
        let value = quote(&value);
        return Err(HeaderError::Field { tensor, field: "dtype", value, expected: "a name" });
    };
    match DTYPES.iter().find(|(name, _)| *name == found) {
        Some((_, dtype)) => Ok(*dtype),
        None => Err(HeaderError::Dtype { tensor: tensor.to_owned(), found: found.to_owned() }),
    }
}

fn read_numbers(
    tensor: &str,
    fields: &mut Map<String, Value>,
    field: &'static str,
    expected: &'static str,
) -> Result<Vec<usize>, HeaderError> {
    let value = fields.remove(field).unwrap_or(Value::Null);
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    let numbers = value.as_array().and_then(|list| list.iter().map(number).collect());
    numbers.ok_or_else(|| HeaderError::Field { tensor: tensor.to_owned(), field, value: quote(&value), expected })
}

/// Checks that the tensors, in order, lie end to end from the first byte of the data to the last.
fn check_coverage(entries: &[TensorEntry], data_len: usize) -> Result<(), HeaderError> {
    let mut covered = 0;
    let mut before = None::<&TensorEntry>;
    for entry in entries {
        let begin = entry.range.start;
        match before {
            Some(other) if begin < covered => {
                let tensor = entry.name.clone();
                let other = other.name.clone();
                let other_end = covered;
                return Err(HeaderError::Overlap { tensor, begin, other, other_end });
            }
            _ if begin > covered => return Err(HeaderError::Gap { begin: covered, end: begin }),
            _ => {}
        }
        covered = entry.range.end;
        before = Some(entry);
    }
    if covered < data_len {
        return Err(HeaderError::Gap { begin: covered, end: data_len });
    }
    Ok(())
}
