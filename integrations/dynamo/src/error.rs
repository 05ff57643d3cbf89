//! Errors, and how Dynamo classifies them: a class decides the status that a client gets and
//! whether the frontend migrates the request to another worker.

use std::path::PathBuf;

use dynamo_backend_common::{BackendError, DynamoError, ErrorType};
use dynamo_runtime::error::PublicDetails;
use thiserror::Error;
use tilewright::engine::{EngineError, GrammarError};

/// A request that this worker does not run.
#[derive(Debug, Error)]
pub enum RequestError {
    /// A feature that this worker does not have.
    #[error("{feature} is not supported by this worker; leave it out")]
    Unsupported {
        /// The feature.
        feature: &'static str,
    },
    /// A number out of its range.
    #[error("{name} must be {expected}, got {found}")]
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// The accepted values.
        expected: &'static str,
        /// The value of the request.
        found: String,
    },
    /// The prompt leaves no room for a new token.
    #[error("the prompt has {prompt} tokens and a sequence holds {context}; shorten the prompt")]
    NoRoom {
        /// Tokens of the prompt.
        prompt: usize,
        /// Most tokens of a sequence.
        context: usize,
    },
    /// The grammar of guided decoding cannot be compiled.
    #[error("the grammar of guided decoding is not accepted: {0}")]
    Grammar(#[from] GrammarError),
    /// The JSON schema of guided decoding is a text that is not JSON.
    #[error("the JSON schema of guided decoding is not JSON: {0}")]
    Schema(serde_json::Error),
}

/// A worker that cannot start or go on.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// The model cannot be loaded.
    #[error("the model in {} cannot be loaded: {}", .path.display(), chain(.source.as_ref()))]
    Load {
        /// The folder.
        path: PathBuf,
        /// The reason.
        source: Box<EngineError>,
    },
    /// The thread that loads the model ended.
    #[error("the thread that loads the model ended early")]
    LoaderEnded,
    /// The worker was not started, or has been cleaned up.
    #[error("the worker is not running")]
    NotRunning,
    /// The worker ends, so that another one must continue its requests.
    #[error("the worker is shutting down")]
    ShuttingDown,
}

impl From<RequestError> for DynamoError {
    fn from(error: RequestError) -> DynamoError {
        refused(error.to_string())
    }
}

impl From<WorkerError> for DynamoError {
    fn from(error: WorkerError) -> DynamoError {
        of_class(BackendError::EngineShutdown, error.to_string())
    }
}

/// Classifies an error of the engine. Requests that no worker would run are refused; those that
/// another worker can run are migrated.
pub fn of_engine(error: &EngineError) -> DynamoError {
    let message = chain(error);
    match error {
        EngineError::OfStep(error) => of_engine(error),
        EngineError::EmptyPrompt
        | EngineError::TokenId { .. }
        | EngineError::PromptTooLong { .. }
        | EngineError::RequestContext { .. }
        | EngineError::RequestPages { .. }
        | EngineError::Penalty { .. }
        | EngineError::MinP { .. }
        | EngineError::Sampling(_)
        | EngineError::Stop(_) => refused(message),
        // The same weights give the same logits on every worker.
        EngineError::NotANumber { .. } | EngineError::Processor { .. } => of_class(BackendError::Unknown, message),
        EngineError::QueueFull { .. } => {
            DynamoError::builder().error_type(ErrorType::WorkerOverloaded).message(message).build()
        }
        _ => of_class(BackendError::EngineShutdown, message),
    }
}

fn refused(message: String) -> DynamoError {
    DynamoError::builder()
        .error_type(ErrorType::Backend(BackendError::InvalidArgument))
        .public_details(PublicDetails::Message { message: message.clone() })
        .message(message)
        .build()
}

fn of_class(class: BackendError, message: String) -> DynamoError {
    DynamoError::builder().error_type(ErrorType::Backend(class)).message(message).build()
}

/// An error with its sources, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
