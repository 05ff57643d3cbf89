//! Attention over blocks that an op of the step selects: the reference machine's logits, and those
//! of all tokens where all are.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{Indexer, LOGITS, LayerTasks, LowerError, LowerOptions, Selected, lower_indexed};
use tilewright_megakernel::ops::{self, Footprint, Op, OperandError, Operands, RowCells, Selection, TaskOp};
use tilewright_megakernel::program::{BufferId, BufferKind, Region, Span};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::Unsupported;
use tilewright_megakernel::vm::device::{
    Call, DeviceFunction, DeviceOp, Planned, Planner, WeightStages, register_device_op,
};
use tilewright_megakernel::vm::reference::{Context, KvState, Machine, TaskFault};
use tilewright_megakernel::vm::rows_of;

use super::lab::{Cells, PAGES, chain, load, options, relative, tiny, weights};

/// Tokens of a block, and of a page.
const BLOCK: usize = 16;

/// The first block of a row, and its newest `newest`: in the other order, the last one excepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Ends {
    at: RowCells,
    pool: BufferId,
    kv_head: usize,
    rows: Span,
    newest: usize,
    blocks: BufferId,
    last: BufferId,
}

impl TaskOp for Ends {
    fn name() -> &'static str {
        "ends"
    }

    fn footprint(&self, ops: &Operands) -> Result<Footprint, OperandError> {
        let [count, _, most] = ops.shape("blocks", self.blocks)?;
        let head = Span::one(self.kv_head);
        let blocks = Region::new(self.blocks, &[self.rows, head, Span::all(most)]);
        let reads = self.at.footprint(ops, self.rows, count)?.to_vec();
        let writes = vec![blocks, Region::new(self.last, &[head, self.rows])];
        Ok(Footprint::new(reads, writes).cells(self.at.cells(ops, &[self.pool])?))
    }

    fn oracle(&self, on: &Context) -> Result<(), TaskFault> {
        let [count, heads, most] = on.shape(self.blocks)?;
        for row in self.rows.iter() {
            let at = self.kv_head * count + row;
            let Some(position) = on.position(self.at.position, row)? else {
                on.write_i32(self.last, at, -1)?;
                continue;
            };
            let table = on.table(self.at.page_table, row, position, on.pool_shape(self.pool)?)?;
            let chosen = table.len().min(self.newest + 1);
            for entry in 0..chosen {
                let block = if entry == 0 { 0 } else { table.len() - chosen + entry };
                on.write_i32(self.blocks, (row * heads + self.kv_head) * most + entry, table[block] as i32)?;
            }
            on.write_i32(self.last, at, ((chosen - 1) * BLOCK + position % BLOCK) as i32)?;
        }
        Ok(())
    }
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Fields {
    kv_head: u32,
    position: u32,
    table: u32,
    blocks: u32,
    last: u32,
}

#[derive(Clone, Debug, PartialEq)]
struct EndsOfRows {
    rows: u32,
    heads: u32,
    most: u32,
    width: u32,
    newest: u32,
}

impl DeviceOp for Ends {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let function = EndsOfRows {
            rows: rows_of(self.rows)?,
            heads: plan.extent(self.blocks, 1)?,
            most: plan.extent(self.blocks, 0)?,
            width: plan.extent(self.at.page_table, 0)?,
            newest: self.newest as u32,
        };
        let fields = Fields {
            kv_head: self.kv_head as u32,
            position: plan.operand(self.at.position)?,
            table: plan.operand(self.at.page_table)?,
            blocks: plan.operand(self.blocks)?,
            last: plan.operand(self.last)?,
        };
        Ok(Planned::new(function, fields))
    }
}

