//! The input of a device's loader: a kernel's signature, and the form of it that the device
//! executes.

use crate::ir::{Arch, Inst, Kernel, LaunchBounds, Limit, Param, StmtKind, SyncOp};
use crate::ptx;
use crate::verify::Verified;
use std::borrow::Cow;

/// A kernel that a device can load.
///
/// It has a form for each kind of device: PTX for the driver to compile, and, for kernels that were
/// recorded here, the verified kernel for the simulator.
pub trait KernelSource {
    /// The signature of the kernel.
    fn signature(&self) -> Signature;

    /// The kernel as PTX for the architecture of its signature.
    fn ptx(&self) -> Cow<'_, str>;

    /// The kernel as it was recorded; `None` where there is only PTX.
    fn verified(&self) -> Option<&Verified>;
}

/// A recorded kernel loads everywhere: its PTX goes to the driver, the kernel itself to the
/// simulator.
impl KernelSource for Verified {
    fn signature(&self) -> Signature {
        Signature::of(self.kernel())
    }

    fn ptx(&self) -> Cow<'_, str> {
        Cow::Owned(ptx::emit(self))
    }

    fn verified(&self) -> Option<&Verified> {
        Some(self)
    }
}

/// The signature of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Name of the entry point.
    pub name: String,
    /// Architecture that the code is for.
    pub arch: Arch,
    /// Threads, cluster, cooperation.
    pub launch: LaunchBounds,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Shared memory that the launch grants on top of what the code declares, bytes.
    pub dynamic_shared: u32,
    /// Whether it waits by itself for the grids before it, and may start while they still run.
    pub early: bool,
}

/// Whether a kernel has the instruction that waits for the grids before it.
fn waits_for_grids(kernel: &Kernel) -> bool {
    let mut waits = false;
    kernel.walk(&mut |stmt| waits |= matches!(stmt.op, StmtKind::Inst(Inst::Sync(SyncOp::GridWait {}))));
    waits
}

impl Signature {
    /// The signature of a recorded kernel.
    pub fn of(kernel: &Kernel) -> Signature {
        Signature {
            name: kernel.name.clone(),
            arch: kernel.arch,
            launch: kernel.launch.clone(),
            params: kernel.params.clone(),
            dynamic_shared: if kernel.shared_is_dynamic() { kernel.shared_bytes() } else { 0 },
            early: waits_for_grids(kernel),
        }
    }

    /// Offset and size of each parameter in the parameter block, and the size of the block, in
    /// bytes.
    pub fn param_spans(&self) -> (Vec<(usize, usize)>, usize) {
        let mut end = 0usize;
        let spans = self
            .params
            .iter()
            .map(|param| {
                let (bytes, align) = param.kind.layout();
                let start = end.next_multiple_of(align.max(1) as usize);
                end = start + bytes as usize;
                (start, bytes as usize)
            })
            .collect();
        (spans, end)
    }
}

/// A kernel written as PTX by hand.
#[derive(Clone, Debug)]
pub struct PtxSource {
    signature: Signature,
    text: String,
}

impl PtxSource {
    /// Text with the signature of the entry point in it that is meant. The device checks the
    /// parameters against the compiled code when it loads the kernel.
    pub fn new(signature: Signature, text: impl Into<String>) -> PtxSource {
        PtxSource { signature, text: text.into() }
    }
}

impl KernelSource for PtxSource {
    fn signature(&self) -> Signature {
        self.signature.clone()
    }

    fn ptx(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.text)
    }

    fn verified(&self) -> Option<&Verified> {
        None
    }
}

#[cfg(any(feature = "cuda", test))]
/// The number of parameters that an entry point of a PTX text declares: those of the first `.entry`
/// of that name; 0 if there is none.
pub(super) fn declared_params(ptx: &str, entry: &str) -> usize {
    let text = without_comments(ptx);
    let lists = text.split(".entry").skip(1).filter_map(|behind| {
        let list = behind.trim_start().strip_prefix(entry)?.trim_start();
        // Another name may begin with this one; an entry without parameters need not have a list.
        if !list.starts_with(['(', '{', '.']) {
            return None;
        }
        Some(list.strip_prefix('(').map_or(0, |list| {
            let declared = list.split(')').next().unwrap_or_default();
            declared.split_whitespace().filter(|word| *word == ".param").count()
        }))
    });
    lists.into_iter().next().unwrap_or(0)
}

