//! A configuration of a kernel.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Names and values of a kernel's settings. Its text lists them in the order of their names.
///
/// ```
/// use tilewright::tuning::Settings;
/// let settings = Settings::default().with("stages", 4).with("cluster", 2);
/// assert_eq!(settings.to_string(), "cluster=2 stages=4");
/// assert_eq!("stages=4 cluster=2".parse(), Ok(settings.clone()));
/// assert_eq!(settings.number("stages"), Ok(4));
/// assert!(settings.number("splits").is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Settings(BTreeMap<String, String>);

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// A word without `=`.
    #[error("`{word}` is not NAME=VALUE, such as stages=4")]
    Word {
        /// The word.
        word: String,
    },
    /// A setting twice.
    #[error("the setting `{name}` is given twice; give it once")]
    Twice {
        /// Its name.
        name: String,
    },
    /// A setting that is missing.
    #[error("the setting `{name}` is missing in `{settings}`")]
    Missing {
        /// Its name.
        name: String,
        /// The settings that exist.
        settings: String,
    },
    /// A setting that does not exist.
    #[error("{name}={value}: there is no setting `{name}` here; leave it out")]
    Unknown {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A setting of an earlier build.
    #[error("{name}={value}: the setting `{name}` is gone: {instead}")]
    Removed {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// What replaces it.
        instead: &'static str,
    },
    /// A value that the setting cannot have.
    #[error("`{name}` must be {takes}, got `{value}`")]
    Value {
        /// The setting.
        name: String,
        /// Its value.
        value: String,
        /// The values that it takes.
        takes: &'static str,
    },
}

impl Settings {
    /// Adds a setting, or replaces the one of that name.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Settings {
        self.0.insert(name.to_owned(), value.to_string());
        self
    }

    /// The value of a setting.
    ///
    /// # Errors
    /// If it is missing.
    pub fn get(&self, name: &str) -> Result<&str, SettingsError> {
        let missing = || SettingsError::Missing { name: name.to_owned(), settings: self.to_string() };
        self.0.get(name).map(String::as_str).ok_or_else(missing)
    }

    /// The value of a setting that is a number.
    ///
    /// # Errors
    /// If it is missing, or not a whole number from 0 to 2³² − 1.
    pub fn number(&self, name: &str) -> Result<u32, SettingsError> {
        let value = self.get(name)?;
        value.parse().map_err(|_| self.wrong(name, "a whole number"))
    }

    /// Looks the value of a setting up in a table.
    ///
    /// # Errors
    /// If it is missing, or not in the table.
    pub fn choice<T: Copy>(&self, name: &str, among: &[(&str, T)], takes: &'static str) -> Result<T, SettingsError> {
        let value = self.get(name)?;
        let found = among.iter().find(|(known, _)| *known == value);
        found.map(|&(_, choice)| choice).ok_or_else(|| self.wrong(name, takes))
    }

    fn wrong(&self, name: &str, takes: &'static str) -> SettingsError {
        SettingsError::Value { name: name.to_owned(), value: self.0.get(name).cloned().unwrap_or_default(), takes }
    }

    /// Names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.iter().enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl FromStr for Settings {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        for word in text.split_whitespace() {
            let pair = word.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
            let (name, value) = pair.ok_or_else(|| SettingsError::Word { word: word.to_owned() })?;
            if settings.0.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(SettingsError::Twice { name: name.to_owned() });
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_and_settings_are_one(pairs in prop::collection::btree_map("[a-z]{1,6}", "[A-Za-z0-9]{1,6}", 0..6)) {
            let settings = pairs.iter().fold(Settings::default(), |all, (name, value)| all.with(name, value));
            prop_assert_eq!(settings.to_string().parse(), Ok(settings));
        }

        #[test]
        fn any_text_is_settings_or_an_error_in_one_line(text in ".{0,40}") {
            if let Err(error) = text.parse::<Settings>() {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = |text: &str| text.parse::<Settings>().unwrap_err().to_string();
        assert_eq!(error("stages"), "`stages` is not NAME=VALUE, such as stages=4");
        assert_eq!(error("a=1 a=2"), "the setting `a` is given twice; give it once");
        let settings = Settings::default().with("along", "Diagonal");
        let error = settings.choice("along", &[("Rows", 0), ("Columns", 1)], "Rows or Columns").unwrap_err();
        assert_eq!(error.to_string(), "`along` must be Rows or Columns, got `Diagonal`");
    }
}
