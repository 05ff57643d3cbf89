//! The parts of a reply: reasoning, content and calls.

/// A part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyPart {
    /// Text of the reasoning.
    Reasoning(String),
    /// Text of the answer.
    Content(String),
    /// A whole call.
    Call(FunctionCall),
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionCall {
    /// The function.
    pub name: String,
    /// Its arguments as JSON text.
    pub arguments: String,
}

/// Parts, where text joins the text before it.
#[derive(Default)]
pub(super) struct Parts(pub Vec<ReplyPart>);

impl Parts {
    pub fn content(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(ReplyPart::Content(last)) => last.push_str(text),
            _ => self.0.push(ReplyPart::Content(text.to_owned())),
        }
    }

    pub fn reasoning(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(ReplyPart::Reasoning(last)) => last.push_str(text),
            _ => self.0.push(ReplyPart::Reasoning(text.to_owned())),
        }
    }
}
