//! Records the activations of every layer for a text: rotated queries, keys and values.

use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{Indexer, LayerTasks, LowerError, LowerOptions, Selected, lower_indexed};
use tilewright_megakernel::ops::{Copy, Op};
use tilewright_megakernel::program::{BufferKind, Region};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::weights::Weights as _;

use crate::checkpoint::Checkpoint;
use crate::cli::Failure;

/// Rows of the program that feeds the sequence.
const ROWS: usize = 32;
/// Tokens of its pages.
const PAGE: usize = 16;

/// Rotated queries, keys and values of a layer: `[tokens, heads, head_dim]`.
#[derive(Clone, Default)]
pub struct Layer {
    /// Queries, of all query heads.
    pub queries: Vec<f64>,
    /// Keys, of all key heads.
    pub keys: Vec<f64>,
    /// Values, of all key heads.
    pub values: Vec<f64>,
}

/// Makes each layer's queries an output.
struct QueryOutputs;

fn queries(layer: usize) -> String {
    format!("layers.{layer}.queries")
}

impl Indexer for QueryOutputs {
    fn layer(&mut self, at: &mut LayerTasks<'_, '_>) -> Result<Selected, LowerError> {
        let shape = [at.options().rows, at.spec().heads, at.spec().head_dim];
        let out = at.buffer(&queries(at.layer()), BufferKind::Output, DType::F32, &shape);
        let copy = Copy { src: Region::whole(at.q(), &shape), dst: Region::whole(out, &shape) };
        let done = at.level("queries", vec![Op::from(copy)], at.heads())?;
        Ok(Selected { ready: vec![done; at.spec().kv_heads], selection: None })
    }
}

/// Computes the activations of every layer for a sequence.
pub fn activations(checkpoint: &Checkpoint, ids: &[u32]) -> Result<Vec<Layer>, Failure> {
    let spec = checkpoint.spec();
    let options =
        LowerOptions { rows: ROWS, page_tokens: PAGE, splits: Some(1), ..LowerOptions::for_context(ids.len()) };
    let pages = options.pages_per_sequence();
    let options = LowerOptions { pages: Some(pages), ..options };
    let dtype_of = |name: &str| checkpoint.tensor(name).map_or(DType::F32, |tensor| tensor.dtype());
    let program = lower_indexed(spec, &dtype_of, Target::host(2), &options, Some(&mut QueryOutputs))?;
    let placed = schedule(program.stored_as(checkpoint), ids.len())?;
    let mut machine = Machine::new(placed, checkpoint, 2)?;
    let mut kv = KvState::new(machine.program())?;
    let mut layers = vec![Layer::default(); spec.layers];
    let row = spec.heads * spec.head_dim;
    let table: Vec<i32> = (0..pages as i32).collect::<Vec<_>>().repeat(ROWS);
    for (chunk, fed) in ids.chunks(ROWS).enumerate() {
        let mut tokens: Vec<i32> = fed.iter().map(|&id| id as i32).collect();
        let mut positions: Vec<i32> = (0..fed.len()).map(|i| (chunk * ROWS + i) as i32).collect();
        tokens.resize(ROWS, 0);
        positions.resize(ROWS, -1);
        let cells = StepCells { tokens: &tokens, positions: &positions, page_table: &table };
        let output = machine.step(&mut kv, &cells)?;
        for (number, layer) in layers.iter_mut().enumerate() {
            let found = output.f32(&queries(number))?;
            layer.queries.extend(found[..fed.len() * row].iter().map(|&x| f64::from(x)));
        }
    }
    // The page table is in order, so that a head's pool is its tokens in order.
    let stride = pages * PAGE * spec.head_dim;
    let dim = spec.head_dim;
    for (number, layer) in layers.iter_mut().enumerate() {
        for (which, to) in [("k", &mut layer.keys), ("v", &mut layer.values)] {
            let pool = kv.read(&format!("layers.{number}.{which}")).unwrap_or_default();
            for (token, head) in (0..ids.len()).flat_map(|token| (0..spec.kv_heads).map(move |head| (token, head))) {
                to.extend(pool[head * stride + token * dim..][..dim].iter().map(|&x| f64::from(x)));
            }
        }
    }
    Ok(layers)
}