impl DeviceFunction for EndsOfRows {
    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn WeightStages<'k>) {
        let EndsOfRows { rows, heads, most, width, newest } = *self;
        let kv_head = call.value(offset_of!(Fields, kv_head));
        let [position, table, blocks, last] = [
            offset_of!(Fields, position),
            offset_of!(Fields, table),
            offset_of!(Fields, blocks),
            offset_of!(Fields, last),
        ]
        .map(|field| call.state(field).cast::<i32>());
        call.consumers().each(rows, |row| {
            let at = position.at(row).load();
            let all = (at + BLOCK as i32) / BLOCK as i32;
            let chosen = all.min(newest as i32 + 1);
            for entry in 0..most {
                let block = if entry == 0 { call.builder().lit(0) } else { all - chosen + entry as i32 };
                call.builder().when(chosen.gt(entry as i32), || {
                    let page = table.at(row * width + block.cast::<u32>()).load();
                    blocks.at((row * heads + kv_head) * most + entry).store(page);
                });
            }
            let tokens = (chosen - 1) * BLOCK as i32 + at % BLOCK as i32;
            last.at(kv_head * rows + row).store(at.ge(0).select(tokens, -1));
        });
    }
}

/// Lowers with `Ends`.
struct SelectEnds {
    newest: usize,
}

impl Indexer for SelectEnds {
    fn layer(&mut self, at: &mut LayerTasks<'_, '_>) -> Result<Selected, LowerError> {
        let rows = at.options().rows;
        let heads = at.spec().kv_heads;
        // Of each layer its own: packets between layers order nothing but themselves.
        let [blocks, last] =
            [("blocks", vec![rows, heads, PAGES]), ("last", vec![heads, rows])].map(|(name, shape)| {
                at.buffer(&format!("{name}.{}", at.layer()), BufferKind::Activation, DType::I32, &shape)
            });
        let mut ready = Vec::new();
        for kv_head in 0..heads {
            let ends = Ends {
                at: at.place(),
                pool: at.pools()[0],
                kv_head,
                rows: at.rows(),
                newest: self.newest,
                blocks,
                last,
            };
            let done = at.heads()[kv_head];
            ready.push(at.level(&format!("ends.h{kv_head}"), vec![Op::from(ends)], &[done])?);
        }
        Ok(Selected { ready, selection: Some(Selection { blocks, last, block_tokens: BLOCK }) })
    }
}

fn selecting(rows: usize, sms: usize, newest: usize, splits: usize) -> Placed {
    ops::register::<Ends>().expect("a name of its own");
    register_device_op::<Ends>();
    let target = Target { sms, ..Target::named("h100").expect("a target") };
    let options = LowerOptions {
        rows,
        kv: DType::BF16,
        page_tokens: BLOCK,
        pages: Some(PAGES * 16),
        splits: Some(splits),
        ..LowerOptions::for_context(64)
    };
    let mut indexer = SelectEnds { newest };
    let program = lower_indexed(&tiny(), &|_| DType::BF16, target, &options, Some(&mut indexer));
    schedule(program.expect("a model that lowers"), 64).expect("a valid program")
}

/// Steps across two edges of blocks, from random pools on.
#[test]
fn attention_over_selected_blocks_agrees_with_the_reference() {
    for (rows, newest, splits, seed) in [(1, 1, 1, 0), (2, 2, 2, 40), (1, PAGES, 3, 80)] {
        let program = selecting(rows, 3, newest, splits);
        let mut reference = Machine::new(program.clone(), &weights(&tiny()), 1).expect("a machine");
        let mut kv = KvState::new(reference.program()).expect("memory");
        let mut device = load(program, &tiny(), seed, options());
        for step in 0..3 {
            let mut cells = Cells::at(rows, 17 * step + 14);
            if rows > 1 && step == 1 {
                cells.positions[rows - 1] = -1;
            }
            device.step(&cells.view()).unwrap_or_else(|error| panic!("seed {seed}, step {step}: {}", chain(&error)));
            let output = reference.step(&mut kv, &cells.view()).expect("a step");
            for row in 0..cells.positions.iter().filter(|&&position| position >= 0).count() {
                let found = device.f32_row(LOGITS, row);
                let expected = output.f32_row(LOGITS, row);
                let error = relative(&found.expect("logits"), &expected.expect("logits"));
                assert!(error < 1e-3, "seed {seed}, step {step}, row {row}: {error}");
            }
        }
    }
}
