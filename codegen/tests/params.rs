//! Signatures are typed: element types, names and order are compared before a launch.

use half::bf16;
use tilewright_codegen::build::{Builder, Bulk, TensorMap, block, record};
use tilewright_codegen::device::{Arg, Device, DeviceError, Kernel, TensorShape, sim};
use tilewright_codegen::ir::{Arch, Ty};
use tilewright_codegen::kernel_params;
use tilewright_codegen::params::Params;
use tilewright_codegen::verify::verify;
use tilewright_layout::DType;

kernel_params! {
    /// A matrix of `m` rows and `n` columns.
    struct Scale {
        m: u32,
        /// The columns.
        n: u32,
        factor: f32,
        x: [bf16],
        out: [f32],
    }
}

kernel_params! {
    struct Swapped { n: u32, m: u32, factor: f32, x: [bf16], out: [f32] }
}

kernel_params! {
    struct Longer { m: u32, n: u32, factor: f32, x: [bf16], out: [f32], extra: u64 }
}

kernel_params! {
    struct OtherElements { m: u32, n: u32, factor: f32, x: [f32], out: [f32] }
}

kernel_params! {
    struct Mapped { map: TensorMap, out: [u32] }
}

fn scale(k: &Builder) {
    let Scale { m, n, factor, x, out } = k.params::<Scale>();
    let row = k.tid() / 8;
    let column = k.tid() % 8;
    let at = row * n + column;
    k.when(row.lt(m) & column.lt(n), || out.at(at).store(factor * x.at(at).load().cast::<f32>()));
}

fn load(device: &Device) -> Kernel {
    device.load(&verify(record("scale", Arch::Sm90a, block(32), scale)).expect("it verifies")).expect("it loads")
}

#[test]
fn a_declared_struct_is_recorded_and_launched() {
    let device = sim::open(0);
    let stream = device.stream().unwrap();
    let x = stream.buffer(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].map(bf16::from_f32)).unwrap();
    let out = stream.buffer(&[0.0f32; 6]).unwrap();
    let scale = load(&device).typed::<Scale>().unwrap();
    scale.launch(&stream, 1, Scale { m: 2, n: 3, factor: 0.5, x: &x, out: &out }).unwrap();
    assert_eq!(stream.read(&out).unwrap(), [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]);
}

#[test]
fn another_struct_than_the_kernels_is_refused_with_both_parameters() {
    fn refused<P: Params>(kernel: &Kernel) -> String {
        kernel.typed::<P>().expect_err("it is another struct").to_string()
    }
    let kernel = load(&sim::open(0));
    let said = [refused::<Swapped>(&kernel), refused::<Longer>(&kernel), refused::<OtherElements>(&kernel)].join("\n");
    insta::assert_snapshot!(said, @"
    kernel `scale`: parameter 0 is `m`, a scalar of type u32, and the struct declares `n`, a scalar of type u32; record the kernel with this struct (`k.params`), or name its own
    kernel `scale`: parameter 5 is no parameter, and the struct declares `extra`, a scalar of type u64; record the kernel with this struct (`k.params`), or name its own
    kernel `scale`: parameter 3 is `x`, a pointer to bf16 in global memory, and the struct declares `x`, a pointer to f32 in global memory; record the kernel with this struct (`k.params`), or name its own
    ");
}

#[test]
fn a_buffer_of_other_elements_than_the_parameter_is_refused() {
    let device = sim::open(0);
    let stream = device.stream().unwrap();
    let x = stream.buffer(&[0.0f32; 6]).unwrap();
    let out = stream.buffer(&[0.0f32; 6]).unwrap();
    let scalars = || [2u32.into(), 3u32.into(), 0.5f32.into()];
    let [m, n, factor] = scalars();
    let error = load(&device).launch(&stream, 1, &[m, n, factor, (&x).into(), (&out).into()]).unwrap_err();
    assert!(matches!(error, DeviceError::ArgElement { index: 3, .. }), "{error}");
    insta::assert_snapshot!(error, @"kernel `scale`: argument 3 (`x`) is a buffer of f32, and the parameter points to bf16; pass a buffer of bf16, or the bytes (`Buffer::cast::<u8>`)");
    let bytes = x.cast::<u8>().unwrap();
    let [m, n, factor] = scalars();
    let args: [Arg<'_>; 5] = [m, n, factor, (&bytes).into(), (&out).into()];
    load(&device).launch(&stream, 1, &args).expect("bytes are anything");
}

#[test]
fn a_parameter_takes_the_types_of_elements_that_it_lists() {
    let kernel = verify(record("fill", Arch::Sm90a, block(32), |k| {
        let [sums, rest] = [("sums", &[Ty::F32, Ty::S32][..]), ("rest", &[])].map(|(name, of)| k.global_of(name, of));
        k.when(k.tid().eq(0), || {
            sums.cast::<u32>().store(7u32);
            rest.cast::<u32>().store(8u32);
        });
    }));
    let device = sim::open(0);
    let stream = device.stream().unwrap();
    let kernel = device.load(&kernel.expect("it verifies")).unwrap();
    let floats = stream.buffer(&[0.0f32]).unwrap();
    let integers = stream.buffer(&[0i32]).unwrap();
    let words = stream.buffer(&[0u32]).unwrap();
    let doubles = stream.buffer(&[0.0f64]).unwrap();
    for sums in [Arg::from(&floats), (&integers).into(), (&words).into()] {
        // Anything passes where no type is listed.
        kernel.launch(&stream, 1, &[sums, (&doubles).into()]).unwrap();
    }
    assert_eq!(stream.read(&integers).unwrap(), [7]);
    assert_eq!(stream.read(&doubles).unwrap()[0].to_bits(), 8);
    let error = kernel.launch(&stream, 1, &[(&doubles).into(), (&doubles).into()]).unwrap_err();
    insta::assert_snapshot!(error, @"kernel `fill`: argument 0 (`sums`) is a buffer of f64, and the parameter points to f32 or s32; pass a buffer of f32 or s32, or the bytes (`Buffer::cast::<u8>`)");
}

#[test]
fn tensor_maps_are_declared_too() {
    let copy = |k: &Builder| {
        let Mapped { map, out } = k.params::<Mapped>();
        let tile = k.shared_aligned::<u32>("tile", 32, 128);
        let full = k.mbarriers("full", 1);
        let leader = k.tid().eq(0);
        k.when(leader, || {
            full.init(1);
            k.fence_mbarrier_init();
            full.arrive_expect_tx(128);
            tile.tensor_load(map, &[k.lit(0), k.lit(0)], full, Bulk::default());
        });
        k.barrier();
        full.wait(0);
        out.at(k.tid()).store(tile.at(k.tid()).load());
    };
    let kernel = verify(record("copy", Arch::Sm90a, block(32), copy)).expect("it verifies");
    let device = sim::open(0);
    let stream = device.stream().unwrap();
    let numbers: Vec<u32> = (0..32).collect();
    let x = stream.buffer(&numbers).unwrap();
    let out = stream.buffer(&[0u32; 32]).unwrap();
    let map = device.tensor_map(&x, TensorShape::row_major(DType::U32, [1, 32], [1, 32])).unwrap();
    let copy = device.load(&kernel).unwrap().typed::<Mapped>().unwrap();
    copy.launch(&stream, 1, Mapped { map: &map, out: &out }).unwrap();
    assert_eq!(stream.read(&out).unwrap(), numbers);
}