#[cfg(any(feature = "cuda", test))]
/// A PTX text with a space in place of each comment.
fn without_comments(ptx: &str) -> String {
    let mut text = String::with_capacity(ptx.len());
    let mut rest = ptx;
    while let Some(start) = rest.find("/*").into_iter().chain(rest.find("//")).min() {
        let end = if rest[start..].starts_with("/*") { "*/" } else { "\n" };
        text.push_str(&rest[..start]);
        text.push(' ');
        rest = rest[start + 2..].split_once(end).map_or("", |(_, behind)| behind);
    }
    text.push_str(rest);
    text
}

/// The largest parameter block that kernels of any architecture have, bytes.
pub(super) fn param_limit(arch: Arch) -> u32 {
    *Limit::ParamBytes.range(arch).end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Builder, block, record};
    use crate::ir::{ParamKind, Space, Ty};
    use proptest::prelude::*;

    fn kind() -> impl Strategy<Value = ParamKind> {
        prop_oneof![
            Just(ParamKind::Value(Ty::U32)),
            Just(ParamKind::Value(Ty::U16)),
            Just(ParamKind::Value(Ty::F64)),
            Just(ParamKind::Value(Ty::Ptr(Space::Global))),
            Just(ParamKind::TensorMap),
            (1u32..40, 0u32..5).prop_map(|(bytes, align)| ParamKind::Bytes { bytes, align: 1 << align }),
        ]
    }

    #[test]
    fn the_parameters_of_an_entry_are_counted_in_its_text() {
        let text = "
            .visible .entry saxpy_all(.param .u64 x) { ret; }
            // .entry saxpy(.param .u32 lost)
            .visible .entry saxpy /* (.param .u32 lost) */ (
                .param .u32 n, // .param .u32 lost
                .param .u64 .ptr .global .align 16 x,
                .param .align 64 .b8 map[128]
            ) .maxntid 32, 1, 1 { ret; }
            .visible .entry empty { ret; }
            .visible .entry bounded .maxntid 32, 1, 1 { ret; }";
        let counts = ["saxpy", "saxpy_all", "empty", "bounded", "sax", "lost"].map(|name| declared_params(text, name));
        assert_eq!(counts, [3, 1, 0, 0, 0, 0]);
        assert_eq!(declared_params(".entry saxpy(.param .u64 x", "saxpy"), 1);
    }

    proptest! {
        #[test]
        fn the_text_of_a_kernel_declares_its_parameters(kinds in proptest::collection::vec(0u32..3, 0..12)) {
            let kernel = record("declared", Arch::Sm90a, block(32), |k: &Builder| {
                for (i, kind) in kinds.iter().enumerate() {
                    let name = format!("p{i}");
                    match kind {
                        0 => _ = k.param::<u16>(&name),
                        1 => _ = k.global::<u32>(&name),
                        _ => _ = k.tensor_map(&name),
                    }
                }
            });
            let verified = crate::verify::verify(kernel).expect("it is right");
            prop_assert_eq!(declared_params(&ptx::emit(&verified), "declared"), kinds.len());
        }

        #[test]
        fn spans_are_those_of_the_kernel(kinds in proptest::collection::vec(kind(), 0..12)) {
            let params: Vec<Param> =
                kinds.into_iter().enumerate().map(|(i, kind)| Param { name: format!("p{i}"), kind, elements: Vec::new() }).collect();
            let kernel = Kernel {
                name: "k".into(),
                arch: Arch::Sm80,
                launch: LaunchBounds { threads: [32, 1, 1], cluster: [1, 1, 1], min_blocks: None, cooperative: false },
                params,
                shared: vec![],
                vars: vec![],
                values: vec![],
                body: vec![],
                refused: vec![],
                bounds: Default::default(),
            };
            let (offsets, size) = kernel.param_offsets();
            let (spans, bytes) = Signature::of(&kernel).param_spans();
            prop_assert_eq!(bytes, size as usize);
            prop_assert_eq!(spans.iter().map(|&(start, _)| start as u32).collect::<Vec<_>>(), offsets);
            prop_assert!(spans.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
        }
    }

    #[test]
    fn a_kernel_that_waits_for_grids_may_start_early() {
        let early = |build: fn(&Builder)| Signature::of(&record("kernel", Arch::Sm90a, block(32), build)).early;
        assert!(early(|k| k.when(k.lane().eq(0), || k.grid_wait())), "also where the wait is inside a branch");
        assert!(!early(|k| k.grid_launch()));
    }
}
