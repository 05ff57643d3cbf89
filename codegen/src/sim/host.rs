//! The host's use of words of a buffer while a kernel runs.

use core::fmt;
use core::ops::Range;
use std::sync::Arc;

/// Maps the value of a word to the bytes that the host may then read, as a range of offsets.
pub type Opens = Arc<dyn Fn(u64) -> Range<u64> + Send + Sync>;

/// Maps a value of the flag to the stores with which the host responds: offsets of 32-bit words,
/// and their new values.
pub type Answers = Arc<dyn Fn(u64) -> Vec<(u64, u32)> + Send + Sync>;

/// The host's use of memory that it shares with a running kernel.
///
/// The simulator runs kernels to their end before the host continues. It therefore simulates the
/// host's accesses by this description, and reports a kernel whose result would depend on timing.
///
/// All places are offsets in bytes from where a parameter of the kernel points to.
///
/// ```
/// use std::sync::Arc;
/// use tilewright_codegen::build::{block, record};
/// use tilewright_codegen::ir::{Arch, attr::Scope};
/// use tilewright_codegen::sim::{self, Arg, HostOrder, Launch, Memory};
/// use tilewright_codegen::verify::verify;
///
/// // A number, and after it whether it is there.
/// let kernel = |scope| verify(record("tell", Arch::Sm90a, block(32), |k| {
///     let words = k.global::<u32>("words");
///     k.when(k.tid().eq(0), || {
///         words.at(1).store(42u32);
///         words.store_release(1u32, scope);
///     });
/// })).unwrap();
/// let host = HostOrder::new("words", 0, Arc::new(|seen| if seen == 1 { 4..8 } else { 0..0 }));
/// let run = |scope| {
///     let mut memory = Memory::new();
///     let words = memory.zeros("words", 8);
///     let launch = Launch { host: Some(host.clone()), ..Launch::new([1, 1, 1], vec![Arg::Ptr(words)]) };
///     sim::run(&kernel(scope), &launch, &mut memory, 0).unwrap().fault().map(|fault| fault.kind.name())
/// };
/// assert_eq!((run(Scope::Sys), run(Scope::Gpu)), (None, Some("order for the host")));
/// ```
#[derive(Clone)]
pub struct HostOrder {
    /// The parameter that points to the words; kernels without one of this name are left alone.
    pub param: String,
    /// The word that the host acquires, again and again.
    pub flag: u64,
    /// The bytes that it reads once it has seen a value there: more and more of them.
    pub opens: Opens,
    /// Other words that it reads or writes at any moment.
    pub atomic: Vec<u64>,
    /// The host's stores in response to the flag.
    pub answers: Option<Answers>,
    /// The host's store after the loss of a device.
    pub on_loss: Option<OnLoss>,
}

/// The host's store a number of steps after the loss of a device
/// ([`Launch::loss`](super::Launch::loss)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnLoss {
    /// Steps of all warps until the host learns of it.
    pub after: u64,
    /// Offset of a word of 32 bits.
    pub word: u64,
    /// Its new value.
    pub value: u32,
}

impl HostOrder {
    /// A word that the host acquires, and what it reads after it.
    pub fn new(param: &str, flag: u64, opens: Opens) -> HostOrder {
        HostOrder { param: param.into(), flag, opens, atomic: Vec::new(), answers: None, on_loss: None }
    }

    /// Adds a word that the host reads or writes at any moment.
    #[must_use]
    pub fn atomic(mut self, word: u64) -> HostOrder {
        self.atomic.push(word);
        self
    }

