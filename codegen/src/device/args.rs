//! Arguments of a launch, and how they are laid out in the parameter block.

use super::backend::Handle;
use super::source::Signature;
use super::{Buffer, Device, DeviceError, Mapped, TensorMap, Word};
use crate::ir::{Const, ParamKind, Space, Ty};
use bytemuck::Pod;
use half::{bf16, f16};
use std::fmt;

/// An argument: what a launch passes for a parameter.
///
/// Its type is exact: a `u32` is no `s32`. Numbers, buffers, mapped words and tensor maps convert by `into()`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Arg<'a> {
    /// A scalar.
    Scalar(Const),
    /// A pointer to global memory that something owns.
    Memory {
        /// The address.
        address: u64,
        /// Its owner.
        owner: Handle,
        /// The device that it belongs to.
        device: Device,
    },
    /// A pointer to global memory as a number; whoever passes it keeps the memory.
    Address(u64),
    /// A structure by value.
    Bytes(&'a [u8]),
    /// A tensor map by value.
    Map(&'a TensorMap),
}

impl Arg<'_> {
    /// The argument's kind as a parameter's kind is written.
    fn kind(&self) -> Kind {
        Kind(match self {
            Arg::Scalar(value) => ParamKind::Value(value.ty),
            Arg::Memory { .. } | Arg::Address(_) => ParamKind::Value(Ty::Ptr(Space::Global)),
            Arg::Bytes(bytes) => ParamKind::Bytes { bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX), align: 1 },
            Arg::Map(_) => ParamKind::TensorMap,
        })
    }
}

/// A parameter's kind as a person reads it.
struct Kind(ParamKind);

impl Kind {
    fn accepts(&self, given: &Kind) -> bool {
        match (self.0, given.0) {
            (ParamKind::Bytes { bytes, .. }, ParamKind::Bytes { bytes: given, .. }) => bytes == given,
            (wanted, given) => wanted == given,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ParamKind::Value(Ty::Ptr(space)) => write!(f, "a pointer to {space} memory"),
            ParamKind::Value(ty) => write!(f, "a scalar of type {ty}"),
            ParamKind::Bytes { bytes, .. } => write!(f, "a structure of {bytes} bytes"),
            ParamKind::TensorMap => f.write_str("a tensor map"),
        }
    }
}

/// Arguments laid out for a launch.
pub(super) struct Packed {
    /// The parameter block.
    pub params: Vec<u8>,
    /// Owners of what the parameters point to.
    pub keep: Vec<Handle>,
}

/// Lays arguments out by a signature.
pub(super) fn pack(device: &Device, signature: &Signature, args: &[Arg<'_>]) -> Result<Packed, DeviceError> {
    if args.len() != signature.params.len() {
        return Err(DeviceError::ArgCount {
            kernel: signature.name.clone(),
            expected: signature.params.len(),
            found: args.len(),
        });
    }
    let (spans, size) = signature.param_spans();
    let mut packed = Packed { params: vec![0; size], keep: Vec::new() };
    for (index, ((arg, param), (start, bytes))) in args.iter().zip(&signature.params).zip(spans).enumerate() {
        let (wanted, given) = (Kind(param.kind), arg.kind());
        if !wanted.accepts(&given) {
            return Err(DeviceError::ArgKind {
                kernel: signature.name.clone(),
                index,
                name: param.name.clone(),
                expected: wanted.to_string(),
                found: given.to_string(),
            });
        }
        let slot = &mut packed.params[start..start + bytes];
        match arg {
            Arg::Scalar(value) => slot.copy_from_slice(&value.bits.to_le_bytes()[..bytes]),
            Arg::Address(address) => slot.copy_from_slice(&address.to_le_bytes()),
            Arg::Bytes(structure) => slot.copy_from_slice(structure),
            Arg::Memory { address, owner, device: of } => {
                device.same("pointer", of)?;
                slot.copy_from_slice(&address.to_le_bytes());
                packed.keep.push(owner.clone());
            }
            Arg::Map(map) => {
                device.same("tensor map", map.device())?;
                slot.copy_from_slice(map.encoded());
                packed.keep.push(map.memory().clone());
            }
        }
    }
    Ok(packed)
}

macro_rules! scalars {
    ($($T:ty => $ty:ident $bits:expr;)+) => {$(
        impl From<$T> for Arg<'_> {
            fn from(value: $T) -> Self {
                let bits: fn($T) -> u64 = $bits;
                Arg::Scalar(Const::new(Ty::$ty, bits(value)))
            }
        }
    )+};
}

scalars! {
    u8 => U8 |v| v.into();
    i8 => S8 |v| v as u64;
    u16 => U16 |v| v.into();
    i16 => S16 |v| v as u64;
    u32 => U32 |v| v.into();
    i32 => S32 |v| v as u64;
    u64 => U64 |v| v;
    i64 => S64 |v| v as u64;
    f16 => F16 |v| v.to_bits().into();
    bf16 => BF16 |v| v.to_bits().into();
    f32 => F32 |v| v.to_bits().into();
    f64 => F64 |v| v.to_bits();
}

impl<T: Pod> From<&Buffer<T>> for Arg<'_> {
    fn from(buffer: &Buffer<T>) -> Self {
        Arg::Memory { address: buffer.address(), owner: buffer.memory().clone(), device: buffer.device().clone() }
    }
}

impl<W: Word> From<&Mapped<W>> for Arg<'_> {
    fn from(mapped: &Mapped<W>) -> Self {
        Arg::Memory { address: mapped.address(), owner: mapped.handle(), device: mapped.device().clone() }
    }
}

impl<'a> From<&'a TensorMap> for Arg<'a> {
    fn from(map: &'a TensorMap) -> Self {
        Arg::Map(map)
    }
}
