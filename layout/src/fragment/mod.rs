//! Fragment layouts: which element of a matrix operand each thread of a matrix instruction holds.
//!
//! A matrix instruction spreads its operands over the registers of 32 threads (`mma.sync`) or 128
//! (`wgmma`). A [`FragmentLayout`] sends (thread, value) to the element's linear index
//! `row + rows * column`. One table of [`Atom`]s serves every user of the mapping; no mapping is
//! listed, all follow from an atom's shape and element sizes.
//!
//! ```
//! use tilewright_layout::fragment::{Atom, MmaOperand, fragment};
//! const ATOM: Atom = Atom::named("SM80_16x8x16_F32BF16BF16F32_TN").unwrap();
//! let c = fragment(&ATOM, MmaOperand::C);
//! assert_eq!(c.layout.to_string(), "((4,8),(2,2)):((32,1),(16,8))");
//! // Thread 5 holds columns 2 and 3 of row 1, and of row 9.
//! assert_eq!([0, 1, 2, 3].map(|value| c.element(5, value)), [(1, 2), (1, 3), (9, 2), (9, 3)]);
//! ```
//!
//! The rule, from the fragment figures of the PTX ISA ("Warp-level Matrix Instructions",
//! "Asynchronous Warpgroup Level Matrix Instructions"): threads stand in groups of four. A group
//! owns one row (a column of B) in every eight; a register of 32 bits holds neighbours along the
//! contraction index, and the four threads of a group hold neighbouring registers. Accumulators
//! come in pairs along the columns. A warpgroup stacks its four warps along the rows, 16 apart.

mod atom;
mod axes;
mod element;
mod held;
mod instruction;
mod operand;
mod registers;
mod types;

pub use atom::{ATOMS, WGMMA_FAMILIES};
pub use axes::Axes;
pub use element::MmaElement;
pub use held::{FragmentLayout, fragment};
pub use instruction::{Atom, Instruction, WgmmaFamily};
pub use operand::MmaOperand;
pub use registers::{Registers, StaticFragment};
pub use types::{FragmentA, FragmentB, FragmentC, RegisterA, SharedA, SourceOfA, StaticAtom, WgmmaTypes, atoms};
