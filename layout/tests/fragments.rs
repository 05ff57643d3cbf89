//! The fragment layouts against the golden vectors, and their laws.

use std::collections::BTreeSet;

use serde_json::Value;
use tilewright_layout::fragment::{ATOMS, Atom, FragmentLayout, Instruction, MmaOperand, WGMMA_FAMILIES, fragment};

/// Every atom there is: the rows, and all widths of the `wgmma` families.
fn every_atom() -> Vec<Atom> {
    let mut atoms = ATOMS.to_vec();
    for family in WGMMA_FAMILIES {
        for n in (8..=256).step_by(8) {
            atoms.extend([false, true].into_iter().filter_map(|registers| Atom::wgmma(family, n, registers)));
        }
    }
    atoms
}

fn text(tuple: &Value) -> String {
    match tuple {
        Value::Array(modes) => format!("({})", modes.iter().map(text).collect::<Vec<_>>().join(",")),
        leaf => leaf.to_string(),
    }
}

fn layout_text(layout: &Value) -> String {
    format!("{}:{}", text(&layout["shape"]), text(&layout["stride"]))
}

#[test]
fn every_golden_fragment() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/mma_fragments.jsonl");
    let mut cases = 0;
    let mut tables = 0;
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let id = &case["id"];
        let out = &case["out"];
        let atom = Atom::named(case["args"][0].as_str().unwrap()).unwrap_or_else(|| panic!("{id}: no such atom"));
        let operand = MmaOperand::ALL.into_iter().find(|o| case["args"][1] == o.name()).unwrap();
        let FragmentLayout { mnk, rows, cols, thr_id, layout } = fragment(&atom, operand);
        assert_eq!(text(&out["mnk"]), format!("({},{},{})", mnk[0], mnk[1], mnk[2]), "{id}");
        assert_eq!((out["rows"].as_i64(), out["cols"].as_i64()), (Some(rows), Some(cols)), "{id}");
        assert_eq!(layout_text(&out["thr_id"]), thr_id.to_string(), "{id}");
        assert_eq!(layout_text(&out["layout"]), layout.to_string(), "{id}");
        if let Some(table) = out["table"].as_array() {
            for (thread, values) in table.iter().enumerate() {
                for (value, index) in values.as_array().unwrap().iter().enumerate() {
                    let (row, col) = fragment(&atom, operand).element(thread as i64, value as i64);
                    assert_eq!(index.as_i64(), Some(row + rows * col), "{id}: thread {thread}, value {value}");
                }
            }
            tables += 1;
        }
        cases += 1;
    }
    assert!(cases >= 50 && tables >= 25, "{cases} cases with {tables} tables: the file is cut");
}

#[test]
fn the_threads_of_a_register_fragment_hold_each_element_once() {
    for atom in every_atom() {
        for operand in MmaOperand::ALL {
            let f = fragment(&atom, operand);
            let shared = f.layout.mode(0).unwrap().strides() == [0];
            let threads = if shared { 1 } else { f.threads() };
            let size = f.rows * f.cols;
            assert_eq!(threads * f.values(), size, "{} {operand:?}", atom.name().as_str());
            let mut seen = BTreeSet::new();
            for thread in 0..threads {
                for value in 0..f.values() {
                    let (row, col) = f.element(thread, value);
                    assert!((0..f.rows).contains(&row) && (0..f.cols).contains(&col));
                    assert!(seen.insert((row, col)), "{} {operand:?} holds {row},{col} twice", atom.name().as_str());
                }
            }
        }
    }
}

#[test]
fn only_what_wgmma_reads_from_shared_memory_is_seen_by_every_thread() {
    for atom in every_atom() {
        for operand in MmaOperand::ALL {
            let expected = match (atom.instruction, operand) {
                (Instruction::Wgmma { .. }, MmaOperand::B) => true,
                (Instruction::Wgmma { a_in_registers }, MmaOperand::A) => !a_in_registers,
                _ => false,
            };
            let shared = fragment(&atom, operand).layout.mode(0).unwrap().strides() == [0];
            assert_eq!(shared, expected, "{} {operand:?}", atom.name().as_str());
        }
    }
}

/// The formulas of the PTX ISA's figures, written out for one atom of each kind.
#[test]
fn the_figures_of_the_instruction_set() {
    let at = |name: &str, operand, thread: i64, value: i64| {
        fragment(&Atom::named(name).unwrap(), operand).element(thread, value)
    };
    for lane in 0..32 {
        let group = lane / 4;
        let within = lane % 4;
        for i in 0..8 {
            // m16n8k16, 16-bit A: rows 8 apart for odd pairs, columns 8 apart for the upper half.
            let row = if i % 4 < 2 { group } else { group + 8 };
            let col = within * 2 + i % 2 + if i >= 4 { 8 } else { 0 };
            assert_eq!(at("SM80_16x8x16_F32F16F16F32_TN", MmaOperand::A, lane, i), (row, col));
        }
        for i in 0..8 {
            // m16n8k32, 8-bit B: four neighbours per register, two registers 16 apart.
            let k = within * 4 + i % 4 + if i >= 4 { 16 } else { 0 };
            assert_eq!(at("SM89_16x8x32_F32E4M3E5M2F32_TN", MmaOperand::B, lane, i), (group, k));
        }
        for i in 0..4 {
            let row = if i < 2 { group } else { group + 8 };
            assert_eq!(at("SM80_16x8x64_S32U4S4S32_TN", MmaOperand::C, lane, i), (row, within * 2 + i % 2));
        }
    }
    for thread in 0..128 {
        // wgmma m64n32, accumulator: warps 16 rows apart, column groups of 8.
        for i in 0..16 {
            let row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2);
            assert_eq!(
                at("SM90_64x32x16_F32BF16BF16_RS", MmaOperand::C, thread, i),
                (row, 8 * (i / 4) + thread % 4 * 2 + i % 2)
            );
        }
    }
}

#[test]
fn axes_are_the_two_parts_of_every_element() {
    for atom in every_atom() {
        for operand in MmaOperand::ALL {
            let layout = fragment(&atom, operand);
            let axes = layout.axes();
            for thread in 0..layout.threads() {
                for value in 0..layout.values().min(64) {
                    let index = thread + layout.threads() * value;
                    let element = (axes.row.at(index), axes.col.at(index));
                    assert_eq!(element, layout.element(thread, value), "{} {}", atom.name().as_str(), operand.name());
                }
            }
        }
    }
}

#[test]
fn a_register_of_each_lane_is_a_matrix_that_its_rows_address() {
    for atom in ATOMS.iter().filter(|atom| atom.a.bits() <= 16 && atom.a.bits() == atom.b.bits()) {
        for operand in [MmaOperand::A, MmaOperand::B] {
            let layout = fragment(atom, operand);
            let packed = 32 / atom.a.bits();
            let rows = layout.matrix_rows(packed, false);
            for lane in 0..32 {
                for value in 0..layout.values() {
                    // Register r of lane l holds unit l % 4 of row l / 4 of matrix r.
                    let register = value / packed;
                    let part = value % packed;
                    let start = rows.at(lane / 4 + 8 * register);
                    let column = start / layout.rows + lane % 4 * packed + part;
                    assert_eq!(layout.element(lane, value), (start % layout.rows, column), "{}", atom.name().as_str());
                }
            }
        }
    }
}
