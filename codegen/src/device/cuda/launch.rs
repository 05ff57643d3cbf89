//! Launches: the block, the cluster and the cooperation that a kernel's signature asks for.

use super::module::Function;
use super::probe::check;
use crate::device::DeviceError;
use cudarc::driver::sys::{
    self, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUresult, CUstream,
};
use std::ffi::{c_int, c_void};

/// 64 bytes of a parameter block, aligned as a tensor map must be.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct ParameterLine([u8; 64]);

/// Queues a launch.
pub(super) fn launch(function: &Function, stream: CUstream, grid: [u32; 3], params: &[u8]) -> Result<(), DeviceError> {
    let (spans, size) = &function.params;
    if params.len() != *size {
        return Err(DeviceError::Length { from: params.len(), to: *size });
    }
    // The driver reads each parameter where it is pointed to.
    let mut block: Vec<ParameterLine> = params
        .chunks(64)
        .map(|chunk| {
            let mut line = ParameterLine([0; 64]);
            line.0[..chunk.len()].copy_from_slice(chunk);
            line
        })
        .collect();
    let start = block.as_mut_ptr().cast::<u8>();
    let mut pointers: Vec<*mut c_void> = spans.iter().map(|&(offset, _)| start.wrapping_add(offset).cast()).collect();
    let mut attributes = attributes(function);
    let config = config(function, stream, grid, &mut attributes);
    // SAFETY: the function's module is loaded; the configuration's attributes and the pointers live
    // through the call; the pointers are as many as the compiled code has parameters, each with the
    // size it has there (`check_params`) inside the block; the driver copies the parameters before
    // it returns.
    let result = unsafe {
        sys::cuLaunchKernelEx(&raw const config, function.raw(), pointers.as_mut_ptr(), std::ptr::null_mut())
    };
    check("cuLaunchKernelEx", result)
}

/// Blocks resident on one multiprocessor, and on the device.
pub(super) fn resident(function: &Function) -> Result<(u32, u64), DeviceError> {
    let launch = &function.signature.launch;
    let context = function.context();
    let mut per_sm: c_int = 0;
    // SAFETY: the function's module is loaded and the pointer live.
    let result = unsafe {
        sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &raw mut per_sm,
            function.raw(),
            launch.threads_per_block() as c_int,
            function.signature.dynamic_shared as usize,
        )
    };
    check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
    let per_sm = u32::try_from(per_sm).unwrap_or(0);
    if launch.blocks_per_cluster() <= 1 {
        return Ok((per_sm, u64::from(per_sm) * u64::from(context.properties().sms)));
    }
    let mut clusters: c_int = 0;
    let mut attributes = attributes(function);
    let config = config(function, std::ptr::null_mut(), launch.cluster, &mut attributes);
    // SAFETY: as above; the configuration's attributes live through the call.
    let result = unsafe { sys::cuOccupancyMaxActiveClusters(&raw mut clusters, function.raw(), &raw const config) };
    if result == CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE {
        return Ok((per_sm, 0));
    }
    check("cuOccupancyMaxActiveClusters", result)?;
    Ok((per_sm, u64::try_from(clusters).unwrap_or(0) * u64::from(launch.blocks_per_cluster())))
}

fn config(
    function: &Function,
    stream: CUstream,
    grid: [u32; 3],
    attributes: &mut [CUlaunchAttribute],
) -> CUlaunchConfig {
    let [block_x, block_y, block_z] = function.signature.launch.threads;
    CUlaunchConfig {
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: block_x,
        blockDimY: block_y,
        blockDimZ: block_z,
        sharedMemBytes: function.signature.dynamic_shared,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    }
}

fn attributes(function: &Function) -> Vec<CUlaunchAttribute> {
    let launch = &function.signature.launch;
    let mut attributes = Vec::new();
    if launch.blocks_per_cluster() > 1 {
        let mut value = CUlaunchAttributeValue { pad: [0; 64] };
        let [x, y, z] = launch.cluster;
        value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        attributes.push(attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value));
    }
    if launch.cooperative {
        let mut value = CUlaunchAttributeValue { pad: [0; 64] };
        value.cooperative = 1;
        attributes.push(attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value));
    }
    if function.signature.early {
        let mut value = CUlaunchAttributeValue { pad: [0; 64] };
        value.programmaticStreamSerializationAllowed = 1;
        attributes.push(attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, value));
    }
    attributes
}

fn attribute(id: CUlaunchAttributeID, value: CUlaunchAttributeValue) -> CUlaunchAttribute {
    CUlaunchAttribute { id, pad: [0; 4], value }
}
