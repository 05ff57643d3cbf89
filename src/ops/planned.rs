//! Arguments of a planned launch: tensor maps, addresses and numbers in place of names.

use tilewright_codegen::device::{Arg, DeviceError, TensorMap, TensorShape};
use tilewright_kernels::gemm::Argument;

/// Hands a launch its arguments: `map` makes tensor maps of the buffers that are named, `pointer`
/// addresses.
///
/// # Errors
/// Those of `map` and of `run`.
pub(crate) fn with_arguments<'b, B: Copy, T>(
    arguments: &[Argument<B>],
    map: impl Fn(B, TensorShape) -> Result<TensorMap, DeviceError>,
    pointer: impl Fn(B) -> Arg<'b>,
    run: impl FnOnce(&[Arg<'_>]) -> Result<T, DeviceError>,
) -> Result<T, DeviceError> {
    let maps = arguments.iter().map(|argument| match argument {
        Argument::Map(of, shape) => map(*of, shape.clone()).map(Some),
        Argument::Pointer(_) | Argument::Number(_) => Ok(None),
    });
    let maps = maps.collect::<Result<Vec<Option<TensorMap>>, _>>()?;
    let args = arguments.iter().zip(&maps).filter_map(|(argument, map)| match argument {
        Argument::Number(number) => Some((*number).into()),
        Argument::Pointer(of) => Some(pointer(*of)),
        Argument::Map(..) => map.as_ref().map(Arg::Map),
    });
    run(&args.collect::<Vec<Arg<'_>>>())
}
