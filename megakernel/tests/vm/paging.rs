//! Cells and KV states that do not fit are refused before anything runs.

use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::ops::{Copy, Embed};
use tilewright_megakernel::program::{BufferKind, Op, Program, Region, Span};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::{Placed, validate};
use tilewright_megakernel::vm::reference::{KvState, Machine, StepError};
use tilewright_megakernel::vm::{AccessError, BindError, CellError, KvError, StepCells};
use tilewright_megakernel::weights::{RandomWeights, Weights};

use super::lab::{Lab, Table, tensor};
use super::model::spec;

fn placed(rows: usize, context: usize, kv: DType) -> Placed {
    let options = LowerOptions { rows, page_tokens: 16, pages: Some(6), kv, ..LowerOptions::for_context(context) };
    let program = lower(&spec("llama"), &|_| DType::BF16, Target::host(2), &options).unwrap();
    schedule(program, 16).unwrap()
}

fn weights(dtype: DType) -> RandomWeights {
    RandomWeights::new(&spec("llama"), dtype, 1).unwrap()
}

#[test]
fn bad_cells_are_refused_and_the_machine_goes_on() {
    let mut machine = Machine::new(placed(2, 32, DType::F32), &weights(DType::BF16), 2).unwrap();
    let mut kv = KvState::new(machine.program()).unwrap();
    let good = StepCells { tokens: &[1, 2], positions: &[0, 0], page_table: &[0, 1, 2, 3] };
    let cases = [
        (StepCells { tokens: &[1], ..good }, CellError::Length { cell: "token", expected: 2, found: 1 }),
        (StepCells { tokens: &[1, 101], ..good }, CellError::Token { row: 1, id: 101, vocab: 101 }),
        (StepCells { positions: &[0, 32], ..good }, CellError::Position { row: 1, position: 32, capacity: 32 }),
        (StepCells { page_table: &[0, 1, 6, 3], ..good }, CellError::Page { row: 1, entry: 0, page: 6, pages: 6 }),
        (StepCells { page_table: &[0, 1, 0, 1], ..good }, CellError::Slot { first: 0, second: 1, page: 0, token: 0 }),
        (
            StepCells { positions: &[0, 16], page_table: &[0, 1, 0, 3], ..good },
            CellError::SharedPage { reader: 1, writer: 0, page: 0 },
        ),
    ];
    for (cells, expected) in cases {
        match machine.step(&mut kv, &cells) {
            Err(StepError::Cells(error)) => assert_eq!(error, expected),
            Err(error) => panic!("{error}, expected {expected}"),
            Ok(_) => panic!("accepted, expected {expected}"),
        }
        assert!(machine.step(&mut kv, &good).is_ok());
    }
}

#[test]
fn a_kv_state_of_another_program_is_refused() {
    let mut machine = Machine::new(placed(1, 32, DType::F32), &weights(DType::BF16), 1).unwrap();
    let mut refuse = |mut kv: KvState| {
        let cells = StepCells { tokens: &[1], positions: &[0], page_table: &[0, 1] };
        match machine.step(&mut kv, &cells) {
            Err(StepError::Kv(error)) => error,
            _ => panic!("accepted"),
        }
    };
    let other = KvState::new(&placed(1, 32, DType::BF16)).unwrap();
    let name = "layers.0.k".to_owned();
    assert_eq!(refuse(other), KvError::DType { name: name.clone(), expected: DType::F32, found: DType::BF16 });
    let mut program = placed(1, 32, DType::F32).into_program();
    program.buffers.iter_mut().filter(|b| b.kind == BufferKind::KvPool).for_each(|b| b.shape[1] = 7);
    let error = refuse(KvState::new(&program).unwrap());
    assert_eq!(error, KvError::Shape { name: name.clone(), expected: vec![2, 6, 16, 16], found: vec![2, 7, 16, 16] });
    let nothing = KvState::new(&Program::new("nothing", Target::host(1))).unwrap();
    assert_eq!(refuse(nothing), KvError::Missing { name });
    // Pools do not depend on the rows of a program.
    let shared = KvState::new(&placed(4, 32, DType::F32)).unwrap();
    assert_eq!(shared.bytes(), KvState::new(&placed(1, 32, DType::F32)).unwrap().bytes());
}

