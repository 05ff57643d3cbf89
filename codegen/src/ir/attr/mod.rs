//! The fixed choices of an instruction: fields of its variant, never strings.
//!
//! An attribute prints as a suffix of the mnemonic (`ld.acquire.gpu.u32`); a default prints as
//! nothing.

mod number;
mod order;

pub use number::{BarId, BarThreads, Lut, Pending, RegCount, Remark};
pub use order::{AtomOrder, FenceOrder, LdOrder, RedOrder, StOrder};

use super::Ty;
use std::cmp::Ordering;

/// A fixed choice of an instruction.
pub trait Attr: Sized + Clone {
    /// Legal values, default first: all of them, or samples where the attribute is a number.
    fn choices() -> Vec<Self>;

    /// The suffix without its dot; empty for a default. Numbers and names begin with a space and
    /// follow the types.
    fn text(&self) -> String;
}

macro_rules! attrs {
    ($($(#[$doc:meta])+ $Name:ident { $($(#[$vdoc:meta])+ $V:ident $text:literal,)+ })+) => { $(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $Name { $($(#[$vdoc])+ $V,)+ }

        impl $Name {
            /// Every choice, the default first.
            pub const ALL: &'static [$Name] = &[$($Name::$V),+];

            /// The suffix in the text form; empty for a default.
            pub const fn name(self) -> &'static str {
                match self { $($Name::$V => $text,)+ }
            }
        }

        impl Attr for $Name {
            fn choices() -> Vec<Self> {
                Self::ALL.to_vec()
            }

            fn text(&self) -> String {
                self.name().into()
            }
        }
    )+ };
}

