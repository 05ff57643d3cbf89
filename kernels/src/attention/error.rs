//! Attention kernels that are refused where they are recorded.

use thiserror::Error;

/// Why an attention kernel is refused. `verify` reports it at the line that records the kernel.
///
/// ```
/// use tilewright_codegen::{ir::Arch, verify::verify};
/// use tilewright_kernels::attention::decode::{Decode, Layout};
/// use tilewright_kernels::attention::ScoreVariant;
/// use tilewright_kernels::kv::CpAsync;
/// let decode = Decode { depth: 72, value_depth: None, group: 4, layout: Layout::Dense, tile: 16, scores: ScoreVariant::NONE, lse: false };
/// let errors = verify(decode.record::<CpAsync<2>>(Arch::Sm80)).unwrap_err().to_string();
/// let wanted = "decode attention of heads of 72 columns: it is made for 64, 80, 96, 112, 128, 192 and 256";
/// assert!(errors.contains(wanted), "{errors}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are the numbers that the message prints")]
pub enum AttentionError {
    /// Columns of a head that no kernel is made for.
    #[error("{kernel} attention of heads of {depth} columns: it is made for {}; pad the heads to one of these", list(.depths))]
    Depth { kernel: &'static str, depth: u32, depths: &'static [u32] },
    /// Columns of a value that no kernel is made for.
    #[error(
        "{kernel} attention of keys of {depth} columns and values of {values}: they have as many, or 192 and 128; pad the values to one of these"
    )]
    ValueDepth { kernel: &'static str, depth: u32, values: u32 },
    /// Query heads of a key/value head that do not fit the rows of the instruction.
    #[error(
        "decode attention of {group} query heads per key/value head: 1 to 16 are the rows of m16n8k16; use prefill attention, which takes any number"
    )]
    Group { group: u32 },
    /// A prefill kernel without query heads.
    #[error("prefill attention of 0 query heads per key/value head: give 1 or more")]
    NoGroup,
    /// Keys of a tile that the kernel of a depth is not made for.
    #[error("prefill attention of tiles of {keys} keys for heads of {depth} columns: they have {}; take one of these", list(.choices))]
    Keys { keys: u32, depth: u32, choices: &'static [u32] },
    /// Columns of results that are not merged.
    #[error("merge of attention of {depth} columns: give a multiple of 8")]
    MergeDepth { depth: u32 },
    /// A soft cap that scores cannot be divided by, or multiplied with.
    #[error("attention scores: {problem}; leave it out for no cap")]
    SoftCap { problem: String },
    /// A window in which a query does not see its own token.
    #[error("a sliding window of 0 tokens: 1 is a query's own token; give 1 or more, or leave it out for all tokens")]
    EmptyWindow,
    /// A window of a kernel whose queries see later tokens too.
    #[error(
        "prefill attention with a sliding window that is not causal: windows end at a query's own token; set causal"
    )]
    WindowNotCausal,
    /// A window of tokens that were chosen.
    #[error(
        "a sliding window of {window} tokens over selected blocks: blocks have places, not positions; choose them within the window instead"
    )]
    WindowOfSelected { window: u32 },
    /// A function of scores of tokens that were chosen.
    #[error(
        "a score function of one's own over selected blocks: blocks have places, not positions; choose among the tokens instead"
    )]
    CustomOfSelected,
    /// Keys and values of latent vectors that are not tiles of the instruction.
    #[error(
        "latent attention of keys of {key} and values of {value} dimensions: both are multiples of 16, of bf16, and a value is the beginning of a key"
    )]
    Latent { key: u32, value: u32 },
    /// A modifier of scores of latent vectors.
    #[error("latent attention with a soft cap or a window: scores of latent vectors have none; leave it out")]
    LatentModifier,
}

/// Numbers as a sentence lists them.
fn list(numbers: &[u32]) -> String {
    let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "none".into(),
    }
}

impl AttentionError {
    /// Why a kernel does not take values of as many columns beside keys of `depth`, if so.
    pub(super) fn of_values(kernel: &'static str, depth: u32, values: u32) -> Option<AttentionError> {
        let takes = values == depth || (depth, values) == (192, 128);
        (!takes).then_some(AttentionError::ValueDepth { kernel, depth, values })
    }
}
