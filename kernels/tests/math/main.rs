//! Elementary functions against f64: all f16, all bf16, and 10⁶ f32 of which a run takes a part.
//!
//! On the simulator, or on the device that `TILEWRIGHT_DEVICE` names.

mod accurate;
mod fast;
mod special;
mod table;
