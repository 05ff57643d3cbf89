//! Tensor maps, encoded by the driver.

use super::context::CudaContext;
use super::probe::check;
use crate::device::{DeviceError, MAX_RANK, Outside, Promotion, TensorShape, TileSwizzle};
use cudarc::driver::sys::{
    self, CUtensorMap, CUtensorMapDataType as Data, CUtensorMapFloatOOBfill as Fill, CUtensorMapInterleave,
    CUtensorMapL2promotion as L2, CUtensorMapSwizzle as Swizzle,
};
use tilewright_layout::DType;

/// The map of a tensor at an address. The shape has been checked.
pub(super) fn encode(context: &CudaContext, shape: &TensorShape, address: u64) -> Result<[u8; 128], DeviceError> {
    shape.check()?;
    context.bind()?;
    let rank = shape.dims.len();
    let ones = [1u32; MAX_RANK];
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: the pointers are live, and each array has as many entries as the rank asks for:
    // `check` saw to it. The address is not dereferenced.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut map,
            data_type(shape.dtype),
            rank as u32,
            std::ptr::without_provenance_mut(address as usize),
            shape.dims.as_ptr(),
            shape.strides.as_ptr(),
            shape.tile.as_ptr(),
            ones.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle(shape.swizzle),
            promotion(shape.promotion),
            outside(shape.outside),
        )
    };
    check("cuTensorMapEncodeTiled", result)?;
    Ok(bytemuck::cast(map.opaque))
}

/// Formats that the copy engine does not tell apart travel as integers of their width.
const fn data_type(dtype: DType) -> Data {
    match dtype {
        DType::F64 => Data::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        DType::F32 => Data::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        DType::F16 => Data::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::BF16 => Data::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::I64 => Data::CU_TENSOR_MAP_DATA_TYPE_INT64,
        DType::U64 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        DType::I32 => Data::CU_TENSOR_MAP_DATA_TYPE_INT32,
        DType::U32 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        DType::I16 | DType::U16 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        DType::F8E4M3 | DType::F8E5M2 | DType::I8 | DType::U8 | DType::Bool => Data::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    }
}

const fn swizzle(swizzle: TileSwizzle) -> Swizzle {
    match swizzle {
        TileSwizzle::None => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        TileSwizzle::Bytes32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        TileSwizzle::Bytes64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        TileSwizzle::Bytes128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    }
}

const fn promotion(promotion: Promotion) -> L2 {
    match promotion {
        Promotion::None => L2::CU_TENSOR_MAP_L2_PROMOTION_NONE,
        Promotion::Bytes64 => L2::CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
        Promotion::Bytes128 => L2::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        Promotion::Bytes256 => L2::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    }
}

const fn outside(outside: Outside) -> Fill {
    match outside {
        Outside::Zero => Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        Outside::Nan => Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
    }
}