    /// Sets the host's stores in response to the flag, one after the other: to
    /// [`atomic`](HostOrder::atomic) words, and before these to others that they release.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tilewright_codegen::build::{block, record};
    /// use tilewright_codegen::ir::{Arch, attr::Scope};
    /// use tilewright_codegen::sim::{self, Arg, HostOrder, Launch, Memory};
    /// use tilewright_codegen::verify::verify;
    ///
    /// // One word says that the kernel is there, another that it may go.
    /// let kernel = verify(record("wait", Arch::Sm90a, block(32), |k| {
    ///     let words = k.global::<u32>("words");
    ///     k.when(k.tid().eq(0), || {
    ///         words.store_release(1u32, Scope::Sys);
    ///         k.loop_(|| k.break_if(words.at(1).load_relaxed(Scope::Sys).eq(7)));
    ///     });
    /// })).unwrap();
    /// let host = HostOrder::new("words", 0, Arc::new(|_| 0..0)).atomic(4);
    /// let run = |host| {
    ///     let mut memory = Memory::new();
    ///     let words = memory.zeros("words", 8);
    ///     let launch = Launch { host: Some(host), ..Launch::new([1, 1, 1], vec![Arg::Ptr(words)]) };
    ///     sim::run(&kernel, &launch, &mut memory, 0).unwrap().fault().map(|fault| fault.kind.name())
    /// };
    /// assert_eq!(run(host.clone()), Some("deadlock"));
    /// assert_eq!(run(host.answering(Arc::new(|seen| if seen == 1 { vec![(4, 7)] } else { Vec::new() }))), None);
    /// ```
    #[must_use]
    pub fn answering(self, answers: Answers) -> HostOrder {
        HostOrder { answers: Some(answers), ..self }
    }

    /// Sets the host's store to an [`atomic`](HostOrder::atomic) word after the loss of a device.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tilewright_codegen::build::{block, record};
    /// use tilewright_codegen::ir::{Arch, attr::Scope};
    /// use tilewright_codegen::sim::{self, Arg, HostOrder, Launch, Left, Loss, Memory, OnLoss};
    /// use tilewright_codegen::verify::verify;
    ///
    /// // Waits for a word that the other device would store, or for the host.
    /// let kernel = verify(record("wait", Arch::Sm90a, block(32), |k| {
    ///     let words = k.global::<u32>("words");
    ///     k.when(k.tid().eq(0), || {
    ///         k.loop_(|| k.break_if(words.load_relaxed(Scope::Sys).ne(0)));
    ///     });
    /// })).unwrap();
    /// let host = HostOrder::new("words", 4, Arc::new(|_| 0..0)).atomic(0);
    /// let run = |host| {
    ///     let mut memory = Memory::new();
    ///     let first = vec![Arg::Ptr(memory.zeros("words", 8))];
    ///     let peers = vec![first.clone()];
    ///     let loss = Some(Loss { device: 1, step: 20 });
    ///     let launch = Launch { host: Some(host), peers, loss, ..Launch::new([1, 1, 1], first) };
    ///     sim::run(&kernel, &launch, &mut memory, 0).unwrap().finished().unwrap().left
    /// };
    /// assert!(matches!(run(host.clone()), Some(Left::Standing(_))));
    /// assert_eq!(run(host.on_loss(OnLoss { after: 100, word: 0, value: 1 })), Some(Left::Ended));
    /// ```
    #[must_use]
    pub fn on_loss(self, on_loss: OnLoss) -> HostOrder {
        HostOrder { on_loss: Some(on_loss), ..self }
    }
}

impl fmt::Debug for HostOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostOrder { param, flag, atomic, answers, on_loss, .. } = self;
        let answers = &answers.is_some();
        let mut text = f.debug_struct("HostOrder");
        text.field("param", param).field("flag", flag).field("atomic", atomic).field("answers", answers);
        text.field("on_loss", on_loss).finish()
    }
}

impl PartialEq for HostOrder {
    fn eq(&self, other: &HostOrder) -> bool {
        let answers = match (&self.answers, &other.answers) {
            (Some(answers), Some(others)) => Arc::ptr_eq(answers, others),
            (answers, others) => answers.is_none() && others.is_none(),
        };
        (&self.param, self.flag, &self.atomic, self.on_loss) == (&other.param, other.flag, &other.atomic, other.on_loss)
            && Arc::ptr_eq(&self.opens, &other.opens)
            && answers
    }
}
