//! Options of the device machine as settings, which have names, texts and a search.

use tilewright_megakernel::vm::device::DeviceOptions;
use tilewright_megakernel::vm::resident::Dealing;

#[cfg(any(feature = "cli", test))]
use crate::tuning::SearchSpace;
use crate::tuning::{Settings, SettingsError};

/// The settings of a machine of `rows` rows that a search may change, from those of `options`;
/// `codes`: weights are quantised.
#[cfg(any(feature = "cli", test))]
pub(crate) fn space(mut options: DeviceOptions, rows: usize, codes: bool) -> SearchSpace {
    let shipped = Settings::default().with("dealing", options.dealing.name());
    let numbers = DeviceOptions::NUMBERS.iter();
    let shipped = numbers.fold(shipped, |all, (name, field)| all.with(name, *field(&mut options)));
    let space = SearchSpace::new(shipped)
        .axis("stage_bytes", [8192, 16384, 32768])
        .axis("in_flight", [1, 2, 3])
        .axis("burst", [2, 4, 8])
        .axis("split_tokens", [64, 128, 256, 512])
        .axis("warps", [8, 16])
        .axis("table_bytes", [0, 32768])
        .axis("dealing", Dealing::ALL.map(|(name, _)| name));
    // Stages are held at few rows; activations of many come by phases, or in parts of sums.
    match rows {
        0..=2 if codes => space.axis("hold_codes", [0, 1]),
        0..=2 => space.axis("hold", [0, 2, 4]),
        _ => {
            let space = space.axis("held_registers", [64, 128]).axis("part_registers", [0, 64, 128]);
            let space = space.axis("held_rows", [3, 9, 17]);
            match codes {
                true if rows > 8 => space.axis("paired_rows", [8, 16]),
                true => space,
                false => space.axis("hold_beside", [0, 32, 64]),
            }
        }
    }
}

/// Options with the settings that are named; all others stay.
///
/// # Errors
/// A name that no setting has; a value that it cannot have. Whether the options fit each other and
/// a device, the machine says.
pub(crate) fn options(mut options: DeviceOptions, settings: &Settings) -> Result<DeviceOptions, SettingsError> {
    for (name, value) in settings.iter() {
        match options.number_mut(name) {
            Some(number) => *number = settings.number(name)?,
            None if name == "dealing" => {
                options.dealing = settings.choice(name, &Dealing::ALL, "order, strips or stages")?;
            }
            None => return Err(SettingsError::Unknown { name: name.to_owned(), value: value.to_owned() }),
        }
    }
    Ok(options)
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
        assert_eq!(some("hold=2 dealing=strips").map(|o| (o.hold, o.dealing, o.warps)), Ok((2, Dealing::Strips, 8)));
        for wrong in ["holds=2", "hold=two", "dealing=round", "hold=-1"] {
            assert_eq!(some(wrong).expect_err(wrong).to_string().lines().count(), 1);
        }
    }
}
