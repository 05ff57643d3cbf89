//! A program that only summarises, after prompts that machines without ops of flows have processed.

use tilewright_megakernel::ops::OperandError;
use tilewright_megakernel::program::{Buffer, BufferId, BufferKind, Program};

use super::Summarise;

/// The tasks of a program that store the fields of blocks, and nothing else of it: a row is a
/// block, and its position is that of the block's last token. The program's pools stay as they are,
/// so that both use the same ones. `None` where there are no such tasks.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_flow::memory::Budget;
/// use tilewright_flow::program::{FlowSettings, Lowered, Phase, summaries};
/// use tilewright_flow::algorithms;
/// use tilewright_layout::DType;
/// use tilewright_megakernel::{lower::{LowerOptions, lower_indexed}, model::ModelSpec, validate::validate};
///
/// let quest = FlowSettings::new(algorithms::named("quest")?.trace()?, 16, Budget::new(64, 0.0, 1, 1)?)?;
/// let spec = ModelSpec::named("llama-3.2-1b").unwrap();
/// let target = Target::named("h100").unwrap();
/// let options = LowerOptions { rows: 16, ..LowerOptions::for_context(8192) };
/// let mut indexer = Lowered::new(&quest, Phase::Prompt, 1);
/// let program = lower_indexed(&spec, &|_| DType::BF16, target, &options, Some(&mut indexer))?;
/// let alone = summaries(&program)?.unwrap();
/// assert!(validate(&alone).is_valid() && alone.tasks.len() == spec.layers * spec.kv_heads);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the program is not valid.
pub fn summaries(program: &Program) -> Result<Option<Program>, OperandError> {
    let mut alone = Program::new(format!("{}, summaries", program.name), program.target.clone());
    let tasks = program.tasks.iter().filter_map(|task| Some((&task.label, task.op.get::<Summarise>()?)));
    let mut places = vec![None; program.buffers.len()];
    let mut add = |known: BufferId, alone: &mut Program| {
        *places[known.index()].get_or_insert_with(|| {
            let id = BufferId::from(alone.buffers.len());
            alone.buffers.push(Buffer { id, ..program.buffers[known.index()].clone() });
            id
        })
    };
    for buffer in program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool) {
        add(buffer.id, &mut alone);
    }
    for (label, op) in tasks {
        let mut op = op.clone();
        let named = [&mut op.k_pool, &mut op.v_pool, &mut op.at.position, &mut op.at.page_table];
        for id in named.into_iter().chain(&mut op.fields).chain(&mut op.parameters) {
            *id = add(*id, &mut alone);
        }
        alone.add_task(label.clone(), op, Vec::new(), Vec::new())?;
    }
    Ok((!alone.tasks.is_empty()).then_some(alone))
}
