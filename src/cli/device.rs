//! The option `--device` and its default, the same for every command that runs on a device.

use clap::Args;
use thiserror::Error;
use tilewright_codegen::device::Name;

use super::paint::{self, Word};
use crate::engine::{Device, NoFirstGpu, first_gpu};

/// The device of a command that also runs on the CPU.
#[derive(Args)]
pub struct DeviceArgs {
    /// Where to run: cpu, cpu:N (N threads), cuda:N, cuda:A-B (GPUs that share the model), or
    /// sim:SEED (a simulated GPU, slow) [default: cuda:0 if there is one, else cpu]
    #[arg(long, value_name = "DEVICE")]
    device: Option<Device>,
}

/// The device of a command that needs a GPU.
#[derive(Args)]
pub struct GpuArgs {
    /// Where to run: cuda:N, cuda:A-B (GPUs that share the model), or sim:SEED (a simulated GPU,
    /// whose times mean nothing) [default: cuda:0]
    #[arg(long, value_name = "DEVICE")]
    device: Option<Device>,
}

/// The error that a command needs a GPU and there is none.
#[derive(Debug, Error)]
#[error("this command needs a GPU, and {why}; give --device sim to run it on the simulator, whose times mean nothing")]
pub struct NoGpu {
    why: NoFirstGpu,
}

impl DeviceArgs {
    /// The device that was given.
    pub fn given(&self) -> Option<Device> {
        self.device
    }

    /// The device that was given, or the default. The default is a line on standard error if a
    /// person reads along.
    pub fn get(&self) -> Device {
        if let Some(device) = self.device {
            return device;
        }
        match first_gpu() {
            Ok(name) => {
                say(&format!("running on cuda:0, {name}; --device chooses another device"));
                Device::Cuda { ordinal: 0 }
            }
            Err(why) => {
                say(&format!("running on cpu: {why}"));
                Device::cpu()
            }
        }
    }
}

impl GpuArgs {
    /// The device that was given, or `cuda:0`.
    ///
    /// # Errors
    /// [`NoGpu`] if none was given and there is no GPU.
    pub fn get(&self) -> Result<Device, NoGpu> {
        if let Some(device) = self.device {
            return Ok(device);
        }
        let name = first_gpu().map_err(|why| NoGpu { why })?;
        say(&format!("running on cuda:0, {name}"));
        Ok(Device::Cuda { ordinal: 0 })
    }
}

/// The default device of `selftest`: `cuda:0` if there is one, else the simulator.
pub fn default_kernel_device() -> Name {
    match first_gpu() {
        Ok(name) => {
            say(&format!("running on cuda:0, {name}; --device chooses another device"));
            Name::Cuda { ordinal: 0 }
        }
        Err(why) => {
            say(&format!("running on the simulator: {why}"));
            Name::Sim { seed: 0 }
        }
    }
}

fn say(text: &str) {
    if paint::is_watched() {
        paint::line(Word::Note, text);
    }
}
