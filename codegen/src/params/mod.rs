//! Declared parameters: one struct names the parameters of a kernel where it is recorded and where
//! it is launched.
//!
//! [`kernel_params!`](crate::kernel_params) declares the struct. [`Builder::params`] records its
//! fields as parameters, and [`Kernel::typed`] gives a launcher that takes the struct with buffers
//! and numbers in it. A field that is swapped, missing or of another element type is an error of
//! the Rust compiler.
//!
//! ```
//! use tilewright_codegen::build::{Builder, block, record};
//! use tilewright_codegen::device::sim;
//! use tilewright_codegen::ir::Arch;
//! use tilewright_codegen::kernel_params;
//! use tilewright_codegen::verify::verify;
//!
//! kernel_params! {
//!     /// y = a · x + y over `n` elements.
//!     pub struct Saxpy {
//!         n: u32,
//!         a: f32,
//!         x: [f32],
//!         y: [f32],
//!     }
//! }
//!
//! fn saxpy(k: &Builder) {
//!     let Saxpy { n, a, x, y } = k.params::<Saxpy>();
//!     let i = k.block_id() * k.threads() + k.tid();
//!     k.when(i.lt(n), || y.at(i).store(x.at(i).load().fma(a, y.at(i).load())));
//! }
//!
//! let kernel = verify(record("saxpy", Arch::Sm90a, block(128), saxpy))?;
//! let device = sim::open(0);
//! let stream = device.stream()?;
//! let x = stream.buffer(&[1.0f32, 2.0, 3.0])?;
//! let y = stream.buffer(&[10.0f32, 20.0, 30.0])?;
//! let saxpy = device.load(&kernel)?.typed::<Saxpy>()?;
//! saxpy.launch(&stream, 1, Saxpy { n: 3, a: 2.0, x: &x, y: &y })?;
//! assert_eq!(stream.read(&y)?, [12.0, 24.0, 36.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::build::{Builder, Global, Param as InParams, Ptr, Scalar, TensorMap as Map, Val};
use crate::device::{Arg, Buffer, DeviceError, Grid, Kernel, Stream, TensorMap, Work};
use crate::ir::{Param, ParamKind, Space, Ty};
use bytemuck::Pod;
use core::marker::PhantomData;

/// The use of a declared struct, which decides the types of its fields.
pub trait ParamSide {
    /// The type of a field of kind `F` in this use.
    type Of<F: Field + ?Sized>;
}

/// The declaration itself: fields hold nothing. It is the default of a declared struct, so that its
/// name alone is a type.
#[derive(Clone, Copy, Debug)]
pub enum Declared {}

/// The kernel's side: fields hold values and pointers that are recorded.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'k>(PhantomData<&'k Builder>);

/// The launch's side: fields hold numbers, buffers and tensor maps.
#[derive(Clone, Copy, Debug)]
pub struct Passed<'a>(PhantomData<&'a ()>);

impl ParamSide for Declared {
    type Of<F: Field + ?Sized> = ();
}

impl<'k> ParamSide for Recorded<'k> {
    type Of<F: Field + ?Sized> = F::Recorded<'k>;
}

impl<'a> ParamSide for Passed<'a> {
    type Of<F: Field + ?Sized> = F::Passed<'a>;
}

/// The kind of a declared field: a scalar such as `u32`, a buffer such as `[f32]`, or a
/// [`TensorMap`](crate::build::TensorMap).
pub trait Field {
    /// The type of the field in a recorded kernel.
    type Recorded<'k>;
    /// The type of the field in a launch.
    type Passed<'a>;

    /// The parameter, with its name.
    fn declare(name: &str) -> Param;

    /// Records the parameter.
    #[track_caller]
    fn record<'k>(k: &'k Builder, name: &str) -> Self::Recorded<'k>;

    /// The launch's argument.
    fn arg<'a>(passed: Self::Passed<'a>) -> Arg<'a>;
}

impl<T: Scalar> Field for T {
    type Recorded<'k> = Val<'k, T>;
    type Passed<'a> = T;

    fn declare(name: &str) -> Param {
        Param { name: name.into(), kind: ParamKind::Value(T::TY), elements: Vec::new() }
    }

    #[track_caller]
    fn record<'k>(k: &'k Builder, name: &str) -> Val<'k, T> {
        k.param(name)
    }

    fn arg<'a>(passed: Self::Passed<'a>) -> Arg<'a> {
        Arg::Scalar(passed.constant())
    }
}

impl<T: Scalar + Pod> Field for [T] {
    type Recorded<'k> = Ptr<'k, Global, T>;
    type Passed<'a> = &'a Buffer<T>;

    fn declare(name: &str) -> Param {
        Param { name: name.into(), kind: ParamKind::Value(Ty::Ptr(Space::Global)), elements: vec![T::TY] }
    }

    #[track_caller]
    fn record<'k>(k: &'k Builder, name: &str) -> Ptr<'k, Global, T> {
        k.global(name)
    }

    fn arg<'a>(passed: Self::Passed<'a>) -> Arg<'a> {
        passed.into()
    }
}

