//! Arguments of a launch, and how they are laid out in the parameter block.

use super::backend::Handle;
use super::source::Signature;
use super::{Buffer, Device, DeviceError, Mapped, TensorMap, Word};
use crate::ir::{Const, ParamKind, Space, Ty};
use bytemuck::Pod;
use half::{bf16, f16};
use std::any::TypeId;
use std::fmt;

/// An argument: what a launch passes for a parameter.
///
/// Its type is exact: a `u32` is not an `s32`. Numbers, buffers, mapped words and tensor maps
/// convert by `into()`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Arg<'a> {
    /// A scalar.
    Scalar(Const),
    /// A pointer to global memory that something owns.
    Memory(MemoryArg),
    /// The address 0, for a pointer that the launch does not use.
    Null,
    /// A structure by value.
    Bytes(&'a [u8]),
    /// A tensor map by value.
    Map(&'a TensorMap),
}

/// A pointer to global memory as an argument. It keeps the memory alive, in queued work and in
/// graphs too.
#[derive(Clone, Debug)]
pub struct MemoryArg {
    address: u64,
    owner: Handle,
    /// The device that the launch must be on; `None` where other devices reach the memory too.
    device: Option<Device>,
    /// The type of the elements; `None` where a buffer holds bytes or something else that kernels
    /// have no type for.
    element: Option<Ty>,
}

impl Arg<'_> {
    /// A pointer to a buffer of another device, for kernels on devices that reach each other's
    /// memory.
    pub fn peer<T: Pod>(buffer: &Buffer<T>) -> Self {
        let address = buffer.address();
        let owner = buffer.memory().clone();
        Arg::Memory(MemoryArg { address, owner, device: None, element: element_of::<T>() })
    }

    /// A pointer to mapped words, for a kernel on another device than the one that allocated them.
    pub fn peer_mapped<W: Word>(mapped: &Mapped<W>) -> Self {
        let address = mapped.address();
        let owner = mapped.handle();
        Arg::Memory(MemoryArg { address, owner, device: None, element: element_of::<W>() })
    }

    /// A null argument, for a parameter that the launch does not use: an address that is never
    /// accessed.
    pub fn null() -> Self {
        Arg::Null
    }

    /// The argument's kind as a parameter's kind is written.
    fn kind(&self) -> ParamKindName {
        ParamKindName(match self {
            Arg::Scalar(value) => ParamKind::Value(value.ty),
            Arg::Memory(_) | Arg::Null => ParamKind::Value(Ty::Ptr(Space::Global)),
            Arg::Bytes(bytes) => ParamKind::Bytes { bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX), align: 1 },
            Arg::Map(_) => ParamKind::TensorMap,
        })
    }
}

/// A parameter's kind as a person reads it.
struct ParamKindName(ParamKind);

impl ParamKindName {
    fn accepts(&self, given: &ParamKindName) -> bool {
        match (self.0, given.0) {
            (ParamKind::Bytes { bytes, .. }, ParamKind::Bytes { bytes: given, .. }) => bytes == given,
            (wanted, given) => wanted == given,
        }
    }
}

impl fmt::Display for ParamKindName {
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
pub(super) struct PackedArgs {
    /// The parameter block.
    pub params: Vec<u8>,
    /// Owners of what the parameters point to.
    pub keep: Vec<Handle>,
}

/// Lays arguments out by a signature.
pub(super) fn pack(device: &Device, signature: &Signature, args: &[Arg<'_>]) -> Result<PackedArgs, DeviceError> {
    if args.len() != signature.params.len() {
        return Err(DeviceError::ArgCount {
            kernel: signature.name.clone(),
            expected: signature.params.len(),
            found: args.len(),
        });
    }
    let (spans, size) = signature.param_spans();
    let mut packed = PackedArgs { params: vec![0; size], keep: Vec::new() };
    for (index, ((arg, param), (start, bytes))) in args.iter().zip(&signature.params).zip(spans).enumerate() {
        let wanted = ParamKindName(param.kind);
        let given = arg.kind();
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
            Arg::Null => slot.fill(0),
            Arg::Bytes(structure) => slot.copy_from_slice(structure),
            Arg::Memory(MemoryArg { address, owner, device: of, element }) => {
                if let Some(of) = of {
                    device.same("pointer", of)?;
                }
                if let Some(found) = *element
                    && !takes(&param.elements, found)
                {
                    return Err(DeviceError::ArgElement {
                        kernel: signature.name.clone(),
                        index,
                        name: param.name.clone(),
                        expected: param.elements.clone(),
                        found,
                    });
                }
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

/// Whether a parameter of these elements takes a buffer. A pair of 16-bit floats is two of them,
/// and an integer has a sign or none. Bytes are anything: a buffer of `u8` passes for every
/// parameter, and a parameter of `u8` takes every buffer.
pub(crate) fn takes(elements: &[Ty], found: Ty) -> bool {
    let plain = |ty: Ty| match ty {
        Ty::F16x2 => Ty::F16,
        Ty::BF16x2 => Ty::BF16,
        Ty::S8 => Ty::U8,
        Ty::S16 => Ty::U16,
        Ty::S32 => Ty::U32,
        Ty::S64 => Ty::U64,
        other => other,
    };
    let same = |&expected: &Ty| expected == Ty::U8 || found == Ty::U8 || plain(expected) == plain(found);
    elements.is_empty() || elements.iter().any(same)
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

macro_rules! elements {
    ($($T:ty => $ty:ident),+) => {
        /// The type of the IR that a buffer's elements have, if there is one.
        fn element_of<T: 'static>() -> Option<Ty> {
            let id = TypeId::of::<T>();
            $(if id == TypeId::of::<$T>() {
                return Some(Ty::$ty);
            })+
            None
        }
    };
}

elements!(u8 => U8, i8 => S8, u16 => U16, i16 => S16, u32 => U32, i32 => S32, u64 => U64, i64 => S64, f16 => F16, bf16 => BF16, f32 => F32, f64 => F64);

impl<T: Pod> From<&Buffer<T>> for Arg<'_> {
    fn from(buffer: &Buffer<T>) -> Self {
        let address = buffer.address();
        let owner = buffer.memory().clone();
        let device = Some(buffer.device().clone());
        Arg::Memory(MemoryArg { address, owner, device, element: element_of::<T>() })
    }
}

impl<W: Word> From<&Mapped<W>> for Arg<'_> {
    fn from(mapped: &Mapped<W>) -> Self {
        let address = mapped.address();
        let owner = mapped.handle();
        let device = Some(mapped.device().clone());
        Arg::Memory(MemoryArg { address, owner, device, element: element_of::<W>() })
    }
}

impl<'a> From<&'a TensorMap> for Arg<'a> {
    fn from(map: &'a TensorMap) -> Self {
        Arg::Map(map)
    }
}
