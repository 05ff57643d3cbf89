//! Options of `chat`.

use std::path::PathBuf;

use clap::Args;

use crate::checkpoint::ChatValue;
use crate::cli::device::DeviceArgs;
use crate::cli::number;
use crate::cli::prompt::parse_variable;

/// Talk with a model, message by message
///
/// A message is a line; end a line with \ to go on with it in the next one, or put several between
/// lines of \"\"\". /reset begins anew, /help lists the commands, /quit or the end of the input ends
/// it. Answers stream as they are. The model is a checkpoint that has a chat template, or served
/// behind a URL.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright chat --model DIR --system \"Answer in verse.\"
  tilewright chat --url http://127.0.0.1:8000")]
pub struct ChatArgs {
    /// Folder of a Hugging Face checkpoint, or ORG/MODEL in the local cache
    #[arg(long, value_name = "MODEL", required_unless_present = "url", conflicts_with = "url")]
    pub(super) model: Option<PathBuf>,
    /// Server with OpenAI's endpoints, such as `tilewright serve`: http://HOST:PORT
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<String>,
    /// With --url: name of the model [default: the first that the server lists]
    #[arg(long, value_name = "NAME", requires = "url")]
    pub(super) name: Option<String>,
    /// With --url: file with an API key in its first line
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(super) api_key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) talk: TalkArgs,
}

/// Talk with a model of the local Hugging Face cache, message by message
///
/// `tilewright run ORG/MODEL` is `tilewright chat --model ORG/MODEL`. The cache is that of
/// `hf download ORG/MODEL`: HF_HUB_CACHE, hub in HF_HOME, or ~/.cache/huggingface/hub. Nothing is
/// downloaded.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright run Qwen/Qwen3-0.6B
  tilewright run DIR --system \"Answer in verse.\"")]
pub struct RunArgs {
    /// ORG/MODEL in the local cache, or the folder of a Hugging Face checkpoint
    #[arg(value_name = "MODEL")]
    pub(super) model: PathBuf,
    #[command(flatten)]
    pub(super) talk: TalkArgs,
}

/// How a model answers.
#[derive(Args)]
pub(super) struct TalkArgs {
    /// System message before the conversation
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) system: Option<String>,
    /// Variable of the chat template and its JSON value, such as enable_thinking=false
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable, allow_hyphen_values = true)]
    pub(super) template_var: Vec<(String, ChatValue)>,
    /// Most tokens of an answer [default: what the model has room for]
    #[arg(long, value_name = "N", value_parser = number::tokens())]
    pub(super) max_new_tokens: Option<usize>,
    /// Sample with this temperature; 0 is greedy
    #[arg(long, value_name = "T", default_value_t = 0.7, allow_negative_numbers = true)]
    pub(super) temperature: f32,
    /// Seed of the sampler: the same seed gives the same text
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) device: DeviceArgs,
}
