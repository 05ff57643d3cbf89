//! Ops by name: those of this crate, those that others registered, and both as JSON.

use std::any::TypeId;
use std::fmt;
use std::sync::{PoisonError, RwLock};

use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use thiserror::Error;

use super::{
    Argmax, Attention, Copy, Embed, ExpertDown, ExpertGateUp, Linear, LinearPart, Op, Qkv, Reduce, Rope, Route, Sample,
    TaskOp,
};

/// Calls a macro with the ops of this crate.
macro_rules! builtin {
    ($with:ident) => {
        $with! { Copy Embed Linear LinearPart Qkv Rope Attention Reduce Argmax Sample Route ExpertGateUp ExpertDown }
    };
}

/// An op that another crate registered.
struct Registered {
    name: &'static str,
    id: TypeId,
    read: fn(Value) -> Result<Op, serde_json::Error>,
}

static REGISTERED: RwLock<Vec<Registered>> = RwLock::new(Vec::new());

/// Why an op is not registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum RegisterError {
    #[error("the op name `{name}` is taken by another op; choose another name")]
    Taken { name: &'static str },
    #[error("the op name `{name}` is not of lower-case letters, digits and `_`; choose such a name")]
    Name { name: &'static str },
}

/// Makes an op known by its name: programs that hold it are valid, and read from JSON. Registering
/// the same op again does nothing.
///
/// # Errors
/// If the name belongs to another op, or is invalid.
pub fn register<T: TaskOp + DeserializeOwned>() -> Result<(), RegisterError> {
    let name = T::name();
    let id = TypeId::of::<T>();
    if name.is_empty() || !name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_')) {
        return Err(RegisterError::Name { name });
    }
    let mut rows = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    let known = rows.iter().find(|row| row.name == name).map(|row| row.id).or_else(|| builtin_id(name));
    match known {
        Some(known) if known == id => Ok(()),
        Some(_) => Err(RegisterError::Taken { name }),
        None => {
            rows.push(Registered { name, id, read: |value| serde_json::from_value::<T>(value).map(Op::from) });
            Ok(())
        }
    }
}

impl Op {
    /// Whether programs that hold it can be written and read again: an op of its type is registered
    /// under its name.
    pub fn is_registered(&self) -> bool {
        let name = self.name();
        let id = self.as_any().type_id();
        let rows = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
        builtin_id(name) == Some(id) || rows.iter().any(|row| row.name == name && row.id == id)
    }

    /// The names of this crate's ops, as JSON spells them.
    pub fn names() -> Vec<&'static str> {
        builtin_names()
    }
}

fn builtin_names() -> Vec<&'static str> {
    macro_rules! names {
        ($($Op:ident)*) => { vec![$($Op::name()),*] };
    }
    builtin!(names)
}

fn builtin_id(name: &str) -> Option<TypeId> {
    macro_rules! ids {
        ($($Op:ident)*) => { [$(($Op::name(), TypeId::of::<$Op>())),*] };
    }
    builtin!(ids).into_iter().find(|(known, _)| *known == name).map(|(_, id)| id)
}

impl Serialize for Op {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        macro_rules! written {
            ($($Op:ident)*) => {$(
                if let Some(op) = self.get::<$Op>() {
                    return serializer.serialize_newtype_variant("Op", 0, self.name(), op);
                }
            )*};
        }
        builtin!(written);
        let value = self.to_value().map_err(serde::ser::Error::custom)?;
        serializer.serialize_newtype_variant("Op", 0, self.name(), &value)
    }
}

impl<'de> Deserialize<'de> for Op {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Op, D::Error> {
        deserializer.deserialize_map(NamedOp)
    }
}

/// `{"NAME": {operands}}`.
struct NamedOp;

impl<'de> Visitor<'de> for NamedOp {
    type Value = Op;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an op: its name, and its operands by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Op, A::Error> {
        let Some(name) = map.next_key::<String>()? else {
            return Err(A::Error::custom("an op without a name; it is {\"NAME\": {..}}"));
        };
        let op = read(&name, &mut map)?;
        match map.next_key::<IgnoredAny>()? {
            None => Ok(op),
            Some(_) => Err(A::Error::custom(format_args!("a second op beside `{name}`; a task has one"))),
        }
    }
}

fn read<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Op, A::Error> {
    macro_rules! known {
        ($($Op:ident)*) => {$(
            if name == $Op::name() {
                return map.next_value::<$Op>().map(Op::from);
            }
        )*};
    }
    builtin!(known);
    let rows = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    let Some(read) = rows.iter().find(|row| row.name == name).map(|row| row.read) else {
        let mut names = builtin_names();
        names.extend(rows.iter().map(|row| row.name));
        let names = names.join(", ");
        return Err(A::Error::custom(format_args!("the op `{name}` is not registered; there are {names}")));
    };
    drop(rows);
    read(map.next_value::<Value>()?).map_err(|error| A::Error::custom(format_args!("op `{name}`: {error}")))
}
