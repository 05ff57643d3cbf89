//! Errors of a kernel: kind, place and text are separate, and the text shows the kernel's own
//! instruction.

use crate::ir::{Arch, Kernel, Limit, Regs, Space, Src, StmtId, Ty, ValueId, text};
use core::fmt;
use core::mem::discriminant;

/// The kind of error. Its text has the object, the value, the bound, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// A number of the launch or of the kernel's resources is not legal on the target.
    #[error("{} is {found}: {target} allows {}", limit.noun(), span(*limit, *target))]
    BeyondLimit {
        /// The limit.
        limit: Limit,
        /// The number that the kernel has.
        found: u32,
        /// The target.
        target: Arch,
    },
    /// The target does not have the instruction.
    #[error("{inst} is not on {target}: it needs {needs}; record another instruction for this target")]
    Unsupported {
        /// The instruction's mnemonic, with what about it is special.
        inst: String,
        /// The target.
        target: Arch,
        /// The architectures that have it.
        needs: &'static str,
    },
    /// A type argument that the instruction does not accept.
    #[error("type {found} is not legal here: the instruction takes {expected}")]
    IllegalType {
        /// The type.
        found: Ty,
        /// The accepted types.
        expected: String,
    },
    /// An operand of another type than the row says.
    #[error("operand `{operand}` is of type {found}: the instruction takes {expected}")]
    WrongType {
        /// The operand's name in the row.
        operand: &'static str,
        /// Its type.
        found: Ty,
        /// The type that belongs there.
        expected: Ty,
    },
    /// An address in a space that the instruction does not access.
    #[error("address `{operand}` is in {found}: the instruction accesses {expected}")]
    WrongSpace {
        /// The operand's name in the row.
        operand: &'static str,
        /// The type of the address.
        found: Ty,
        /// The spaces.
        expected: String,
    },
    /// A value that is read where it is not visible.
    #[error("value {value} {}", not_visible(*recorded))]
    NotVisible {
        /// The value.
        value: ValueId,
        /// The line of Rust that recorded it; `None` if no statement writes it.
        recorded: Option<Src>,
    },
    /// Two parameters of one name.
    #[error(
        "parameter `{name}` is declared twice: ask for it once and keep the value, or give the second another name"
    )]
    SameParam {
        /// The name.
        name: String,
    },
    /// A value that is written twice.
    #[error("value {value} is written a second time: a value has one writer; use a register")]
    WrittenTwice {
        /// The value.
        value: ValueId,
    },
    /// Two statements with the same number.
    #[error("statement {id} exists twice: give the copy a number of its own")]
    SameNumber {
        /// The number.
        id: StmtId,
    },
    /// A kernel whose name is not a valid entry point.
    #[error("name `{name}` cannot name an entry point: use letters, digits and underscores, a letter first")]
    IllegalName {
        /// The name.
        name: String,
    },
    /// An allocation in shared memory that is not placed as it says, or on another.
    #[error(
        "allocation `{name}` at byte {offset} is misplaced: align it to a power of two up to 1024, after the one before"
    )]
    Misplaced {
        /// The allocation's name.
        name: String,
        /// Its byte offset.
        offset: u32,
    },
    /// A name that the kernel does not have.
    #[error("{what} {name} does not exist, or is of another kind")]
    Unknown {
        /// Noun.
        what: &'static str,
        /// Its spelling.
        name: String,
    },
    /// A parameter of a kind that cannot be passed.
    #[error(
        "parameter `{name}` cannot be passed: pass a number of at least 8 bits, a global pointer, a structure aligned to at most 16 bytes, or a tensor map"
    )]
    IllegalParam {
        /// The parameter's name.
        name: String,
    },
    /// A run of registers past the end of its array.
    #[error("registers {regs} lie past the end of an array of {len}: shorten the run")]
    RegistersOutOfRange {
        /// The run.
        regs: Regs,
        /// Length of the array.
        len: u32,
    },
    /// A list of operands or registers of the wrong length.
    #[error("operand `{operand}` has {found} registers: {what} takes {expected}")]
    WrongCount {
        /// The operand's name in the row.
        operand: &'static str,
        /// The quantity that determines the count.
        what: String,
        /// The number found.
        found: u32,
        /// The expected number.
        expected: u32,
    },
    /// A vector that no memory instruction has.
    #[error(
        "a vector of {count} × {ty} cannot be accessed at once: 1, 2, 4 or 8 elements, at most 16 bytes, 8-bit elements at most 4"
    )]
    VectorShape {
        /// Elements.
        count: u32,
        /// Their type.
        ty: Ty,
    },
    /// A combination of attributes, or of an attribute and a type, that does not exist.
    #[error("{what}")]
    IllegalChoice {
        /// The conflict, and the permitted combination.
        what: &'static str,
    },
    /// An address that is known to be misaligned.
    #[error("address is {offset} bytes into shared memory: an access of {bytes} bytes needs a multiple of {bytes}")]
    Misaligned {
        /// Byte offset.
        offset: i64,
        /// Bytes accessed, which the offset should be a multiple of.
        bytes: u32,
    },
    /// An operand of `wgmma` that is known to begin past the first row of its swizzle's pattern.
    #[error(
        "operand `{operand}` begins {offset} bytes into the pattern of its {span}-byte swizzle, which starts at multiples of {period}: align the tile to {period} bytes, or state the base offset"
    )]
    SwizzleBase {
        /// The operand's name in the row.
        operand: &'static str,
        /// Bytes past a multiple of the period.
        offset: u32,
        /// Bytes of a row.
        span: u32,
        /// Bytes after which the pattern repeats.
        period: u32,
    },
    /// An access that is known to lie outside its allocation.
    #[error(
        "access to bytes {start}..{end} of `{name}`, which has {bytes}: shorten the access or enlarge the allocation"
    )]
    OutOfBounds {
        /// The allocation's name.
        name: String,
        /// First byte, relative to the allocation.
        start: i64,
        /// Byte past the last.
        end: i64,
        /// Size of the allocation.
        bytes: u32,
    },
    /// An operand that must be a constant.
    #[error("operand `{operand}` must be a constant{what}")]
    NotConstant {
        /// The operand's name in the row.
        operand: &'static str,
        /// More about it.
        what: &'static str,
    },
    /// An instruction for threads that run together, where they may not.
    #[error(
        "{inst} stands where threads of one {group} may part: {reason}; move it out of the branch or make the condition the same for the {group}"
    )]
    Divergent {
        /// The instruction's mnemonic.
        inst: &'static str,
        /// The group of threads that must run together.
        group: &'static str,
        /// Why they may not.
        reason: String,
    },
    /// An instruction of whole warps in a block whose last warp is a partial one.
    #[error("{inst} needs whole warps, and the block has {threads} threads: launch a multiple of 32")]
    PartialWarp {
        /// The instruction's mnemonic.
        inst: &'static str,
        /// Threads of the block.
        threads: u32,
    },
    /// An mbarrier that is never initialised.
    #[error("mbarrier `{name}` is used and never initialised: one thread must init it, and a barrier must follow")]
    NeverInitialised {
        /// The allocation's name.
        name: String,
    },
    /// Memory of mbarriers accessed as data, or data as an mbarrier.
    #[error("`{name}` holds {holds}: {remedy}")]
    WrongKind {
        /// The allocation's name.
        name: String,
        /// The contents.
        holds: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// A `break` that is in no loop.
    #[error("break stands in no loop: remove it, or end the thread with exit")]
    BreakOutsideLoop,
    /// Registers that a `wgmma` reads or writes without a fence after they were touched.
    #[error("registers {regs} were touched since the last wgmma.fence: put a wgmma.fence before this wgmma")]
    NotFenced {
        /// The registers, or the values.
        regs: String,
    },
    /// Registers touched while a `wgmma` may still write them.
    #[error(
        "registers {regs} belong to a wgmma in flight: commit its group and wait for it first, else the compiler serialises"
    )]
    InFlight {
        /// The registers.
        regs: Regs,
    },
    /// A kernel that ends with asynchronous work on registers.
    #[error("the kernel ends while wgmma groups are in flight: commit and wait for 0 pending before the end")]
    EndsInFlight,
    /// A refusal of a library while it recorded; see
    /// [`Builder::refuse`](crate::build::Builder::refuse).
    #[error("{what}")]
    Refused {
        /// The library's error: noun, value, bound, remedy.
        what: String,
    },
    /// `setmaxnreg` without registers stated at entry, or in excess of the multiprocessor's.
    #[error("setmaxnreg needs the registers at entry: state min_blocks in the launch")]
    RegistersNotStated,
}

