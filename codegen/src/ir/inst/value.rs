//! Sources of values: parameters, special registers, addresses, mutable registers.

use super::*;
use crate::ir::attr::{ClockReg, SpecialReg};
use crate::ir::{ParamId, SharedId};

family! {
    /// Sources of values.
    "value" ValueOp {
        /// d = the scalar or pointer parameter.
        Param "param" <ty: Data> (d: W ty) { param: ParamId } Sm80 Pure;
        /// d = the address of a parameter that is passed as bytes, or as a tensor map.
        ParamPtr "param_ptr" (d: W ToParam) { param: ParamId } Sm80 Pure;
        /// d = the address of the allocation in the block's shared memory.
        Shared "shared" (d: W ToShared) { alloc: SharedId } Sm80 Pure;
        /// d = the register's value for this thread.
        Special "special" (d: W U32) { reg: SpecialReg } Sm80 Pure;
        /// d = the value of a counter when it is read. `ty` is the counter's type.
        Clock "clock" <ty: Raw> (d: W ty) { reg: ClockReg } Sm80;
        /// d = p + bytes, wrapping in the width of the space; `ty` is the pointer's type.
        PtrAdd "ptr_add" <ty: Ptr, from: Wide> (d: W ty, p: R ty, bytes: R from) Sm80 Pure;
        /// d = the address as an unsigned integer (`ty`) of the width of the space. `from` is the
        /// pointer's type.
        PtrBits "ptr_bits" <ty: Raw, from: Ptr> (d: W ty, p: R from) Sm80 Pure;
        /// d = the integer (`from`, of the width of the space) as an address.
        PtrFrom "ptr_from" <ty: Ptr, from: Raw> (d: W ty, bits: R from) Sm80 Pure;
        /// d = the address, in the shared memory of the cluster, of the byte at `p` of the block
        /// with that rank: every block of a cluster has the same layout. A rank beyond the cluster
        /// is a fault.
        MapA "mapa" (d: W ToCluster, p: R ToShared, rank: R U32) Sm90 Pure;
        /// d = the register's value now.
        Get "get" <ty: Any> (d: W ty, r: RegR ty) Sm80;
        /// The register's value is a from now on.
        Set "set" <ty: Any> (r: RegW ty, a: R ty) Sm80;
    }
}
