//! Masks: whether a coordinate is inside, known while recording or while the kernel runs.

use super::element::zero;
use tilewright_codegen::build::{Builder, Scalar, Val};

/// Whether an element is there. Where that is known while recording, it costs nothing.
#[derive(Clone, Copy)]
pub struct Mask<'k> {
    k: &'k Builder,
    inside: Option<Val<'k, bool>>,
}

impl<'k> Mask<'k> {
    /// An element that is there.
    pub fn always(k: &'k Builder) -> Mask<'k> {
        Mask { k, inside: None }
    }

    /// An element that is there where the condition holds.
    pub fn of(inside: Val<'k, bool>) -> Mask<'k> {
        let always = inside.operand().as_const().is_some_and(|known| known.bits != 0);
        Mask { k: inside.builder(), inside: (!always).then_some(inside) }
    }

    /// The intersection of two masks.
    #[track_caller]
    pub fn and(self, other: Mask<'k>) -> Mask<'k> {
        match (self.inside, other.inside) {
            (Some(a), Some(b)) => Mask::of(a & b),
            (a, b) => Mask { inside: a.or(b), ..self },
        }
    }

    /// The condition; nothing where it always holds.
    pub fn condition(self) -> Option<Val<'k, bool>> {
        self.inside
    }

    /// The condition as a value.
    pub fn get(self) -> Val<'k, bool> {
        self.inside.unwrap_or_else(|| self.k.lit(true))
    }

    /// Records what is done where the element is there.
    #[track_caller]
    pub fn when(self, body: impl Fn()) {
        match self.inside {
            Some(inside) => self.k.when(inside, body),
            None => body(),
        }
    }

    /// Reads where the element is there, and gives zeros elsewhere, where nothing is read. A
    /// maximum or a minimum of the result is refused, since a zero that stands for no element would
    /// enter it: that takes [`or`](Mask::or).
    #[track_caller]
    pub fn or_zero<T: Scalar>(self, lanes: u32, read: &dyn Fn() -> Vec<Val<'k, T>>) -> Vec<Val<'k, T>> {
        let read = self.or(zero::<T>(self.k), lanes, read);
        if self.inside.is_some() { read.into_iter().map(|lane| self.k.padded(lane)).collect() } else { read }
    }

    /// Reads where the element is there, and gives `fill` elsewhere, where nothing is read.
    #[track_caller]
    pub fn or<T: Scalar>(self, fill: Val<'k, T>, lanes: u32, read: &dyn Fn() -> Vec<Val<'k, T>>) -> Vec<Val<'k, T>> {
        let Some(inside) = self.inside else { return read() };
        let kept = self.k.regs(lanes, fill);
        self.k.when(inside, || (0..).zip(read()).for_each(|(i, lane)| kept.set(i, lane)));
        (0..lanes).map(|i| kept.get(i)).collect()
    }
}
