//! Names of ops: what is registered is read again, what is not is refused with one line.

use serde::{Deserialize, Serialize};
use tilewright_megakernel::ops::{Footprint, OperandError, Operands, RegisterError, TaskOp, register};
use tilewright_megakernel::program::Program;
use tilewright_megakernel::vm::reference::{Context, TaskFault};

use super::{SoftCap, capped};

/// An op that takes another's name.
macro_rules! named {
    ($Op:ident $name:literal) => {
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        struct $Op {}

        impl TaskOp for $Op {
            fn name() -> &'static str {
                $name
            }

            fn footprint(&self, _: &Operands) -> Result<Footprint, OperandError> {
                Ok(Footprint::default())
            }

            fn oracle(&self, _: &Context) -> Result<(), TaskFault> {
                Ok(())
            }
        }
    };
}

named!(Impostor "linear");
named!(Second "soft_cap");
named!(Shouting "SOFT CAP");

#[test]
fn a_program_with_a_registered_op_is_read_as_it_was_written() {
    let program = capped();
    let text = program.to_json().unwrap();
    let again = Program::from_json(&text).unwrap();
    assert_eq!(again, program);
    assert_eq!(again.to_json().unwrap(), text);
}

#[test]
fn an_op_that_is_not_registered_is_refused_with_one_line() {
    let text = capped().to_json().unwrap().replacen("\"soft_cap\"", "\"hard_cap\"", 1);
    let error = Program::from_json(&text).unwrap_err();
    let source = std::error::Error::source(&error).expect("the reason").to_string();
    assert!(source.starts_with("the op `hard_cap` is not registered; there are copy, embed, linear, "), "{source}");
    assert!(source.contains("soft_cap") && source.lines().count() == 1, "{source}");
    let unknown = capped().to_json().unwrap().replacen("\"cap\"", "\"lid\"", 1);
    let error = Program::from_json(&unknown).unwrap_err();
    let source = std::error::Error::source(&error).expect("the reason").to_string();
    assert!(source.contains("op `soft_cap`") && source.contains("lid"), "{source}");
}

#[test]
fn a_name_belongs_to_one_op() {
    assert_eq!(register::<SoftCap>(), Ok(()));
    assert_eq!(register::<SoftCap>(), Ok(()), "again");
    assert_eq!(register::<Second>(), Err(RegisterError::Taken { name: "soft_cap" }));
    assert_eq!(register::<Impostor>(), Err(RegisterError::Taken { name: "linear" }));
    assert_eq!(register::<Shouting>(), Err(RegisterError::Name { name: "SOFT CAP" }));
}
