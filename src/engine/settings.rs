//! Options of the device machine as settings, which have names, texts and a search.

use tilewright_megakernel::vm::device::DeviceOptions;
use tilewright_megakernel::vm::resident::StageOrder;

#[cfg(any(feature = "cli", test))]
use crate::tuning::SearchSpace;
use crate::tuning::{Settings, SettingsError};

/// The settings of a machine of `rows` rows that a search may change, from those of `options`;
/// `codes`: weights are quantised.
#[cfg(any(feature = "cli", test))]
pub(crate) fn space(mut options: DeviceOptions, rows: usize, codes: bool) -> SearchSpace {
    let shipped = Settings::default().with("stage_order", options.stage_order.name());
    let numbers = DeviceOptions::NUMBERS.iter();
    let shipped = numbers.fold(shipped, |all, (name, field)| all.with(name, *field(&mut options)));
    let space = SearchSpace::new(shipped)
        .axis("stage_bytes", [8192, 16384, 32768])
        .axis("in_flight", [1, 2, 3])
        .axis("burst", [2, 4, 8])
        .axis("split_tokens", [64, 128, 256, 512])
        .axis("warps", [8, 16])
        .axis("table_bytes", [0, 32768])
        .axis("stage_order", StageOrder::ALL.map(|(name, _)| name));
    // Stages of bf16 weights are prefetched at few rows; activations of many fill registers.
    match rows {
        0..=2 if codes => space,
        0..=2 => space.axis("prefetch_stages", [0, 2, 4]),
        _ => space.axis("activation_registers", [64, 128]),
    }
}

/// The settings of earlier builds: those that were renamed, and those that the planner's
/// thresholds replace.
const REMOVED: [(&str, &str); 11] = [
    ("dealing", "it is `stage_order` now"),
    ("hold", "it is `prefetch_stages` now"),
    ("held_registers", "it is `activation_registers` now"),
    ("stages", PLANNED),
    ("single_tokens", PLANNED),
    ("sums_bytes", PLANNED),
    ("hold_codes", PLANNED),
    ("hold_beside", PLANNED),
    ("held_rows", PLANNED),
    ("part_registers", PLANNED),
    ("paired_rows", PLANNED),
];

const PLANNED: &str = "the planner chooses it now; leave it out or tune again";

/// Options with the settings that are named; all others stay.
///
/// # Errors
/// A name that no setting has; a value that it cannot have. Whether the options fit each other and
/// a device, the machine says.
pub(crate) fn options(mut options: DeviceOptions, settings: &Settings) -> Result<DeviceOptions, SettingsError> {
    for (name, value) in settings.iter() {
        match options.number_mut(name) {
            Some(number) => *number = settings.number(name)?,
            None if name == "stage_order" => {
                options.stage_order = settings.choice(name, &StageOrder::ALL, "order, strips or stages")?;
            }
            None => return Err(unknown(name, value)),
        }
    }
    Ok(options)
}

/// Why a name is not a setting.
fn unknown(name: &str, value: &str) -> SettingsError {
    let found = REMOVED.iter().find(|(removed, _)| *removed == name);
    let name = name.to_owned();
    let value = value.to_owned();
    match found {
        Some(&(_, instead)) => SettingsError::Removed { name, value, instead },
        None => SettingsError::Unknown { name, value },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_options_are_those_options() {
        for (rows, codes) in [(1, false), (2, true), (8, true), (16, false), (16, true)] {
            let space = space(DeviceOptions::default(), rows, codes);
            assert_eq!(options(DeviceOptions::default(), &space.at(space.shipped())), Ok(DeviceOptions::default()));
            // Another configuration is another machine.
            for number in space.neighbours(space.shipped()) {
                let changed = options(DeviceOptions::default(), &space.at(number)).expect("are settings");
                assert_ne!(changed, DeviceOptions::default());
            }
        }
    }

    #[test]
    fn what_is_not_named_stays_and_what_is_unknown_is_refused() {
        let some = |text: &str| options(DeviceOptions::default(), &text.parse().expect("is a text of settings"));
        assert_eq!(
            some("prefetch_stages=2 stage_order=strips").map(|o| (o.prefetch_stages, o.stage_order, o.warps)),
            Ok((2, StageOrder::Strips, 8))
        );
        for wrong in ["holds=2", "warps=two", "stage_order=round", "warps=-1"] {
            assert_eq!(some(wrong).expect_err(wrong).to_string().lines().count(), 1);
        }
    }

    #[test]
    fn a_setting_of_an_earlier_build_is_refused_with_what_replaces_it() {
        let known = DeviceOptions::NUMBERS.map(|(name, _)| name);
        for (name, instead) in REMOVED {
            assert!(!known.contains(&name), "{name}");
            let settings = Settings::default().with(name, 4);
            let error = options(DeviceOptions::default(), &settings).expect_err(name).to_string();
            assert_eq!(error, format!("{name}=4: the setting `{name}` is gone: {instead}"));
        }
    }
}