/// Why a value that a line of Rust records is not visible.
fn not_visible(recorded: Option<Src>) -> String {
    let Some(src) = recorded else { return "is read, and no statement writes it: write it before".into() };
    format!(
        "(recorded at {}:{}) is used outside the loop or branch that records it: keep it in a register (`k.var`), or carry it through the loop (`k.carry`)",
        src.file(),
        src.line()
    )
}

fn span(limit: Limit, target: Arch) -> String {
    let range = limit.range(target);
    let step = limit.step();
    let unit = if limit.unit().is_empty() { String::new() } else { format!(" {}", limit.unit()) };
    let multiple = if step > 1 { format!(", a multiple of {step}") } else { String::new() };
    format!("{} to {}{unit}{multiple}", range.start(), range.end())
}

/// The spaces, for an error's text.
pub(super) fn spaces(list: &[Space]) -> String {
    list.iter().map(|s| s.name()).collect::<Vec<_>>().join(" or ")
}

/// An error, at a statement or of the kernel as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// The kind of error.
    pub kind: ErrorKind,
    /// The statement; `None` if it is the kernel as a whole.
    pub at: Option<StmtId>,
    /// The statement's text.
    pub inst: String,
    /// The line of Rust that recorded it.
    pub src: Option<Src>,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(id), Some(src)) = (self.at, self.src) {
            write!(f, "{}:{}: {id} `{}`: ", src.file(), src.line(), self.inst)?;
        }
        self.kind.fmt(f)
    }
}

