//! Language models as graphs of tensor ops with named axes.
//!
//! A [`Graph`] is a list of ops in SSA form: each op reads values that earlier ops define. Values
//! have named axes (`rows`, `hidden`, `kv_heads`, …) and an element type; buffers, tiles and
//! processors do not appear. [`models`] makes the graph of a checkpoint from its `config.json`,
//! [`passes`] rewrite graphs, and [`interpret`] computes them in f64, which is the oracle of every
//! later stage.
//!
//! Each [`Graph`] is valid: [`Graph::check`] is the only way to make one, and reading one from JSON
//! runs it too.
//!
//! # Example
//! A gated MLP with its residual, and what its ops print:
//!
//! ```
//! use tilewright_graph::build::{Builder, Gated, Sizes};
//! use tilewright_graph::op::ActivationKind;
//!
//! let sizes = Sizes { hidden: 64, heads: 4, kv_heads: 2, head_dim: 16, inner: 96, vocab: 600 };
//! let builder = Builder::new("mlp", sizes, 1e-6);
//! let b = builder.root();
//! let x = b.embed(builder.tokens(), "embed");
//! let h = b.rms_norm(x, "norm");
//! let m = b.gated(h, Gated { gate: "gate", up: "up", bias: false, kind: ActivationKind::Silu });
//! let y = b.add(x, b.linear(m, "down"));
//! let graph = builder.finish(&[y])?;
//! assert!(graph.to_string().ends_with("v7: f32[rows, hidden 64] = add(a v1, b v6)\noutputs v7\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//! | module | contents | may import |
//! |---|---|---|
//! | [`dim`] | extents that are symbols of a model | |
//! | [`axis`] | named axes, extents, shapes, element types | `dim` |
//! | [`rows`] | ops on rows of blocks, which indexers of sparse attention are made of | `axis`, `dim` |
//! | [`op`] | the ops with their attributes | `axis`, `rows` |
//! | [`graph`](mod@graph) | values, weights, nodes, the checked graph | `axis`, `rows`, `op`, `error` |
//! | [`error`] | what can be wrong with a graph | `rows` |
//! | [`build`] | the builder that family pages are written with | `graph` and what it imports |
//! | [`models`] | a page per model family | `build` |
//! | [`interpret`] | the interpreter in f64 | `graph` and what it imports |
//! | [`picture`] | a graph as an image | `graph` and what it imports |
//! | [`passes`] | rewrites that keep what a graph computes | `graph` and what it imports |
//! | `testing` | random graphs and weights for property tests, with the feature `testing` | all |
#![forbid(unsafe_code)]

pub mod axis;
pub mod build;
mod check;
pub mod dim;
pub mod error;
pub mod graph;
mod ids;
mod index;
mod infer;
pub mod interpret;
pub mod models;
pub mod op;
mod parts;
pub mod passes;
pub mod picture;
pub mod rows;
#[cfg(feature = "testing")]
pub mod testing;
mod text;

pub use error::{GraphError, GraphErrors, Problem};
pub use graph::Graph;
