//! The row of an op: one declaration that every reader of programs asks.

use std::any::Any;
use std::fmt;
use std::ops::Deref;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Access, BufferId, Choice, Footprint, OperandError, Operands, Region};
use crate::oracle::{Context, TaskFault};

/// An op: what a task computes. Its value holds the op's operands; this trait is its row.
///
/// Validator, scheduler, both machines, timelines and JSON ask the row and match on no op. A crate
/// outside writes the same row and calls [`register`](crate::ops::register).
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tilewright_codegen::target::Target;
/// use tilewright_layout::DType;
/// use tilewright_megakernel::ops::{self, Footprint, OperandError, Operands, TaskOp};
/// use tilewright_megakernel::program::{BufferKind, Program, Region};
/// use tilewright_megakernel::vm::reference::{Context, TaskFault};
///
/// /// `out = 2 · x`, element by element.
/// #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Twice { x: Region, out: Region }
///
/// impl TaskOp for Twice {
///     fn name() -> &'static str { "twice" }
///     fn footprint(&self, buffers: &Operands) -> Result<Footprint, OperandError> {
///         buffers.float_region("x", &self.x)?;
///         buffers.float_region("out", &self.out)?;
///         ops::same_extents("x", &self.x, "out", &self.out)?;
///         Ok(Footprint::new(vec![self.x], vec![self.out]).updating([self.x]))
///     }
///     fn oracle(&self, on: &Context) -> Result<(), TaskFault> {
///         for (from, to) in on.runs(&self.x)?.into_iter().zip(on.runs(&self.out)?) {
///             let twice: Vec<f32> = on.read(self.x.buffer, from.0, from.1)?.iter().map(|x| 2.0 * x).collect();
///             on.write(self.out.buffer, to.0, &twice)?;
///         }
///         Ok(())
///     }
/// }
///
/// ops::register::<Twice>()?;
/// let mut program = Program::new("twice", Target::host(1));
/// let x = program.add_buffer("x", BufferKind::Input, DType::F32, &[1, 4]);
/// let out = program.add_buffer("out", BufferKind::Output, DType::F32, &[1, 4]);
/// program.add_task("twice", Twice { x: Region::whole(x, &[1, 4]), out: Region::whole(out, &[1, 4]) }, vec![], vec![])?;
/// assert!(tilewright_megakernel::validate::validate(&program).is_valid());
/// assert_eq!(Program::from_json(&program.to_json()?)?, program);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TaskOp: OpValue {
    /// The op's name, as JSON spells it.
    fn name() -> &'static str
    where
        Self: Sized;

    /// Checks the operands and gives the regions that a task reads and writes: all of them, and no
    /// more. Every buffer is reached through [`Operands`], so that none is used unchecked.
    ///
    /// # Errors
    /// If an operand is invalid; the first such operand is reported.
    fn footprint(&self, buffers: &Operands) -> Result<Footprint, OperandError>;

    /// Computes the task on the reference back end. This is the definition of the op; the back end
    /// confines it to its footprint.
    ///
    /// # Errors
    /// If its data is invalid, or it accesses memory outside the footprint.
    fn oracle(&self, on: &Context) -> Result<(), TaskFault>;

    /// The accesses of its device function: operands, and the representations of each that it
    /// supports.
    fn accesses(&self) -> Vec<Access> {
        Vec::new()
    }

    /// The buffers that receive the rows' next tokens, for ops that choose them.
    fn choice(&self) -> Option<Choice> {
        None
    }

    /// The table by which the weights that a task reads are chosen while the step runs; for ops of
    /// experts.
    fn chosen_by(&self) -> Option<BufferId> {
        None
    }

    /// Cost: elements of a region read that are really drawn from memory when sequences hold
    /// `context` tokens. All of it, where an op does not say less.
    fn drawn(&self, region: &Region, _buffers: &Operands, _context: usize) -> usize {
        region.elements()
    }

    /// Writes that the footprint has at least, known before it is computed; for ops whose operands
    /// are few and whose regions may be many.
    fn least_writes(&self, _buffers: &Operands) -> usize {
        0
    }

    /// The buffer in which it leaves token ids, and what they are below; for ops that find ids.
    fn ids(&self) -> Option<(BufferId, usize)> {
        None
    }
}

/// The object-safe side of an op's value, with one blanket implementation.
pub trait OpValue: Any + fmt::Debug + Send + Sync {
    /// [`TaskOp::name`] of a value.
    fn op_name(&self) -> &'static str;
    /// A copy.
    fn boxed(&self) -> Box<dyn TaskOp>;
    /// Whether it is the same op with the same operands.
    fn equals(&self, other: &dyn TaskOp) -> bool;
    /// Its operands as JSON.
    ///
    /// # Errors
    /// If they cannot be written.
    fn to_value(&self) -> Result<serde_json::Value, serde_json::Error>;
    /// Itself, to ask which op it is.
    fn as_any(&self) -> &dyn Any;
    /// The op's value as a mutable `Any`.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: TaskOp + Clone + PartialEq + Serialize + DeserializeOwned> OpValue for T {
    fn op_name(&self) -> &'static str {
        T::name()
    }

    fn boxed(&self) -> Box<dyn TaskOp> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn TaskOp) -> bool {
        other.as_any().downcast_ref::<T>().is_some_and(|other| self == other)
    }

    fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::to_value(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// The op of a task, from this crate or another.
///
/// ```
/// use tilewright_megakernel::ops::{Argmax, Op};
/// use tilewright_megakernel::program::{BufferId, Span};
/// let [value, index, out] = [0, 1, 2].map(BufferId);
/// let op = Op::from(Argmax { value, index, out, rows: Span::all(1) });
/// assert_eq!(op.name(), "argmax");
/// assert_eq!(op.get::<Argmax>().map(|argmax| argmax.out), Some(out));
/// ```
pub struct Op(Box<dyn TaskOp>);

impl Op {
    /// The op's name, as JSON spells it.
    pub fn name(&self) -> &'static str {
        self.0.op_name()
    }

    /// Its operands, if it is this op.
    pub fn get<T: TaskOp>(&self) -> Option<&T> {
        self.0.as_any().downcast_ref()
    }

    /// The operands of an op of type `T`, mutably.
    pub fn get_mut<T: TaskOp>(&mut self) -> Option<&mut T> {
        self.0.as_any_mut().downcast_mut()
    }

    /// Whether it is this op.
    pub fn is<T: TaskOp>(&self) -> bool {
        self.0.as_any().is::<T>()
    }
}

impl<T: TaskOp> From<T> for Op {
    fn from(op: T) -> Op {
        Op(Box::new(op))
    }
}

impl Deref for Op {
    type Target = dyn TaskOp;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl Clone for Op {
    fn clone(&self) -> Op {
        Op(self.0.boxed())
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        self.0.equals(&*other.0)
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
