//! The copy of a box of elements. The reference back end runs it, for what a host wants to keep of
//! a step; it has no device function.

use serde::{Deserialize, Serialize};

use super::{Check, Footprint, Operands, TaskOp, same_extents};
use crate::oracle::{Context, Done};
use crate::program::Region;

/// `dst = src`, element by element, converted to `dst`'s dtype (round to nearest even).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copy {
    /// The source, of a floating-point type.
    pub src: Region,
    /// The destination, of the same extents.
    pub dst: Region,
}

impl TaskOp for Copy {
    fn name() -> &'static str {
        "copy"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        ops.float_region("src", &self.src)?;
        ops.float_region("dst", &self.dst)?;
        same_extents("src", &self.src, "dst", &self.dst)?;
        Ok(Footprint::new(vec![self.src], vec![self.dst]).updating([self.src]))
    }

    fn oracle(&self, on: &Context) -> Done {
        for (src, dst) in on.runs(&self.src)?.into_iter().zip(on.runs(&self.dst)?) {
            on.write(self.dst.buffer, dst.0, &on.read(self.src.buffer, src.0, src.1)?)?;
        }
        Ok(())
    }
}
