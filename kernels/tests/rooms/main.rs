//! Private parts of the library's modules: no other file names them, except files that are listed
//! with a reason.

mod mma;
mod ring;
mod tree;