attrs! {
    /// The scope of a synchronising access.
    Scope {
        /// The threads of the block.
        Cta "cta",
        /// The threads of the cluster. Needs sm_90.
        Cluster "cluster",
        /// Every thread of the device.
        Gpu "gpu",
        /// Every thread of the system, host included.
        Sys "sys",
    }
    /// Scope of an operation on a barrier in shared memory.
    BarScope {
        /// The block.
        Cta "",
        /// The cluster.
        Cluster "cluster",
        /// The cluster, for an arrival that orders only what the thread knows to be done by the
        /// async proxy (`wgmma` and bulk copies that it waited for), no access of its own. Unlike a
        /// release to the cluster it drains nothing.
        Async "async",
    }
    /// Eviction and level hints of a load. Hints never change what is read, but for `nc`.
    LdCache {
        /// The default: all levels.
        Default "",
        /// All levels.
        Ca "ca",
        /// L2 only.
        Cg "cg",
        /// Streaming: evicted first, at both levels.
        Cs "cs",
        /// Fetched again at each access.
        Cv "cv",
        /// Read-only path. The bytes must not be written by anyone while the kernel runs.
        Nc "nc",
        /// Read-only path, not kept in level one. The bytes must not be written while the kernel
        /// runs.
        NcNoAllocate "nc.no_allocate",
        /// Kept in level one with the lowest priority.
        EvictFirst "evict_first",
        /// Kept in level one with the highest priority.
        EvictLast "evict_last",
        /// Not kept in level one.
        NoAllocate "no_allocate",
    }
    /// Bytes that a global load asks L2 to fetch with it. A hint.
    Prefetch {
        /// The default of the hardware.
        None "",
        /// 64 bytes.
        B64 "l2_64b",
        /// 128 bytes.
        B128 "l2_128b",
        /// 256 bytes.
        B256 "l2_256b",
    }
    /// Eviction and level hints of a store.
    StCache {
        /// The default: write back.
        Default "",
        /// Write back, all levels.
        Wb "wb",
        /// L2 only.
        Cg "cg",
        /// Streaming: evicted first.
        Cs "cs",
        /// Write through.
        Wt "wt",
        /// Kept in level one with the lowest priority.
        EvictFirst "evict_first",
        /// Not kept in level one.
        NoAllocate "no_allocate",
    }
    /// The reuse that an L2 access policy expects of a line.
    Eviction {
        /// Evicted first: data read once.
        First "evict_first",
        /// Evicted last: data read again and again.
        Last "evict_last",
        /// The usual order.
        Normal "evict_normal",
        /// Its place is not changed.
        Unchanged "evict_unchanged",
    }
    /// A comparison. The first six are false when an operand is a NaN (`ne` too); the `u` forms are
    /// true then.
    Cmp {
        /// a = b.
        Eq "eq",
        /// a ≠ b.
        Ne "ne",
        /// a < b.
        Lt "lt",
        /// a ≤ b.
        Le "le",
        /// a > b.
        Gt "gt",
        /// a ≥ b.
        Ge "ge",
        /// a = b, or a NaN. Floats only, as all that follow.
        Equ "equ",
        /// a ≠ b, or a NaN.
        Neu "neu",
        /// a < b, or a NaN.
        Ltu "ltu",
        /// a ≤ b, or a NaN.
        Leu "leu",
        /// a > b, or a NaN.
        Gtu "gtu",
        /// a ≥ b, or a NaN.
        Geu "geu",
        /// Neither operand is a NaN.
        Num "num",
        /// An operand is a NaN.
        Nan "nan",
    }
    /// Rounding of a conversion.
    Round {
        /// The conversion is exact or has one meaning: integer to integer, or to a wider float.
        Exact "",
        /// To nearest, ties to even.
        Nearest "rn",
        /// Toward zero.
        Zero "rz",
        /// Toward minus infinity.
        Down "rm",
        /// Toward plus infinity.
        Up "rp",
    }
    /// The clamping of a conversion to the range of its result.
    Clamp {
        /// No clamping.
        No "",
        /// Integers clamp to the range of the result's type.
        Sat "sat",
    }
    /// The clamping of negative results to zero in a conversion from f32 to f16 or bf16.
    Relu {
        /// No clamping.
        No "",
        /// max(result, +0); a NaN becomes the canonical NaN.
        Yes "relu",
    }
    /// An 8-bit float.
    Fp8 {
        /// 4 exponent bits, 3 mantissa bits: largest 448, no infinity.
        E4M3 "e4m3",
        /// 5 exponent bits, 2 mantissa bits: largest 57344.
        E5M2 "e5m2",
    }
    /// The operation of an atomic instruction on memory.
    AtomOp {
        /// m + v. Integers wrap; floats round to nearest.
        Add "add",
        /// min(m, v). Integers only.
        Min "min",
        /// max(m, v). Integers only.
        Max "max",
        /// m & v. u32 and u64.
        And "and",
        /// m | v. u32 and u64.
        Or "or",
        /// m ^ v. u32 and u64.
        Xor "xor",
        /// v. u32 and u64; not for `red`.
        Exch "exch",
        /// m ≥ v ? 0 : m + 1. u32.
        Inc "inc",
        /// m = 0 or m > v ? v : m - 1. u32.
        Dec "dec",
    }
    /// The operation of `redux.sync`.
    ReduxOp {
        /// Sum, wrapping.
        Add "add",
        /// Least.
        Min "min",
        /// Greatest.
        Max "max",
        /// And of the bits. u32.
        And "and",
        /// Or of the bits. u32.
        Or "or",
        /// Exclusive or of the bits. u32.
        Xor "xor",
    }
    /// The lane that a shuffle reads.
    ShflMode {
        /// Lane `b` of the segment.
        Idx "idx",
        /// Lane − `b`.
        Up "up",
        /// Lane + `b`.
        Down "down",
        /// Lane ^ `b`.
        Bfly "bfly",
    }
    /// The question of a vote.
    VoteMode {
        /// Is the predicate true in every lane of the mask?
        All "all",
        /// Is it true in some lane?
        Any "any",
        /// Is it the same in every lane?
        Uni "uni",
    }
    /// A register that is the same for a thread as long as the kernel runs. All are `u32`.
    SpecialReg {
        /// Thread of the block, first axis.
        TidX "tid.x",
        /// Thread of the block, second axis.
        TidY "tid.y",
        /// Thread of the block, third axis.
        TidZ "tid.z",
        /// Block of the grid, first axis.
        CtaidX "ctaid.x",
        /// Block of the grid, second axis.
        CtaidY "ctaid.y",
        /// Block of the grid, third axis.
        CtaidZ "ctaid.z",
        /// Blocks of the grid, first axis.
        NctaidX "nctaid.x",
        /// Blocks of the grid, second axis.
        NctaidY "nctaid.y",
        /// Blocks of the grid, third axis.
        NctaidZ "nctaid.z",
        /// Lane of the warp, 0 to 31.
        Laneid "laneid",
        /// Rank of the block in its cluster. Needs sm_90, as all that follow but `smid`.
        ClusterCtarank "cluster_ctarank",
        /// Blocks of the cluster.
        ClusterNctarank "cluster_nctarank",
        /// Cluster of the grid, first axis.
        ClusteridX "clusterid.x",
        /// Clusters of the grid, first axis.
        NclusteridX "nclusterid.x",
        /// Multiprocessor that runs the block.
        Smid "smid",
    }
    /// A register that ticks.
    ClockReg {
        /// Cycles of the multiprocessor, low 32 bits. `u32`.
        Clock "clock",
        /// Cycles of the multiprocessor. `u64`.
        Clock64 "clock64",
        /// Nanoseconds since the epoch, the same for the whole device. `u64`.
        Globaltimer "globaltimer",
    }
    /// The accesses that a proxy fence orders.
    ProxyFence {
        /// Every space.
        All "",
        /// Global memory.
        Global "global",
        /// The block's shared memory.
        Shared "shared::cta",
        /// Shared memory of the cluster.
        Cluster "shared::cluster",
    }
    /// Bytes of one `cp.async`.
    CpBytes {
        /// 16 bytes.
        B16 "16",
        /// 8 bytes.
        B8 "8",
        /// 4 bytes.
        B4 "4",
    }
    /// Cache level of a `cp.async`.
    CpCache {
        /// L2 only; 16 bytes only.
        Cg "cg",
        /// All levels.
        Ca "ca",
    }
    /// The event that a wait for bulk groups waits for.
    BulkDone {
        /// The group's writes are made, and visible to the thread.
        Full "",
        /// The group's sources have been read: shared memory may be reused.
        Read "read",
    }
    /// Number of 8×8 matrices of 16-bit elements.
    Matrices {
        /// A single matrix.
        X1 "x1",
        /// Two.
        X2 "x2",
        /// Four.
        X4 "x4",
    }
    /// The transposition of each 8×8 matrix as it is moved.
    Trans {
        /// Not transposed.
        No "",
        /// Transposed.
        Yes "trans",
    }
    /// Sign of an operand of `wgmma`. Floats only.
    Sign {
        /// Not negated.
        Plus "",
        /// Negated.
        Minus "neg",
    }
    /// Major-ness of an operand of `wgmma` in shared memory.
    Major {
        /// K is contiguous. The only choice for 8-bit types and tf32.
        K "k",
        /// M (of A) or N (of B) is contiguous: `bf16` and `f16` only.
        Mn "mn",
    }
    /// Order of an arrival at the cluster barrier.
    ClusterArriveOrder {
        /// Earlier writes are seen by those that wait with acquire.
        Release "release",
        /// No order.
        Relaxed "relaxed",
    }
    /// Direction of `setmaxnreg`.
    RegChange {
        /// Ask for more; blocks until the pool has them.
        Inc "inc",
        /// Give back to the pool.
        Dec "dec",
    }
    /// The effect of arrivals by `cp.async.mbarrier.arrive` on the barrier's expected count.
    NoInc {
        /// The pending count is raised by one first, so that the arrival is neutral.
        No "",
        /// The arrival counts.
        Yes "noinc",
    }
}

