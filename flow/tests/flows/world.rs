//! Random batches: unequal lengths around every edge, shuffled page tables, and the same tokens for
//! every machine.

use std::collections::BTreeMap;

use tilewright_flow::memory::{Budget, FlowPool, FlowRequest};
use tilewright_flow::run::FlowExecutor;
use tilewright_flow::{BoundFlow, ModelShape, Parameters, Real, Traced};

/// A small generator of numbers; a failing test prints its seed.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed ^ 0x9E37_79B9_7F4A_7C15)
    }

    pub fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// An f32 from −1 to 1, as f64.
    pub fn unit(&mut self) -> f64 {
        f64::from((self.next() >> 40) as f32 / (1u32 << 23) as f32 - 1.0)
    }

    pub fn units(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.unit()).collect()
    }

    /// About normal.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() / 2.0
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// A batch: tokens of each request, their keys and values, and the queries of some steps.
#[derive(Clone, Debug)]
pub struct World {
    pub model: ModelShape,
    pub page_tokens: usize,
    pub budget: Budget,
    /// Tokens of each request before the first step.
    pub tokens: Vec<usize>,
    pub steps: usize,
    /// Keys and values by request: `[token, head, dim]`, with those that the steps append.
    pub keys: Vec<Vec<f64>>,
    pub values: Vec<Vec<f64>>,
    /// Queries by step: `[request, head·group, dim]`.
    pub queries: Vec<Vec<f64>>,
    /// Page tables by request.
    pub tables: Vec<Vec<usize>>,
    pub pages: usize,
}

impl World {
    pub fn new(rng: &mut Rng, model: ModelShape, page_blocks: usize, budget: Budget, tokens: &[usize]) -> World {
        let steps = 3;
        let page_tokens = page_blocks * model.block_tokens;
        let mut of = |n: usize, row: usize| rng.units(n * row);
        let row = model.kv_heads * model.head_dim;
        let keys: Vec<Vec<f64>> = tokens.iter().map(|t| of(t + steps, row)).collect();
        let values = tokens.iter().map(|t| of(t + steps, row)).collect();
        let queries = (0..steps).map(|_| of(tokens.len(), row * model.group)).collect();
        let needed: Vec<usize> = tokens.iter().map(|t| (t + steps).div_ceil(page_tokens)).collect();
        let pages = needed.iter().sum::<usize>() + 2;
        let mut free: Vec<usize> = (0..pages).collect();
        rng.shuffle(&mut free);
        let tables = needed.iter().map(|n| free.split_off(free.len() - n)).collect();
        World { model, page_tokens, budget, tokens: tokens.to_vec(), steps, keys, values, queries, tables, pages }
    }

    pub fn row(&self) -> usize {
        self.model.kv_heads * self.model.head_dim
    }

    /// The pool and the requests with their prompts, appended in pieces.
    pub fn fill<T: Real>(&self, machine: &impl FlowExecutor<T>, piece: usize) -> (FlowPool<T>, Vec<FlowRequest<T>>) {
        let mut pool = FlowPool::new(machine.bound(), self.page_tokens, self.pages).expect("a pool");
        let mut requests = Vec::new();
        for (request, tokens) in self.tokens.iter().enumerate() {
            requests.push(FlowRequest::new(&pool, &self.tables[request], 0).expect("a request"));
            for begin in (0..*tokens).step_by(piece.max(1)) {
                let range = begin..tokens.min(&(begin + piece.max(1))).to_owned();
                self.append(machine, &mut pool, &mut requests[request], request, range);
            }
        }
        (pool, requests)
    }

    /// Appends some of a request's tokens.
    pub fn append<T: Real>(
        &self,
        machine: &impl FlowExecutor<T>,
        pool: &mut FlowPool<T>,
        request: &mut FlowRequest<T>,
        number: usize,
        tokens: std::ops::Range<usize>,
    ) {
        let range = tokens.start * self.row()..tokens.end * self.row();
        let [keys, values] = [&self.keys, &self.values].map(|all| convert::<T>(&all[number][range.clone()]));
        machine.append(pool, request, &keys, &values).expect("tokens that fit");
    }

    /// All steps: what each row found.
    pub fn play<T: Real>(&self, machine: &impl FlowExecutor<T>, piece: usize) -> Played<T> {
        let (mut pool, mut requests) = self.fill(machine, piece);
        let mut outcomes = Vec::new();
        for step in 0..self.steps {
            for (number, request) in requests.iter_mut().enumerate() {
                let at = request.tokens();
                self.append(machine, &mut pool, request, number, at..at + 1);
            }
            let queries = convert::<T>(&self.queries[step]);
            outcomes.push(machine.step(&pool, &mut requests, &queries, &self.budget).expect("a step"));
        }
        Played { requests, outcomes }
    }
}

/// The results of a world's steps.
pub struct Played<T> {
    pub requests: Vec<FlowRequest<T>>,
    pub outcomes: Vec<Vec<tilewright_flow::run::RowOutcome<T>>>,
}

pub fn convert<T: Real>(numbers: &[f64]) -> Vec<T> {
    numbers.iter().map(|x| T::from_f64(*x)).collect()
}

/// Random values for the parameters of a flow.
pub fn parameters(rng: &mut Rng, traced: &Traced, model: &ModelShape) -> Parameters {
    let extents = traced.extents(model).expect("a model that fits");
    let declared = traced.declared.parameters.iter().zip(&extents.parameters);
    declared.map(|(p, [d0, d1])| (p.name.clone(), rng.units(model.kv_heads * d0 * d1))).collect::<BTreeMap<_, _>>()
}

/// The flow bound to a model, with random parameters.
pub fn bind<'f>(rng: &mut Rng, traced: &'f Traced, model: &ModelShape) -> BoundFlow<'f> {
    let parameters = parameters(rng, traced, model);
    traced.bind(model, &parameters).expect("a model that fits")
}
