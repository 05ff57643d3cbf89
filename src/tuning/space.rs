//! The values that the settings of a kernel may have.

use std::fmt::Display;

use super::Settings;

/// All configurations of a kernel: one value for each setting. They are numbered and include the
/// shipped settings.
///
/// ```
/// use tilewright::tuning::{SearchSpace, Settings};
/// let shipped = Settings::default().with("stages", 4).with("cluster", 2);
/// let space = SearchSpace::new(shipped.clone()).axis("stages", [3, 4, 5]).axis("cluster", [1, 2]);
/// assert_eq!(space.len(), 6);
/// assert_eq!(space.at(space.shipped()), shipped);
/// // One setting differs: two other numbers of stages, one other cluster.
/// assert_eq!(space.neighbours(space.shipped()).len(), 3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchSpace {
    axes: Vec<(String, Vec<String>)>,
    shipped: Settings,
}

impl SearchSpace {
    /// A space of the shipped settings only.
    pub fn new(shipped: Settings) -> SearchSpace {
        let axes = shipped.iter().map(|(name, value)| (name.to_owned(), vec![value.to_owned()])).collect();
        SearchSpace { axes, shipped }
    }

    /// Adds values that a shipped setting may have.
    ///
    /// # Panics
    /// If no setting of that name ships, which is a programming error.
    #[must_use]
    pub fn axis(mut self, name: &str, values: impl IntoIterator<Item = impl Display>) -> SearchSpace {
        let axis = self.axes.iter_mut().find(|(known, _)| known == name);
        let (_, known) = axis.unwrap_or_else(|| panic!("no setting `{name}` ships"));
        for value in values {
            let value = value.to_string();
            if !known.contains(&value) {
                known.push(value);
            }
        }
        self
    }

    /// The number of configurations.
    pub fn len(&self) -> usize {
        self.axes.iter().map(|(_, values)| values.len()).product()
    }

    /// Whether there is no configuration, which is never so.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of the shipped configuration: its values are the first of every axis.
    pub fn shipped(&self) -> usize {
        0
    }

    /// The configuration of a number below [`SearchSpace::len`].
    pub fn at(&self, number: usize) -> Settings {
        let mut rest = number;
        self.axes.iter().fold(Settings::default(), |settings, (name, values)| {
            let value = &values[rest % values.len()];
            rest /= values.len();
            settings.with(name, value)
        })
    }

    /// The numbers of the configurations that differ in one setting.
    pub fn neighbours(&self, number: usize) -> Vec<usize> {
        let mut rest = number;
        let mut scale = 1;
        let mut all = Vec::new();
        for (_, values) in &self.axes {
            let own = rest % values.len();
            let others = (0..values.len()).filter(|&other| other != own);
            all.extend(others.map(|other| number - own * scale + other * scale));
            rest /= values.len();
            scale *= values.len();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn space(lengths: &[usize]) -> SearchSpace {
        let name = |axis: usize| format!("a{axis}");
        let shipped = (0..lengths.len()).fold(Settings::default(), |all, axis| all.with(&name(axis), 0));
        lengths
            .iter()
            .enumerate()
            .fold(SearchSpace::new(shipped), |all, (axis, &length)| all.axis(&name(axis), 0..length))
    }

    proptest! {
        #[test]
        fn numbers_are_configurations_and_neighbours_differ_in_one_setting(
            lengths in prop::collection::vec(1usize..5, 0..5), at in any::<prop::sample::Index>(),
        ) {
            let space = space(&lengths);
            let all: HashSet<Settings> = (0..space.len()).map(|number| space.at(number)).collect();
            prop_assert_eq!(all.len(), space.len());
            prop_assert_eq!(space.at(space.shipped()), space.shipped.clone());
            let number = at.index(space.len());
            let here = space.at(number);
            let neighbours = space.neighbours(number);
            prop_assert_eq!(neighbours.len(), lengths.iter().map(|length| length - 1).sum::<usize>());
            for other in neighbours {
                let other = space.at(other);
                prop_assert_eq!(here.iter().zip(other.iter()).filter(|(a, b)| a != b).count(), 1);
            }
        }
    }
}