impl Field for Map {
    type Recorded<'k> = Ptr<'k, InParams, Map>;
    type Passed<'a> = &'a TensorMap;

    fn declare(name: &str) -> Param {
        Param { name: name.into(), kind: ParamKind::TensorMap, elements: Vec::new() }
    }

    #[track_caller]
    fn record<'k>(k: &'k Builder, name: &str) -> Ptr<'k, InParams, Map> {
        k.tensor_map(name)
    }

    fn arg<'a>(passed: Self::Passed<'a>) -> Arg<'a> {
        passed.into()
    }
}

/// Parameters of a kernel, declared as one struct by [`kernel_params!`](crate::kernel_params).
pub trait Params {
    /// The struct on a side.
    type On<S: ParamSide>;

    /// The parameters in order.
    fn declared() -> Vec<Param>;

    /// Records the parameters.
    #[track_caller]
    fn record(k: &Builder) -> Self::On<Recorded<'_>>;

    /// The arguments of a launch, in order.
    fn args<'a>(passed: Self::On<Passed<'a>>) -> Vec<Arg<'a>>;
}

/// Declares the parameters of a kernel: a struct whose fields are scalars (`n: u32`), buffers
/// (`x: [f32]`) or tensor maps (`map: TensorMap`). The [module](crate::params) has an example.
#[macro_export]
macro_rules! kernel_params {
    ($(#[$doc:meta])* $vis:vis struct $Name:ident { $($(#[$of:meta])* $field:ident: $Kind:ty),+ $(,)? }) => {
        $(#[$doc])*
        $vis struct $Name<S: $crate::params::ParamSide = $crate::params::Declared> {
            $(
                #[doc = concat!("Parameter `", stringify!($field), "`.")]
                $(#[$of])*
                pub $field: S::Of<$Kind>,
            )+
        }

        impl $crate::params::Params for $Name {
            type On<S: $crate::params::ParamSide> = $Name<S>;

            fn declared() -> ::std::vec::Vec<$crate::ir::Param> {
                ::std::vec![$(<$Kind as $crate::params::Field>::declare(stringify!($field))),+]
            }

            #[track_caller]
            fn record(k: &$crate::build::Builder) -> $Name<$crate::params::Recorded<'_>> {
                $Name { $($field: <$Kind as $crate::params::Field>::record(k, stringify!($field)),)+ }
            }

            fn args<'a>(passed: Self::On<$crate::params::Passed<'a>>) -> ::std::vec::Vec<$crate::device::Arg<'a>> {
                ::std::vec![$(<$Kind as $crate::params::Field>::arg(passed.$field)),+]
            }
        }
    };
}

impl Builder {
    /// The parameters that a struct declares, by [`kernel_params!`](crate::kernel_params).
    #[track_caller]
    pub fn params<P: Params>(&self) -> P::On<Recorded<'_>> {
        P::record(self)
    }
}

impl Kernel {
    /// A launcher that takes the declared struct.
    ///
    /// # Errors
    /// [`DeviceError::Declared`] where the kernel has other parameters, by name, order, kind or
    /// element type.
    pub fn typed<P: Params>(&self) -> Result<TypedKernel<P>, DeviceError> {
        let declared = P::declared();
        let found = &self.signature().params;
        let differs = (0..declared.len().max(found.len())).find(|&index| declared.get(index) != found.get(index));
        match differs {
            None => Ok(TypedKernel { kernel: self.clone(), of: PhantomData }),
            Some(index) => Err(DeviceError::Declared {
                kernel: self.signature().name.clone(),
                index,
                declared: declared.get(index).map_or("no parameter".into(), ToString::to_string),
                found: found.get(index).map_or("no parameter".into(), ToString::to_string),
            }),
        }
    }
}

/// A loaded kernel whose launches take the declared struct `P`. Clones share the kernel.
pub struct TypedKernel<P> {
    kernel: Kernel,
    of: PhantomData<fn(P)>,
}

impl<P: Params> TypedKernel<P> {
    /// Queues a launch: see [`Kernel::launch`].
    ///
    /// # Errors
    /// As [`Kernel::launch`].
    pub fn launch(&self, stream: &Stream, grid: impl Into<Grid>, args: P::On<Passed<'_>>) -> Result<(), DeviceError> {
        self.kernel.launch(stream, grid, &P::args(args))
    }

    /// A launch as work: see [`Kernel::work`].
    ///
    /// # Errors
    /// As [`Kernel::work`].
    pub fn work(&self, grid: impl Into<Grid>, args: P::On<Passed<'_>>) -> Result<Work, DeviceError> {
        self.kernel.work(grid, &P::args(args))
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }
}

impl<P> Clone for TypedKernel<P> {
    fn clone(&self) -> TypedKernel<P> {
        TypedKernel { kernel: self.kernel.clone(), of: PhantomData }
    }
}

impl<P> core::fmt::Debug for TypedKernel<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("TypedKernel").field(&self.kernel).finish()
    }
}
