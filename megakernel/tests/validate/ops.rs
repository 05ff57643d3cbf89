//! Rules on ops and regions: operands, declarations, bounds, who may write what.

use insta::assert_snapshot;
use tilewright_layout::DType;
use tilewright_megakernel::ops::{
    Copy, GroupShape, KeyOutput, Linear, LinearInput, LinearOutput, Projection, Qkv, Rotation, RowCells,
};
use tilewright_megakernel::ops::{Footprint, OperandError, Operands, TaskOp};
use tilewright_megakernel::program::{BufferId, BufferKind, Op, Program, Region, Source, Span, Task, TaskId};
use tilewright_megakernel::vm::reference::{Context, TaskFault};

use crate::layered::Shape;
use crate::twins::{
    CELL, H, OUT, W, X, Y, add, among, assert_valid, changed, cols, copy, linear, only, set_op, text, valid,
};

#[test]
fn buffers_of_ops_and_regions_exist() {
    let missing = |p: &mut Program| {
        let Some(op) = p.tasks[3].op.get_mut::<Copy>() else { panic!("the store is a copy") };
        op.src = cols(BufferId(9), 0, 8);
        p.tasks[3].reads = vec![op.src];
    };
    assert_snapshot!(among("MissingBuffer", missing), @r#"task t3 `store`: a read of missing buffer b9, the program has 6 buffers; add it or name another"#);
    assert_snapshot!(among("Operand", missing), @r#"task t3 `store`: op `copy`: operand `src` names missing buffer b9; the program has 6 buffers"#);
}

/// H4: n_off = 1000, an empty tile, K that is not the weight's K.
#[test]
fn h4_operands_must_stand() {
    let tile = |lo, hi| {
        move |p: &mut Program| {
            p.tasks[0].op = linear(lo, hi);
        }
    };
    assert_snapshot!(only("Operand", tile(1000, 1004)), @r#"task t0 `left`: op `linear`: `cols` is 1000:1004, it must be a non-empty part of 0:8"#);
    assert_snapshot!(only("Operand", tile(0, 0)), @r#"task t0 `left`: op `linear`: `cols` is 0:0, it must be a non-empty part of 0:8"#);
    assert_snapshot!(among("Operand", |p| p.buffers[W.index()].shape = vec![8, 4]), @r#"
    task t0 `left`: op `linear`: operand `x` (b0) has extent 8 in dimension 1, the op wants 4
    task t1 `right`: op `linear`: operand `x` (b0) has extent 8 in dimension 1, the op wants 4
    "#);
    assert_snapshot!(among("Operand", |p| p.buffers[X.index()].dtype = DType::I32), @r#"
    task t0 `left`: op `linear`: operand `x` (b0) is i32, the op wants f32, f16 or bf16
    task t1 `right`: op `linear`: operand `x` (b0) is i32, the op wants f32, f16 or bf16
    task t2 `sum`: op `add`: operand `b` (b0) is i32, the op wants f32, f16 or bf16
    "#);
}

#[test]
fn declared_regions_are_the_footprint() {
    assert_snapshot!(among("RegionsDiffer", |p| p.tasks[3].reads = vec![cols(Y, 0, 4)]), @r#"task t3 `store`: declared reads differ from the footprint of op `copy`: 1 (b3[0:1, 0:8]) missing, 1 (b3[0:1, 0:4]) surplus; declare exactly the footprint"#);
    assert_snapshot!(only("RegionsDiffer", |p| p.tasks[3].reads.push(cols(X, 0, 1))), @r#"task t3 `store`: declared reads differ from the footprint of op `copy`: 0 missing, 1 (b0[0:1, 0:1]) surplus; declare exactly the footprint"#);
    // A repetition says the same.
    let mut twice = valid();
    twice.tasks[3].reads.push(cols(Y, 0, 8));
    assert_valid(&twice);
}

#[test]
fn regions_have_their_buffers_rank_and_hold_something_inside_of_it() {
    let declare = |region: Region| move |p: &mut Program| p.tasks[3].reads = vec![region];
    assert_snapshot!(among("RegionRank", declare(Region::new(Y, &[Span::all(8)]))), @r#"task t3 `store`: the read b3[0:8] has rank 1, the buffer has rank 2; index every dimension"#);
    assert_snapshot!(among("EmptyRegion", declare(cols(Y, 4, 4))), @r#"task t3 `store`: the read b3[0:1, 4:4] is empty in dimension 1, a region holds at least one element; drop it"#);
    assert_snapshot!(among("EmptyRegion", declare(cols(Y, 5, 4))), @r#"task t3 `store`: the read b3[0:1, 5:4] is empty in dimension 1, a region holds at least one element; drop it"#);
    assert_snapshot!(among("OutOfBounds", declare(cols(Y, 0, 9))), @r#"task t3 `store`: the read b3[0:1, 0:9] ends beyond extent 8 of dimension 1; keep it inside the buffer"#);
    assert_snapshot!(among("OutOfBounds", declare(cols(Y, 0, usize::MAX))), @r#"task t3 `store`: the read b3[0:1, 0:18446744073709551615] ends beyond extent 8 of dimension 1; keep it inside the buffer"#);
}

/// H2 and H2b: weights, inputs and cells are never written, ordered or not.
#[test]
fn h2_read_only_buffers_are_not_written() {
    let mut weights = valid();
    weights.buffers[W.index()].shape = vec![8, 8];
    assert_snapshot!(among("ReadOnly", |p| {
        let row = |buffer, at| Region::new(buffer, &[Span::one(at), Span::all(8)]);
        set_op(p, 3, copy(row(Y, 0), row(W, 2)));
    }), @r#"task t3 `store`: the write b1[2:3, 0:8] goes to a buffer of kind weight, which tasks only read; write to an activation"#);
    assert_snapshot!(among("ReadOnly", |p| set_op(p, 3, copy(cols(Y, 0, 8), cols(X, 0, 8)))), @r#"task t3 `store`: the write b0[0:1, 0:8] goes to a buffer of kind input, which tasks only read; write to an activation"#);
    assert_snapshot!(among("ReadOnly", |p| set_op(p, 3, copy(cols(Y, 0, 8), cols(CELL, 0, 8)))), @r#"task t3 `store`: the write b5[0:1, 0:8] goes to a buffer of kind cell, which tasks only read; write to an activation"#);
}

#[test]
fn an_op_updates_in_place_only_where_it_goes_element_by_element() {
    let mut in_place = valid();
    let target = in_place.buffers[OUT.index()].id;
    set_op(&mut in_place, 2, add(cols(H, 0, 8), cols(H, 0, 8), cols(H, 0, 8)));
    set_op(&mut in_place, 3, copy(cols(H, 0, 8), cols(target, 0, 8)));
    assert_valid(&in_place);
    // One column further, the copy would read what it has just written.
    let shifted = |p: &mut Program| set_op(p, 2, add(cols(H, 0, 4), cols(X, 0, 4), cols(H, 2, 6)));
    assert_snapshot!(among("SelfOverlap", shifted), @r#"task t2 `sum`: the read b2[0:1, 0:4] and the write b2[0:1, 2:6] overlap within one task, their order is not defined; use separate buffers, or exactly the region that the op may update in place"#);
}

/// A program of one linear layer whose results share a buffer where `best` says so.
fn logits(best: BufferId) -> Program {
    let mut p = valid();
    let value = p.add_buffer("value", BufferKind::Activation, DType::F32, &[1, 8]);
    let index = p.add_buffer("index", BufferKind::Activation, DType::I32, &[1, 8]);
    let best_value = if best == OUT { OUT } else { value };
    let output = LinearOutput::Logits { soft_cap: None, out: OUT, shard: None, best_value, best_index: index, tile: 3 };
    let input = LinearInput::Plain { x: X };
    let op = Linear { input, weight: W, bias: None, rows: Span::all(1), cols: Span::all(8), output };
    set_op(&mut p, 3, Op::from(op));
    p
}

#[test]
fn the_results_of_an_op_do_not_overlap() {
    assert_valid(&logits(H));
    let report = tilewright_megakernel::validate::validate(&logits(OUT));
    assert_snapshot!(text(&report, "SelfOverlap"), @r#"task t3 `store`: the writes b4[0:1, 3:4] and b4[0:1, 0:8] overlap within one task, their order is not defined; use separate buffers"#);
}

/// A residual may be updated in place, tile by tile; nothing else that a linear layer reads.
#[test]
fn a_linear_layer_updates_its_residual_and_nothing_else() {
    let with = |p: &mut Program, weight: BufferId| {
        let square = p.add_buffer("square", BufferKind::Activation, DType::F32, &[1, 1]);
        let one = p.add_buffer("one", BufferKind::Activation, DType::F32, &[1, 1]);
        let weight = if weight == W { one } else { square };
        for buffer in [square, one] {
            let fill = copy(cols(X, 0, 1), cols(buffer, 0, 1));
            p.add_task("fill", fill, vec![], vec![]).unwrap();
        }
        let output = LinearOutput::Add { residual: square, out: square };
        let input = LinearInput::Plain { x: one };
        let op = Linear { input, weight, bias: None, rows: Span::all(1), cols: Span::all(1), output };
        p.add_task("update", Op::from(op), vec![], vec![]).unwrap();
        p.queues.as_mut().unwrap()[0].extend([TaskId(4), TaskId(5), TaskId(6)]);
    };
    let mut residual = valid();
    with(&mut residual, W);
    assert_valid(&residual);
    let report = changed(|p| with(p, H));
    assert_snapshot!(text(&report, "SelfOverlap"), @r#"task t6 `update`: the read b6[0:1, 0:1] and the write b6[0:1, 0:1] overlap within one task, their order is not defined; use separate buffers, or exactly the region that the op may update in place"#);
}

/// A tile of `qkv` over 2^40 heads: its footprint is refused before it is computed.
#[test]
fn a_footprint_longer_than_what_is_declared_is_not_computed() {
    let heads = 1usize << 40;
    let report = changed(|p| {
        let mut buffer = |name: &str, kind, dtype, shape: &[usize]| {
            let id = p.add_buffer(name, kind, dtype, shape);
            p.buffers[id.index()].source = (kind == BufferKind::Weight).then(|| Source::Tensor(name.to_owned()));
            id
        };
        let pool = [1, 1, 1, 2];
        let q = buffer("q", BufferKind::Activation, DType::BF16, &[1, heads, 2]);
        let mut weight = |name, shape: &[usize]| Projection {
            weight: buffer(name, BufferKind::Weight, DType::BF16, shape),
            bias: None,
        };
        let wq = weight("wq", &[2 * heads, 8]);
        let wk = weight("wk", &[2, 8]);
        let wv = weight("wv", &[2, 8]);
        let inv_freq = weight("inv_freq", &[1]).weight;
        p.buffers[inv_freq.index()].dtype = DType::F32;
        let k_pool = p.add_buffer("k", BufferKind::KvPool, DType::BF16, &pool);
        let v_pool = p.add_buffer("v", BufferKind::KvPool, DType::BF16, &pool);
        let position = p.add_buffer("position", BufferKind::Cell, DType::I32, &[1]);
        let page_table = p.add_buffer("pages", BufferKind::Cell, DType::I32, &[1, 1]);
        let strips = Span::all(GroupShape { group: heads, head_dim: 2 }.strips());
        let op = Op::from(Qkv {
            input: LinearInput::Plain { x: X },
            wq,
            wk,
            wv,
            kv_head: 0,
            strips,
            rows: Span::all(1),
            q,
            k: KeyOutput::RopeAppend { rope: Rotation { inv_freq, scale: 1.0 }, pool: k_pool },
            v_pool,
            at: RowCells { position, page_table },
        });
        let empty = Task { op, reads: vec![], writes: vec![], ..p.tasks[3].clone() };
        p.tasks[3] = empty;
    });
    assert_snapshot!(text(&report, "WritesUndeclared"), @r#"task t3 `store`: 0 declared writes, op `qkv` has at least 1099511627778; declare exactly the footprint"#);
}

/// H6: what a task may touch of a pool is bounded by the pool; positions are the host's to check
/// before the step.
#[test]
fn h6_pool_regions_stay_in_the_pool() {
    let mut p = Shape::small(4).program(true, false);
    assert_valid(&p);
    let pool = p.buffer_named("layers.0.k_pool").unwrap().id;
    let writer = p.tasks.iter().position(|t| t.writes.iter().any(|r| r.buffer == pool)).unwrap();
    let region = p.tasks[writer].writes.iter_mut().find(|r| r.buffer == pool).unwrap();
    let mut spans = region.spans().to_vec();
    spans[1].hi += 1;
    *region = Region::new(pool, &spans);
    let report = tilewright_megakernel::validate::validate(&p);
    assert!(report.has("OutOfBounds") && report.has("RegionsDiffer"), "{report}");
}

/// An op of this test that is not registered.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Stranger(Region);

impl TaskOp for Stranger {
    fn name() -> &'static str {
        "stranger"
    }

    fn footprint(&self, _: &Operands) -> Result<Footprint, OperandError> {
        Ok(Footprint::new(vec![cols(Y, 0, 8)], vec![self.0]))
    }

    fn oracle(&self, _: &Context) -> Result<(), TaskFault> {
        Ok(())
    }
}

#[test]
fn ops_are_registered() {
    assert_snapshot!(only("Unregistered", |p| set_op(p, 3, Op::from(Stranger(cols(OUT, 0, 8))))), @r#"task t3 `store`: no op `stranger` of this kind is registered, an op is registered under its name; call `ops::register`"#);
}
