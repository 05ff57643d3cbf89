//! The words a person reads of a fault.

use super::{ByteRange, Fault, FaultKind, HostWhy, StuckWarp, ThreadAt};
use crate::sim::memory::Why;
use core::fmt;

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {} memory at {:#x}", self.bytes, self.space, self.address)?;
        match &self.name {
            Some((name, 0)) => write!(f, " ({name})"),
            Some((name, offset)) => write!(f, " ({name} + {offset})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ThreadAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.block;
        write!(f, "{} `{}` ({}:{}", self.stmt, self.inst, self.src.file(), self.src.line())?;
        if let Some(caller) = self.caller {
            write!(f, ", called at {}:{}", caller.file(), caller.line())?;
        }
        write!(f, "), ")?;
        if let Some(device) = self.device {
            write!(f, "device {device} ")?;
        }
        write!(f, "block ({x}, {y}, {z}) warp {}", self.warp)?;
        match self.lane {
            Some(lane) => write!(f, " lane {lane}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::Race { at, wrote, why, .. } => race(f, at, *wrote, *why),
            FaultKind::Uninitialised(at) => write!(f, "reads {at}, which was never written; write it before"),
            FaultKind::UninitialisedRegister { register } => {
                write!(f, "reads register {register}, which this thread has not written; set it before")
            }
            FaultKind::OutOfBounds(at) => write!(f, "accesses {at}, outside of every allocation; bound the index"),
            FaultKind::IndexOutOfBounds { tensor, mode, index, extent, src } => write!(
                f,
                "index {index} of mode {mode} of {tensor}, whose extent is {extent}, at {}:{}; stay below the extent, or guard the access",
                src.file(),
                src.line()
            ),
            FaultKind::Misaligned { at, align } => write!(f, "accesses {at}, not a multiple of {align}; align it"),
            FaultKind::ReadOnly(at) => write!(f, "writes {at}, which is read-only; write to a buffer of its own"),
            FaultKind::ReadOnlyPath(at) => {
                write!(f, "reads {at} through the read-only path, but this kernel wrote it; load it without nc")
            }
            FaultKind::BlockGone(at) => {
                write!(f, "accesses {at}, of a block that has exited; keep it alive with a cluster barrier at the end")
            }
            FaultKind::Deadlock { stuck } => {
                write!(f, "no warp can make progress; stuck:")?;
                alike(stuck).iter().try_for_each(|(first, count)| {
                    write!(f, "\n  {}", first.place)?;
                    if *count > 1 {
                        write!(f, " and {} more of the block", count - 1)?;
                    }
                    write!(f, ": waits for {}", first.wait)
                })
            }
            FaultKind::DivisionByZero => f.write_str("divides by zero; guard the divisor"),
            FaultKind::Trap => f.write_str("reached a trap; the kernel put it where no thread should arrive"),
            FaultKind::Assertion { text } => write!(f, "asserts what is false: {text}"),
            _ => self.explain(f),
        }
    }
}

/// The first of the warps of a block that wait alike, and how many there are.
fn alike(stuck: &[StuckWarp]) -> Vec<(&StuckWarp, usize)> {
    let mut groups: Vec<(&StuckWarp, usize)> = Vec::new();
    for warp in stuck {
        let same = |first: &StuckWarp| {
            let a = &first.place;
            let b = &warp.place;
            (a.stmt, a.device, a.block, a.lane) == (b.stmt, b.device, b.block, b.lane) && first.wait == warp.wait
        };
        match groups.iter_mut().find(|(first, _)| same(first)) {
            Some((_, count)) => *count += 1,
            None => groups.push((warp, 1)),
        }
    }
    groups
}

/// An mbarrier, as a report names it.
struct MbarrierName<'a>(&'a ByteRange);

impl fmt::Display for MbarrierName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.name {
            Some((name, 0)) => write!(f, "mbarrier {name}"),
            Some((name, offset)) => write!(f, "mbarrier {name} + {offset}"),
            None => write!(f, "an mbarrier"),
        }?;
        write!(f, " at {:#x}", self.0.address)
    }
}

fn race(f: &mut fmt::Formatter<'_>, at: &ByteRange, wrote: bool, why: Why) -> fmt::Result {
    write!(f, "{} {at}; ", if wrote { "writes" } else { "reads" })?;
    f.write_str(match why {
        Why::Unordered => {
            "nothing orders it after the access below; put a barrier, or a release and an acquire, between them"
        }
        Why::InFlight => "the asynchronous operation below uses them and was not waited for by this thread",
        Why::NoProxyFence => "the write below is of the other proxy; put fence.proxy.async between them",
        Why::ReadNotFenced => {
            "the read below is of the other proxy and may still be on its way; put fence.proxy.async after it, before what orders it"
        }
        Why::InitNotFenced => {
            "the async proxy uses the mbarrier initialised below; put fence.mbarrier_init after that"
        }
        Why::Scope => "both accesses are atomic, but one's scope does not include the other's thread; widen it",
    })
}

