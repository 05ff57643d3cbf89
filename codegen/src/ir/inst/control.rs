//! Control of the thread and of its machine. Structured control flow is not here but in
//! [`StmtKind`](crate::ir::StmtKind).

use super::*;
use crate::ir::attr::{RegChange, RegCount, Remark};

family! {
    /// Control.
    "control" ControlOp {
        /// The thread ends. Barriers that it had yet to reach count it no more, which is a fault if
        /// one of them names it.
        Exit "exit" () Sm80;
        /// The launch fails, with the error that the thread reached a trap.
        Trap "trap" () Sm80;
        /// Sleeps about that long; a hint.
        NanoSleep "nanosleep" (ns: R U32) Sm80;
        /// Changes the registers per thread of the warp to `count`. All warps of a warpgroup
        /// execute the same. `inc` asks for more than it has, `dec` gives back. The kernel must
        /// state its registers at entry (threads and blocks per multiprocessor). No effect on
        /// values.
        SetMaxNReg "setmaxnreg" () { change: RegChange, count: RegCount } Sm90aUp Warpgroup;
        /// Prints the line `text`, in which each `{}` is the next value, after block and thread. As
        /// many values as braces, each of 32 or 64 bits. No effect on values.
        Print "print" (values: Rs any) { text: Remark } Sm80;
        /// Where `cond` is false the launch fails, with an error that names `text`, the line of
        /// Rust, block and thread.
        Assert "assert" (cond: R Pred) { text: Remark } Sm80;
        /// A remark in text and PTX. Does nothing.
        Comment "//" () { text: Remark } Sm80;
    }
}