#[test]
fn weights_must_be_as_their_buffers_say() {
    let bind =
        |weights: &dyn Weights, workers| Machine::new(placed(1, 32, DType::F32), weights, workers).err().unwrap();
    match bind(&weights(DType::F32), 1) {
        BindError::DType { expected: DType::BF16, found: DType::F32, .. } => {}
        error => panic!("{error}"),
    }
    match bind(&Table::default(), 1) {
        BindError::NoTensor { tensor, .. } => assert_eq!(tensor, "model.embed_tokens.weight"),
        error => panic!("{error}"),
    }
    let mut table = Table::default();
    table.0.insert("model.embed_tokens.weight".into(), tensor(DType::BF16, &[48, 101], &[0.0; 48 * 101]));
    let error = bind(&table, 1);
    assert_eq!(
        error.to_string(),
        "tensor `model.embed_tokens.weight` has shape [48, 101], weight buffer `model.embed_tokens.weight` has [101, 48]"
    );
    assert!(matches!(bind(&weights(DType::BF16), 0), BindError::NoWorkers));
}

#[test]
fn the_host_reads_outputs_and_sets_inputs_only() {
    let mut lab = Lab::new(1);
    let (x, values) = lab.input("x", DType::F32, &[2, 3]);
    let out = lab.output("out", DType::F32, &[2, 3]);
    lab.task(Op::from(Copy { src: Region::whole(x, &[2, 3]), dst: Region::whole(out, &[2, 3]) }));
    let mut machine = lab.machine(1);
    let mut kv = lab.kv();
    let length = AccessError::Length { name: "x".into(), expected: 6, found: 1 };
    assert_eq!(machine.set_input("x", &[1.0]), Err(length));
    assert!(matches!(machine.set_input("out", &values), Err(AccessError::Kind { .. })));
    assert!(matches!(machine.set_input("y", &values), Err(AccessError::Missing { .. })));
    assert!(matches!(machine.set_input_i32("x", &[0; 6]), Err(AccessError::DType { .. })));
    let output = machine.step(&mut kv, &StepCells::default()).unwrap();
    assert_eq!(output.f32_row("out", 1).unwrap(), values[3..]);
    assert_eq!(output.f32_row("out", 2), Err(AccessError::Row { name: "out".into(), rows: 2, row: 2 }));
    assert!(matches!(output.i32("out"), Err(AccessError::DType { .. })));
    assert!(matches!(output.f32("x"), Err(AccessError::Kind { .. })));
}

#[test]
fn a_cell_holds_one_thing() {
    let bind = |same: bool| -> Result<(), String> {
        let mut lab = Lab::new(1);
        let (table, _) = lab.weight("table", DType::F32, &[5, 3]);
        let mut cell = |name: &str, rows: usize| lab.buffer(name, BufferKind::Cell, DType::I32, &[rows]);
        let ids = cell("a", 2);
        let position = cell("b", 2);
        let more = cell("c", 1);
        let more_position = cell("d", 1);
        let position = if same { ids } else { position };
        for (at, (ids, position, rows)) in [(ids, position, 2), (more, more_position, 1)].into_iter().enumerate() {
            let out = lab.output(&format!("out{at}"), DType::F32, &[rows, 3]);
            lab.task(Op::from(Embed {
                ids,
                position,
                table,
                scale: None,
                out,
                rows: Span::all(rows),
                cols: Span::all(3),
                shard: None,
                sent: vec![],
            }));
        }
        let mut weights = Table::default();
        weights.0.insert("table".into(), tensor(DType::F32, &[5, 3], &[0.0; 15]));
        let report = validate(&lab.program);
        let refused = report.errors.first().map(|error| Err(error.to_string()));
        refused.unwrap_or_else(|| Machine::new(lab.placed(), &weights, 1).map(drop).map_err(|error| error.to_string()))
    };
    let roles = "task t0 `embed[0]`: b1 is read as position, an earlier task reads it as token; a cell has one role, use two cells";
    assert_eq!(bind(true), Err(roles.into()));
    assert_eq!(bind(false), Err("cells `a` and `c` both hold token ids and differ in shape".into()));
}

/// Activations whose lives do not meet may share bytes, in types of different widths too.
#[test]
fn activations_may_share_the_arena() {
    let mut lab = Lab::new(3);
    let (x, values) = lab.input("x", DType::BF16, &[6]);
    let out = lab.output("out", DType::F32, &[6]);
    let steps = [("y0", DType::F32, 1 << 20), ("y1", DType::BF16, (1 << 20) + 24), ("y2", DType::BF16, 1 << 20)];
    let mut from = x;
    for (name, dtype, arena) in steps {
        let to = lab.activation(name, dtype, &[6]);
        lab.program.buffers[to.index()].arena = Some(arena);
        lab.task(Op::from(Copy { src: Region::whole(from, &[6]), dst: Region::whole(to, &[6]) }));
        from = to;
    }
    lab.task(Op::from(Copy { src: Region::whole(from, &[6]), dst: Region::whole(out, &[6]) }));
    assert_eq!(lab.run().floats["out"], values);
}
