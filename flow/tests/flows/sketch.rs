//! A flow in a closure, for tests.

use tilewright_flow::prelude::*;

/// Fields `f0..` that hold what `cache` says of a block, states `s0..`, and an indexer.
pub struct Sketch<C, I> {
    pub fields: Vec<[Dim; 2]>,
    /// Shape and reset value.
    pub states: Vec<([Dim; 2], f64)>,
    pub parameters: Vec<[Dim; 2]>,
    pub cache: C,
    pub indexer: I,
}

/// The declarations of a sketch.
pub struct Handles {
    pub fields: Vec<Field>,
    pub parameters: Vec<FlowParameter>,
}

/// A sketch of all its parts.
pub fn sketch<C, I>(
    fields: &[[Dim; 2]],
    states: &[([Dim; 2], f64)],
    parameters: &[[Dim; 2]],
    cache: C,
    indexer: I,
) -> Sketch<C, I>
where
    C: Fn(&Block<'_>, &Handles),
    I: for<'t> Fn(Step<'t>, &Handles, Vec<State>) -> Done<'t>,
{
    Sketch { fields: fields.to_vec(), states: states.to_vec(), parameters: parameters.to_vec(), cache, indexer }
}

/// A sketch that only scores: no fields, no states.
pub fn scores<I>(indexer: I) -> Sketch<fn(&Block<'_>, &Handles), I>
where
    I: for<'t> Fn(Step<'t>, &Handles, Vec<State>) -> Done<'t>,
{
    Sketch { fields: vec![], states: vec![], parameters: vec![], cache: |_, _| {}, indexer }
}

impl<C, I> Flow for Sketch<C, I>
where
    C: Fn(&Block<'_>, &Handles),
    I: for<'t> Fn(Step<'t>, &Handles, Vec<State>) -> Done<'t>,
{
    type Fields = Handles;
    type State = Vec<State>;

    fn name(&self) -> &str {
        "sketch"
    }

    fn fields(&self, declare: &mut Declare) -> Handles {
        let fields = self.fields.iter().enumerate().map(|(i, shape)| declare.field(&format!("f{i}"), *shape)).collect();
        let mut parameter = |(i, shape): (usize, &[Dim; 2])| declare.parameter(&format!("p{i}"), *shape);
        Handles { fields, parameters: self.parameters.iter().enumerate().map(&mut parameter).collect() }
    }

    fn state(&self, declare: &mut DeclareState) -> Vec<State> {
        let state = |(i, (shape, reset)): (usize, &([Dim; 2], f64))| declare.state(&format!("s{i}"), *shape, *reset);
        self.states.iter().enumerate().map(state).collect()
    }

    fn forward_cache(&self, block: &Block<'_>, handles: &Handles) {
        (self.cache)(block, handles);
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, handles: &Handles, states: Vec<State>) -> Done<'t> {
        (self.indexer)(step, handles, states)
    }
}
