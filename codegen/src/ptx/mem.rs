//! Loads, stores, atomics.

use super::writer::{Writer, bits_type, int_type, space_name};
use crate::ir::attr::{AtomOp, Attr, Eviction, LdCache, LdOrder, Prefetch, StCache, StOrder};
use crate::ir::{Addr, MemOp, Operand, Space, Ty, ValueId};

/// Writes an instruction of the family.
pub(super) fn emit_mem(w: &mut Writer<'_>, op: &MemOp) {
    match op {
        MemOp::Ld { ty, d, at, policy, order, cache, prefetch } => {
            // If the result of such a load is unused, `ptxas` loses the policy, and with it the
            // descriptor, of other accesses: an illegal instruction (docs/sim.md has the case). A
            // policy is a hint: here it is left out.
            let policy = policy.filter(|_| !matches!(order, LdOrder::Acquire(_)));
            let hints = load_hints(*cache, *prefetch, policy.is_some());
            match order {
                // It also loses what computes the branch around such a load (docs/sim.md has the
                // case). A relaxed load and a fence order as much.
                LdOrder::Acquire(scope) if !w.is_read(d) => {
                    load(w, *ty, d, *at, &order_name(&LdOrder::Relaxed(*scope)), &hints, policy);
                    w.line(format!("fence.acq_rel.{}", scope.name()));
                }
                LdOrder::Weak | LdOrder::Volatile | LdOrder::Relaxed(_) | LdOrder::Acquire(_) => {
                    load(w, *ty, d, *at, &order_name(order), &hints, policy);
                }
            }
        }
        MemOp::St { ty, at, v, policy, order, cache } => {
            let order = if *order == StOrder::Weak { String::new() } else { format!(".{}", order.text()) };
            let hint = if policy.is_some() { ".L2::cache_hint" } else { "" };
            let head = format!("st{order}.{}{}{hint}", space_name(w.space(*at)), store_hint(*cache));
            let at = w.addr(*at);
            let policy = tail(w, *policy);
            let (vector, values) = stored(w, *ty, v);
            w.line(format!("{head}{vector} {at}, {values}{policy}"));
        }
        MemOp::Atom { ty, d, at, v, op, order } => {
            let head = format!("atom.{}.{}.{}", order.text(), space_name(w.space(*at)), atomic(*op, *ty));
            let space = w.space(*at);
            let d = w.def(*d);
            let at = w.addr(*at);
            let v = w.op(*v);
            if leaves_early(space, *op, *ty) {
                let got = swaps(w, &Swap { order: &order.text(), op: *op, ty: *ty, at: &at, v: &v });
                return w.line(format!("mov.b64 {d}, {got}"));
            }
            atomic_line(w, is_loop(space, *op, *ty), &at, format!("{head} {d}, {at}, {v}"));
        }
        MemOp::Cas { ty, d, at, old, v, order } => {
            let head = format!("atom.{}.{}.cas.{}", order.text(), space_name(w.space(*at)), bits_type(*ty));
            let d = w.def(*d);
            let at = w.addr(*at);
            let old = w.op(*old);
            let v = w.op(*v);
            w.line(format!("{head} {d}, {at}, {old}, {v}"));
        }
        MemOp::Red { ty, at, v, op, order } => {
            let head = format!("red.{}.{}.{}", order.text(), space_name(w.space(*at)), atomic(*op, *ty));
            let space = w.space(*at);
            let at = w.addr(*at);
            let v = w.op(*v);
            if leaves_early(space, *op, *ty) {
                swaps(w, &Swap { order: &order.text(), op: *op, ty: *ty, at: &at, v: &v });
                return;
            }
            atomic_line(w, is_loop(space, *op, *ty), &at, format!("{head} {at}, {v}"));
        }
        MemOp::PrefetchL2 { at } => {
            let at = w.addr(*at);
            w.line(format!("prefetch.global.L2 {at}"));
        }
        MemOp::CreatePolicy { d, eviction } => {
            let kind = match eviction {
                Eviction::First => "evict_first",
                Eviction::Last => "evict_last",
                Eviction::Normal => "evict_normal",
                Eviction::Unchanged => "evict_unchanged",
            };
            w.line(format!("createpolicy.fractional.L2::{kind}.b64 {}, 1.0", w.def(*d)));
        }
    }
}

/// Whether `ptxas` makes a loop of compare-and-swap of an atomic operation, which lanes leave one
/// by one.
fn is_loop(space: Space, op: AtomOp, ty: Ty) -> bool {
    space == Space::Shared && op != AtomOp::Exch && (ty.is_float() || ty.bits() == 64)
}

/// Writes an atomic operation. `ptxas` brings the lanes that leave its loop together again, except
/// where that loop stands first in another: then it takes the lanes of what follows for complete
/// (docs/sim.md has the case). So a load stands before it whose result is unused and that, being
/// volatile, stays there.
fn atomic_line(w: &mut Writer<'_>, is_loop: bool, at: &str, line: String) {
    if is_loop {
        let nothing = w.temp(Ty::U32);
        w.line(format!("ld.volatile.shared.u32 {nothing}, {at}"));
    }
    w.line(line);
}

/// Whether that loop has a second way out: a lane leaves it without a swap where the word would
/// stay as it is. `ptxas` 13.0 forgets such lanes in some kernels, and those that swap come too
/// late for the next barrier (docs/notebook/2026-11-simulator.md has the case).
fn leaves_early(space: Space, op: AtomOp, ty: Ty) -> bool {
    is_loop(space, op, ty) && matches!(op, AtomOp::Min | AtomOp::Max)
}