impl FaultKind {
    /// The text of kinds about barriers, warps and operands.
    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::DivergentWarp { came, needed } => {
                write!(f, "needs lanes {needed:#010x} together, only {came:#010x} came; let all of them reach it")
            }
            FaultKind::ExitedLanes { lanes } => {
                write!(f, "needs lanes {lanes:#010x}, which have exited; let them stay, or leave them out of the mask")
            }
            FaultKind::NotInMask { mask } => {
                write!(f, "is executed by a lane that its mask {mask:#010x} does not name; name it, or keep it out")
            }
            FaultKind::ShuffleOutsideMask { source, mask } => {
                write!(f, "reads lane {source}, which its mask {mask:#010x} does not name; name it, or read another")
            }
            FaultKind::EarlyExit { barrier, threads, left } => write!(
                f,
                "barrier {barrier} waits for {threads} threads, but only {left} of the block have not exited; let all reach it, or lower its count"
            ),
            FaultKind::BarrierCount { barrier, first, now } => {
                write!(
                    f,
                    "barrier {barrier} is used with {now} threads here and with {first} below; name the same number"
                )
            }
            FaultKind::LeakedCopy { operation } => {
                write!(f, "the block exited without waiting for this {operation}; wait for it before the end")
            }
            FaultKind::LeakedPhase { barrier, phase, pending } => write!(
                f,
                "the block exited without waiting for phase {phase} of {}, with {pending} bytes pending; wait for it before the end",
                MbarrierName(barrier)
            ),
            FaultKind::DoubleInit { barrier } => {
                write!(
                    f,
                    "initialises {}, which is live; initialise it once, or invalidate it first",
                    MbarrierName(barrier)
                )
            }
            FaultKind::NoBarrier { barrier } => {
                write!(
                    f,
                    "uses {}, which is not initialised; initialise it before, and let a barrier pass",
                    MbarrierName(barrier)
                )
            }
            FaultKind::TooManyArrivals { barrier, pending, came } => write!(
                f,
                "brings arrivals ({came}) to {}, whose phase expects {pending} more; initialise it with as many as come",
                MbarrierName(barrier)
            ),
            FaultKind::TooManyBytes { barrier, pending } => write!(
                f,
                "leaves {pending} bytes pending at {}, which counts to 1048575; spread them over phases",
                MbarrierName(barrier)
            ),
            FaultKind::BarrierInUse { barrier } => write!(
                f,
                "invalidates {}, for which a thread or a copy still waits; wait for its phase before",
                MbarrierName(barrier)
            ),
            FaultKind::WgmmaInFlight { register } => {
                write!(f, "touches register {register} of a wgmma in flight; wait for its group before")
            }
            FaultKind::NoWgmmaFence { register } => {
                write!(f, "register {register} was touched since the last wgmma.fence; put one before this wgmma")
            }
            FaultKind::BadOperand { what, found, limit } => {
                write!(f, "{what}: found {found:#x}, the limit is {limit:#x}; bring it within")
            }
            FaultKind::SwizzleBase { at, offset, span } => {
                let address = at.address;
                let period = 8 * span;
                let name = at.name.as_ref().map(|(name, offset)| format!(" ({name} + {offset})")).unwrap_or_default();
                write!(
                    f,
                    "an operand begins at {address:#x}{name}, {offset} bytes into the pattern of its {span}-byte swizzle; align the tile to {period} bytes, or state the base offset"
                )
            }
            FaultKind::ClusterBarrier { what } => f.write_str(what),
            FaultKind::Host { at, why } => match why {
                HostWhy::NotAtomic => {
                    write!(f, "accesses {at}, which the host uses meanwhile; make it atomic at sys scope")
                }
                HostWhy::NotReleased => write!(
                    f,
                    "lets the host read {at}, and nothing orders the write below before that; store what it looks at with release at sys scope, after a barrier"
                ),
                HostWhy::Open => write!(f, "writes {at}, which the host may be reading; write others, or before"),
            },
            FaultKind::Race { .. }
            | FaultKind::Uninitialised(_)
            | FaultKind::UninitialisedRegister { .. }
            | FaultKind::OutOfBounds(_)
            | FaultKind::IndexOutOfBounds { .. }
            | FaultKind::Misaligned { .. }
            | FaultKind::ReadOnly(_)
            | FaultKind::ReadOnlyPath(_)
            | FaultKind::BlockGone(_)
            | FaultKind::Deadlock { .. }
            | FaultKind::DivisionByZero
            | FaultKind::Assertion { .. }
            | FaultKind::Trap => Ok(()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} in kernel {}, seed {}", self.kind.name(), self.kernel, self.seed)?;
        writeln!(f, "at {}", self.at)?;
        write!(f, "  {}", self.kind)?;
        if let Some(other) = &self.with {
            let what = match (&self.kind, other.wrote, other.asynchronous) {
                (FaultKind::BarrierCount { .. }, _, _) => "came first",
                (FaultKind::DoubleInit { .. }, _, _) => "initialised it",
                (_, true, false) => "writes",
                (_, false, false) => "reads",
                (_, true, true) => "issued a copy that writes",
                (_, false, true) => "issued an operation that reads",
            };
            write!(f, "\nand {}\n  {what}", other.place)?;
        }
        Ok(())
    }
}
