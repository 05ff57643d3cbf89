//! Formats and the metadata of tensors.

use proptest::prelude::*;
use tilewright_layout::DType;
use tilewright_layout::tensor::{
    AnyFormat, Batched, Format, Paged, Parameter, Ragged, ShapeError, TensorId, TensorPlace, VTensor,
};

fn tensor(shape: &[usize]) -> Result<VTensor, ShapeError> {
    VTensor::new(shape, DType::BF16, TensorPlace::Device(1), Format::Batched, TensorId(3))
}

#[test]
fn only_dimensions_one_and_two_are_padded() {
    for (shape, padded) in [
        (&[][..], &[][..]),
        (&[5], &[5]),
        (&[5, 5], &[5, 8]),
        (&[8, 5, 128], &[8, 8, 128]),
        (&[8, 4, 128], &[8, 4, 128]),
        (&[3, 0, 1], &[3, 1, 1]),
        (&[7, 7, 7, 7], &[7, 8, 8, 7]),
    ] {
        let t = tensor(shape).unwrap();
        assert_eq!((t.shape().extents(), t.padded_shape().extents()), (shape, padded));
        assert_eq!(t.needs_padding(), shape != padded);
    }
}

#[test]
fn a_shape_that_does_not_fit_is_refused_with_its_numbers() {
    assert_eq!(tensor(&[1; 9]), Err(ShapeError::Rank { given: 9 }));
    assert_eq!(tensor(&[1, usize::MAX]), Err(ShapeError::Extent { dim: 1, extent: usize::MAX }));
    let t = tensor(&[8, 5, 128]).unwrap();
    assert_eq!(t.with_padded_shape(&[8, 4, 128]), Err(ShapeError::Extent { dim: 1, extent: 4 }));
    assert_eq!(t.with_padded_shape(&[8, 8]), Err(ShapeError::Rank { given: 2 }));
    assert_eq!(t.with_padded_shape(&[8, 16, 128]).unwrap().padded_shape().extents(), [8, 16, 128]);
    assert_eq!(tensor(&[usize::MAX, 2]).unwrap().shape().elements(), None);
}

#[test]
fn retagging_makes_a_new_tensor_and_keeps_the_padding() {
    let q = tensor(&[8, 5, 128]).unwrap().with_padded_shape(&[8, 16, 128]).unwrap();
    let o = q.retagged_as::<Paged>(TensorId(9));
    assert_eq!((q.format(), q.id()), (Format::Batched, TensorId(3)));
    assert_eq!((o.format(), o.id()), (Format::Paged, TensorId(9)));
    assert_eq!(
        (o.shape(), o.padded_shape(), o.dtype(), o.place()),
        (q.shape(), q.padded_shape(), q.dtype(), q.place())
    );
    assert_eq!(format!("{o:?}"), "#9 paged [8, 5, 128] bf16 on device 1, padded to [8, 16, 128]");
}

#[test]
fn a_marker_is_its_format() {
    assert_eq!([Batched::FORMAT, Ragged::FORMAT, Paged::FORMAT, Parameter::FORMAT], Format::ALL);
    for format in Format::ALL {
        assert_eq!(Format::from_name(&format.to_string()), Some(format));
    }
    assert_eq!(Format::from_name("dense"), None);
}

proptest! {
    #[test]
    fn padding_is_the_least_power_of_two_that_fits(shape in prop::collection::vec(0usize..5000, 0..=8)) {
        let padded = tensor(&shape).unwrap().padded_shape();
        for (dim, (&extent, &wide)) in shape.iter().zip(padded.extents()).enumerate() {
            if dim == 1 || dim == 2 {
                prop_assert!(wide.is_power_of_two() && wide >= extent && (wide == 1 || wide / 2 < extent));
            } else {
                prop_assert_eq!(wide, extent);
            }
        }
    }
}