impl Cmp {
    /// Whether the comparison is for floating-point numbers only.
    pub const fn float_only(self) -> bool {
        match self {
            Cmp::Eq | Cmp::Ne | Cmp::Lt | Cmp::Le | Cmp::Gt | Cmp::Ge => false,
            Cmp::Equ | Cmp::Neu | Cmp::Ltu | Cmp::Leu | Cmp::Gtu | Cmp::Geu | Cmp::Num | Cmp::Nan => true,
        }
    }

    /// Whether the comparison holds of operands in an order; `None`: one of them is not a number.
    ///
    /// ```
    /// use std::cmp::Ordering;
    /// use tilewright_codegen::ir::attr::Cmp;
    /// assert!(Cmp::Le.holds(Some(Ordering::Equal)) && !Cmp::Le.holds(None) && Cmp::Leu.holds(None));
    /// ```
    pub fn holds(self, order: Option<Ordering>) -> bool {
        let Some(order) = order else { return self.float_only() && self != Cmp::Num };
        match self {
            Cmp::Eq | Cmp::Equ => order.is_eq(),
            Cmp::Ne | Cmp::Neu => order.is_ne(),
            Cmp::Lt | Cmp::Ltu => order.is_lt(),
            Cmp::Le | Cmp::Leu => order.is_le(),
            Cmp::Gt | Cmp::Gtu => order.is_gt(),
            Cmp::Ge | Cmp::Geu => order.is_ge(),
            Cmp::Num => true,
            Cmp::Nan => false,
        }
    }
}

impl AtomOp {
    /// Whether an asynchronous reduction has the operation for elements of the type: in global
    /// memory, or in the cluster's shared memory.
    pub const fn reduces(self, ty: Ty, cluster: bool) -> bool {
        match self {
            AtomOp::Add => {
                matches!(ty, Ty::U32 | Ty::S32 | Ty::U64)
                    || !cluster && matches!(ty, Ty::F16 | Ty::BF16 | Ty::F32 | Ty::F64)
            }
            AtomOp::Min | AtomOp::Max => {
                matches!(ty, Ty::U32 | Ty::S32) || !cluster && matches!(ty, Ty::U64 | Ty::S64 | Ty::F16 | Ty::BF16)
            }
            AtomOp::And | AtomOp::Or | AtomOp::Xor => matches!(ty, Ty::U32) || !cluster && matches!(ty, Ty::U64),
            AtomOp::Inc | AtomOp::Dec => matches!(ty, Ty::U32),
            AtomOp::Exch => false,
        }
    }
}

impl CpBytes {
    /// The number of bytes.
    pub const fn count(self) -> u32 {
        match self {
            CpBytes::B16 => 16,
            CpBytes::B8 => 8,
            CpBytes::B4 => 4,
        }
    }
}

impl Matrices {
    /// The number of matrices, which is the number of registers a lane holds.
    pub const fn count(self) -> u32 {
        match self {
            Matrices::X1 => 1,
            Matrices::X2 => 2,
            Matrices::X4 => 4,
        }
    }
}
