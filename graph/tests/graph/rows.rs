//! Graphs of rows of blocks: refusals of their check, and the interpreter's errors for inputs that
//! do not fit.

use tilewright_graph::Graph;
use tilewright_graph::dim::{Dim, InnerShape, ModelShape};
use tilewright_graph::graph::{Parts, ValueId};
use tilewright_graph::interpret::{BlockInputs, Interpreter};
use tilewright_graph::op::Op;
use tilewright_graph::rows::{
    Elementwise, FieldId, InnerAxis, Memory, Reduce, Reduction, RowOp, Source, StateId, Unary,
};

/// Scores of a field by its sum, and what is wrong with one more op.
fn refused(op: Op) -> String {
    parts().push(op).expect_err("an op that does not fit").to_string()
}

/// `v0` the query, `v1` a field, `v2` its sum.
fn parts() -> Parts {
    let row = InnerShape([Dim::ONE, Dim::HEAD_DIM]);
    let memory = Memory { fields: vec![row], states: vec![InnerShape::SCORE], ..Memory::default() };
    let mut parts = Parts { name: "rows".into(), memory, ..Parts::default() };
    let reduction = Reduction { reduce: Reduce::Sum, axis: InnerAxis::D1, every: None };
    for op in [
        Op::Load { from: Source::Query },
        Op::Load { from: Source::Field(FieldId(0)) },
        Op::Reduce { x: ValueId(1), reduction },
    ] {
        parts.push(op).expect("an op that fits");
    }
    parts
}

#[test]
fn ops_that_do_not_fit_say_what_and_why() {
    let state = Source::State(StateId(0));
    let all = [
        Op::Load { from: Source::Field(FieldId(1)) },
        Op::Elementwise { x: ValueId(0), y: Some(ValueId(1)), function: Elementwise::Unary(Unary::Abs) },
        Op::OverBlocks { x: ValueId(0), over: RowOp::Reduce(Reduce::Max) },
        Op::Select { x: ValueId(1) },
        Op::Store { x: ValueId(0), to: state },
        Op::Store { x: ValueId(2), to: Source::Query },
        Op::Store { x: ValueId(2), to: Source::Field(FieldId(0)) },
    ];
    insta::assert_snapshot!(all.map(refused).join("\n"), @r"
    from is Field(FieldId(1)), which is not declared; the graph declares 2
    `y` is given; it must be given for functions of two operands, and for no other
    operand `x` is f32[rows, d0=G, d1=D]; it must have a row for each candidate block
    operand `x` is f32[pool, d0 1, d1=D]; it must have a row for each candidate block
    operand `x` is f32[rows, d0=G, d1=D]; it must have a row for each block
    `to` is query; it must be a field or a state
    operand x has shape [1, 1], which does not fit [1, D]: a field is stored in its declared shape
    ");
}

#[test]
fn a_graph_of_rows_has_a_text() {
    let mut parts = parts();
    let (saved, _) = parts.push(Op::Store { x: ValueId(2), to: Source::State(StateId(0)) }).expect("an op that fits");
    parts.outputs.push(saved);
    insta::assert_snapshot!(Graph::check(parts).expect("valid").to_string(), @r"
    graph rows
    v0: f32[rows, d0=G, d1=D] = query
    v1: f32[pool, d0 1, d1=D] = field 0
    v2: f32[rows, blocks, d0 1, d1 1] = sum D1(x v1)
    v3: f32[rows, blocks, d0 1, d1 1] = save 0(x v2)
    outputs v3
    ");
}

#[test]
fn a_place_is_stored_once_and_shapes_are_in_lowest_terms() {
    let mut twice = parts();
    for _ in 0..2 {
        twice.push(Op::Store { x: ValueId(2), to: Source::State(StateId(0)) }).expect("an op that fits");
    }
    let error = Graph::check(twice).expect_err("two stores").to_string();
    assert!(error.contains("State(StateId(0)) is stored by two ops; store it once"), "{error}");
    let text = serde_json::to_string(&Graph::check(parts()).expect("valid")).expect("JSON");
    for (from, to) in [(r#""over":1"#, r#""over":0"#), (r#""times":1"#, r#""times":4294967295"#)] {
        let error = serde_json::from_str::<Graph>(&text.replace(from, to)).expect_err("no model has this").to_string();
        assert!(error.contains("has an extent that is 0, a fraction or too large"), "{error}");
    }
}

#[test]
fn inputs_that_do_not_fit_are_errors() {
    let graph = Graph::check(parts()).expect("valid");
    let interpreter = Interpreter::new(&graph, &|_: &str| None).expect("no weights");
    let model = ModelShape { kv_heads: 1, group: 2, head_dim: 4, block_tokens: 2 };
    let run = |model, load: &dyn Fn(Source) -> Vec<f64>| {
        interpreter.run_blocks(BlockInputs { model, blocks: 3, load }).map_err(|error| error.to_string())
    };
    let of = |source| vec![1.0; if source == Source::Query { 8 } else { 12 }];
    assert_eq!(run(model, &of).expect("inputs that fit")[2].data, [4.0; 3]);
    assert_eq!(run(model, &|_| vec![0.0; 8]), Err("field: 8 numbers were given; give 12".into()));
    let none = run(ModelShape { head_dim: 0, ..model }, &of).expect_err("no extent");
    assert!(none.starts_with("extent D is 0 or too large"), "{none}");
    assert!(interpreter.run(&mut Default::default(), &[1]).is_err(), "rows are not tokens");
}