/// An atomic operation that is written as a loop of compare-and-swap.
struct Swap<'a> {
    order: &'a str,
    op: AtomOp,
    ty: Ty,
    /// The address and the operand, as PTX writes them.
    at: &'a str,
    v: &'a str,
}

/// Writes the loop of compare-and-swap, whose only way out is a swap. The register has what was
/// there before.
fn swaps(w: &mut Writer<'_>, swap: &Swap<'_>) -> String {
    let &Swap { order, op, ty, at, v } = swap;
    let ([old, new, got], failed) = ([(); 3].map(|()| w.temp(ty)), w.temp(Ty::Pred));
    let head = format!("$swap_{}", &got[1..]);
    w.line(format!("ld.volatile.shared.b64 {got}, {at}"));
    w.label(&head);
    w.line(format!("mov.b64 {old}, {got}"));
    w.line(format!("{} {new}, {old}, {v}", atomic(op, ty)));
    w.line(format!("atom.{order}.shared.cas.b64 {got}, {at}, {old}, {new}"));
    w.line(format!("setp.ne.b64 {failed}, {got}, {old}"));
    w.line(format!("@{failed} bra {head}"));
    got
}

fn order_name(order: &LdOrder) -> String {
    match order {
        LdOrder::Weak => String::new(),
        LdOrder::Volatile | LdOrder::Relaxed(_) | LdOrder::Acquire(_) => format!(".{}", order.text()),
    }
}

fn load_hints(cache: LdCache, prefetch: Prefetch, policy: bool) -> String {
    let level1 = match cache {
        LdCache::Default => "",
        LdCache::Ca => ".ca",
        LdCache::Cg => ".cg",
        LdCache::Cs => ".cs",
        LdCache::Cv => ".cv",
        LdCache::Nc => ".nc",
        LdCache::NcNoAllocate => ".nc.L1::no_allocate",
        LdCache::EvictFirst => ".L1::evict_first",
        LdCache::EvictLast => ".L1::evict_last",
        LdCache::NoAllocate => ".L1::no_allocate",
    };
    let size = match prefetch {
        Prefetch::None => "",
        Prefetch::B64 => ".L2::64B",
        Prefetch::B128 => ".L2::128B",
        Prefetch::B256 => ".L2::256B",
    };
    format!("{level1}{}{size}", if policy { ".L2::cache_hint" } else { "" })
}

fn store_hint(cache: StCache) -> &'static str {
    match cache {
        StCache::Default => "",
        StCache::Wb => ".wb",
        StCache::Cg => ".cg",
        StCache::Cs => ".cs",
        StCache::Wt => ".wt",
        StCache::EvictFirst => ".L1::evict_first",
        StCache::NoAllocate => ".L1::no_allocate",
    }
}

fn tail(w: &mut Writer<'_>, policy: Option<Operand>) -> String {
    policy.map(|policy| format!(", {}", w.reg(policy))).unwrap_or_default()
}

/// A load; eight 16-bit elements come as four words and are taken apart.
fn load(w: &mut Writer<'_>, ty: Ty, d: &[ValueId], at: Addr, order: &str, hints: &str, policy: Option<Operand>) {
    let (space, address) = match (w.space(at), w.param_addr(at)) {
        (Space::Param, Some(address)) => (".param".to_string(), address),
        // An address computed in parameter space is generic.
        (Space::Param, None) => (String::new(), w.addr(at)),
        (space @ (Space::Global | Space::Shared | Space::Cluster), _) => {
            (format!(".{}", space_name(space)), w.addr(at))
        }
    };
    let head = format!("ld{order}{space}{hints}");
    let policy = tail(w, policy);
    if d.len() <= 4 {
        let vector = if d.len() == 1 { String::new() } else { format!(".v{}", d.len()) };
        let line = format!("{head}{vector}.{} {}, {address}{policy}", int_type(ty), w.defs(d));
        return w.line(line);
    }
    let words: Vec<String> = d.chunks(2).map(|_| w.temp(Ty::U32)).collect();
    w.line(format!("{head}.v{}.b32 {{{}}}, {address}{policy}", words.len(), words.join(", ")));
    for (pair, word) in d.chunks(2).zip(&words) {
        w.line(format!("mov.b32 {}, {word}", w.defs(pair)));
    }
}

/// The vector suffix with the type, and the values, of a store.
fn stored(w: &mut Writer<'_>, ty: Ty, v: &[Operand]) -> (String, String) {
    match v {
        [one] => (format!(".{}", int_type(ty)), w.op(*one)),
        _ if v.len() <= 4 => (format!(".v{}.{}", v.len(), int_type(ty)), w.list(v)),
        _ => {
            let mut words = Vec::new();
            for pair in v.chunks(2) {
                let parts = w.list(pair);
                let word = w.temp(Ty::U32);
                w.line(format!("mov.b32 {word}, {parts}"));
                words.push(word);
            }
            (format!(".v{}.b32", words.len()), format!("{{{}}}", words.join(", ")))
        }
    }
}

fn atomic(op: AtomOp, ty: Ty) -> String {
    let name = op.name();
    match (op, ty) {
        (AtomOp::Add, Ty::F16x2 | Ty::BF16x2) => format!("{name}.noftz.{}", ty.name()),
        (AtomOp::And | AtomOp::Or | AtomOp::Xor | AtomOp::Exch, _) => format!("{name}.{}", bits_type(ty)),
        (AtomOp::Add | AtomOp::Min | AtomOp::Max | AtomOp::Inc | AtomOp::Dec, _) => format!("{name}.{}", ty.name()),
    }
}