/// All errors of a kernel. Prints the kernel with each error under its line.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifyErrors {
    /// The kernel.
    pub kernel: Box<Kernel>,
    /// The errors, those of the kernel as a whole first, then in the order of the text.
    pub errors: Vec<VerifyError>,
}

impl VerifyErrors {
    /// The kinds of the errors, in order.
    pub fn kinds(&self) -> impl Iterator<Item = &ErrorKind> {
        self.errors.iter().map(|error| &error.kind)
    }
}

impl std::error::Error for VerifyErrors {}

impl VerifyErrors {
    /// Errors of one kind at statements that one line recorded: the first, and how many there are.
    fn by_line(&self) -> Vec<(&VerifyError, usize)> {
        let mut groups: Vec<(&VerifyError, usize)> = Vec::new();
        for error in &self.errors {
            let same = |first: &VerifyError| {
                error.src.is_some() && first.src == error.src && discriminant(&first.kind) == discriminant(&error.kind)
            };
            match groups.iter_mut().find(|(first, _)| same(first)) {
                Some((_, count)) => *count += 1,
                None => groups.push((error, 1)),
            }
        }
        groups
    }
}

impl fmt::Display for VerifyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.by_line();
        let count = groups.len();
        writeln!(f, "kernel `{}`: {count} error{}", self.kernel.name, if count == 1 { "" } else { "s" })?;
        for (error, _) in groups.iter().filter(|(e, _)| e.at.is_none()) {
            writeln!(f, "  ^ error: {}", error.kind)?;
        }
        let mut shown = String::new();
        text::write(&self.kernel, &mut shown, &mut |id, out| {
            for (error, count) in groups.iter().filter(|(e, _)| e.at == Some(id)) {
                write!(out, "  ^ error: {}", error.kind)?;
                if let Some(src) = error.src {
                    write!(out, " ({}:{}", src.file(), src.line())?;
                    if let Some(caller) = self.kernel.caller_of(id) {
                        write!(out, ", called at {}:{}", caller.file(), caller.line())?;
                    }
                    if *count > 1 {
                        write!(out, "; so are {} more statements of this line", count - 1)?;
                    }
                    write!(out, ")")?;
                }
                writeln!(out)?;
            }
            Ok(())
        })?;
        f.write_str(&shown)
    }
}
