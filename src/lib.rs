//! tilewright: typed layouts, tile kernels and a persistent megakernel for language models on NVIDIA GPUs.

pub mod cli;
