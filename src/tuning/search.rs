//! The search for the fastest settings.

use std::collections::HashMap;

use tilewright_codegen::trial::Draw;

use super::{SearchSpace, Settings};

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchResult {
    /// The fastest settings; the shipped ones if none was faster.
    pub best: Settings,
    /// Their time, microseconds.
    pub best_us: f64,
    /// The time of the shipped settings, microseconds.
    pub shipped_us: f64,
    /// Configurations that were measured, including those that cannot run.
    pub tried: usize,
}

/// Random configurations that a restart chooses from.
const DRAWN: usize = 64;

/// Searches a space for the fastest settings until `over` or until every configuration is measured.
///
/// The shipped settings are measured first; if they cannot run, the result is `None`. Then the
/// search descends: of the configurations that differ in one setting, in the order of `predict`, it
/// goes to the first that is faster. If none is faster, it restarts from the configuration that
/// `predict` ranks first of 64 drawn with the seed. A configuration is measured at most once, and
/// never if `predict` is infinite.
///
/// `predict` returns a time or any other figure that rises with the time. `measure` returns
/// microseconds, or `None` for a configuration that cannot run.
///
/// # Errors
/// The first error of `measure`, which ends the search.
///
/// ```
/// use tilewright::tuning::{SearchSpace, Settings, search};
/// let space = SearchSpace::new(Settings::default().with("stages", 2)).axis("stages", 1..=8);
/// let time = |settings: &Settings| (f64::from(settings.number("stages").unwrap()) - 5.0).abs() + 1.0;
/// let found = search(&space, time, 0, || false, |settings| Ok::<_, ()>(Some(time(settings)))).unwrap().unwrap();
/// assert_eq!((found.best.to_string().as_str(), found.best_us, found.shipped_us), ("stages=5", 1.0, 4.0));
/// ```
pub fn search<E>(
    space: &SearchSpace,
    predict: impl Fn(&Settings) -> f64,
    seed: u64,
    over: impl Fn() -> bool,
    measure: impl FnMut(&Settings) -> Result<Option<f64>, E>,
) -> Result<Option<SearchResult>, E> {
    let mut walk = ActiveSearch { space, predict, over, measure, known: HashMap::new(), draw: Draw::new(seed) };
    let shipped = space.shipped();
    let Some(shipped_us) = walk.time(shipped)? else { return Ok(None) };
    let mut best = (shipped, shipped_us);
    let mut start = Some(best);
    while let Some(from) = start {
        let end = walk.descend(from)?;
        if end.1 < best.1 {
            best = end;
        }
        start = walk.restart()?;
    }
    let tried = walk.known.len();
    Ok(Some(SearchResult { best: space.at(best.0), best_us: best.1, shipped_us, tried }))
}

/// A search under way.
struct ActiveSearch<'s, P, O, M> {
    space: &'s SearchSpace,
    predict: P,
    over: O,
    measure: M,
    /// Times by number of configuration; `None` if the configuration cannot run.
    known: HashMap<usize, Option<f64>>,
    draw: Draw,
}

impl<E, P, O, M> ActiveSearch<'_, P, O, M>
where
    P: Fn(&Settings) -> f64,
    O: Fn() -> bool,
    M: FnMut(&Settings) -> Result<Option<f64>, E>,
{
    fn time(&mut self, number: usize) -> Result<Option<f64>, E> {
        if let Some(&known) = self.known.get(&number) {
            return Ok(known);
        }
        let time = (self.measure)(&self.space.at(number))?.filter(|time| time.is_finite());
        self.known.insert(number, time);
        Ok(time)
    }

    fn predicted(&self, number: usize) -> f64 {
        (self.predict)(&self.space.at(number))
    }

    /// Descends from a configuration and its time to a local minimum, or until the time is over.
    fn descend(&mut self, mut from: (usize, f64)) -> Result<(usize, f64), E> {
        'moved: loop {
            let ranked = self.space.neighbours(from.0).into_iter().map(|number| (self.predicted(number), number));
            let mut ranked: Vec<(f64, usize)> = ranked.filter(|(predicted, _)| predicted.is_finite()).collect();
            ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (_, number) in ranked {
                if !self.known.contains_key(&number) && (self.over)() {
                    return Ok(from);
                }
                if let Some(time) = self.time(number)?.filter(|&time| time < from.1) {
                    from = (number, time);
                    continue 'moved;
                }
            }
            return Ok(from);
        }
    }

    /// A new configuration and its time; `None` if the time is over or none is left.
    fn restart(&mut self) -> Result<Option<(usize, f64)>, E> {
        while !(self.over)() {
            let Some(number) = self.drawn() else { break };
            if let Some(time) = self.time(number)? {
                return Ok(Some((number, time)));
            }
        }
        Ok(None)
    }

    /// The configuration that `predict` ranks first of some that were not measured.
    fn drawn(&mut self) -> Option<usize> {
        let len = self.space.len();
        let mut below = |len: usize| (self.draw.bits() % len as u64) as usize;
        // Most of a large space is not measured; of a small one, everything that is left is a
        // candidate.
        let looked: Vec<usize> = match len <= DRAWN * DRAWN {
            true => (0..len).collect(),
            false => (0..DRAWN).map(|_| below(len)).collect(),
        };
        let unknown = looked.into_iter().filter(|number| !self.known.contains_key(number));
        let ranked = unknown.map(|number| (self.predicted(number), number));
        let left: Vec<(f64, usize)> = ranked.filter(|(predicted, _)| predicted.is_finite()).collect();
        let some: Vec<(f64, usize)> = match left.len() <= DRAWN {
            true => left,
            false => (0..DRAWN).map(|_| left[(self.draw.bits() % left.len() as u64) as usize]).collect(),
        };
        some.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, number)| number)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// A space of several axes, and a time that is a sum over them, so that descent finds the
    /// least.
    fn surface() -> impl Strategy<Value = (SearchSpace, Vec<Vec<f64>>)> {
        prop::collection::vec(prop::collection::vec(1.0f64..100.0, 1..6), 1..5).prop_map(|axes| {
            let name = |axis: usize| format!("a{axis}");
            let shipped = (0..axes.len()).fold(Settings::default(), |all, axis| all.with(&name(axis), 0));
            let space = axes.iter().enumerate();
            let space =
                space.fold(SearchSpace::new(shipped), |all, (axis, values)| all.axis(&name(axis), 0..values.len()));
            (space, axes)
        })
    }

    fn time(axes: &[Vec<f64>], settings: &Settings) -> f64 {
        let values = axes.iter().enumerate();
        values.map(|(axis, values)| values[settings.number(&format!("a{axis}")).unwrap() as usize]).sum()
    }

    proptest! {
        /// With enough time, all of a space is searched, whatever the predictions are, and nothing
        /// is measured twice.
        #[test]
        fn with_time_enough_the_fastest_of_all_is_found(
            (space, axes) in surface(), seed: u64, wrong in any::<bool>(), broken in 0u32..4,
        ) {
            let seen = RefCell::new(HashSet::new());
            let runs = |settings: &Settings| {
                let sum: u32 = settings.iter().map(|(_, value)| value.parse::<u32>().unwrap()).sum();
                broken == 0 || sum == 0 || sum % 4 != broken
            };
            let measure = |settings: &Settings| {
                assert!(seen.borrow_mut().insert(settings.clone()), "{settings} is measured twice");
                Ok::<_, ()>(runs(settings).then(|| time(&axes, settings)))
            };
            let predict = |settings: &Settings| if wrong { -time(&axes, settings) } else { time(&axes, settings) };
            let found = search(&space, predict, seed, || false, measure).unwrap().unwrap();
            let all = (0..space.len()).map(|number| space.at(number)).filter(runs);
            let least = all.map(|settings| time(&axes, &settings)).fold(f64::INFINITY, f64::min);
            prop_assert_eq!(found.best_us, least);
            prop_assert_eq!(time(&axes, &found.best), least);
            prop_assert_eq!((found.tried, found.shipped_us), (space.len(), time(&axes, &space.at(0))));
        }

        /// After the time is over nothing is measured, and the result is never slower than the
        /// shipped settings.
        #[test]
        fn a_search_keeps_within_its_time((space, axes) in surface(), seed: u64, most in 1usize..20) {
            let count = Cell::new(0);
            let measure = |settings: &Settings| {
                count.set(count.get() + 1);
                Ok::<_, ()>(Some(time(&axes, settings)))
            };
            let found = search(&space, |_| 0.0, seed, || count.get() >= most, measure).unwrap().unwrap();
            prop_assert!(count.get() <= most && found.tried == count.get());
            prop_assert!(found.best_us <= found.shipped_us && found.best_us == time(&axes, &found.best));
        }
    }

    #[test]
    fn where_what_ships_cannot_run_nothing_is_found_and_a_failure_ends_the_search() {
        let space = SearchSpace::new(Settings::default().with("n", 0)).axis("n", 0..4);
        assert_eq!(search(&space, |_| 0.0, 0, || false, |_| Ok::<_, ()>(None)), Ok(None));
        let failing = |settings: &Settings| match settings.number("n") {
            Ok(0) => Ok(Some(1.0)),
            _ => Err("the device is lost"),
        };
        assert_eq!(search(&space, |_| 0.0, 0, || false, failing), Err("the device is lost"));
    }

    #[test]
    fn what_is_predicted_to_take_for_ever_is_not_measured() {
        let space = SearchSpace::new(Settings::default().with("n", 0)).axis("n", 0..200);
        let n = |settings: &Settings| settings.number("n").unwrap();
        let predict = |settings: &Settings| if n(settings) > 9 { f64::INFINITY } else { 1.0 };
        let measure = |settings: &Settings| {
            assert!(n(settings) <= 9);
            Ok::<_, ()>(Some(10.0 - f64::from(n(settings))))
        };
        let found = search(&space, predict, 3, || false, measure).unwrap().unwrap();
        assert_eq!((found.best_us, found.tried), (1.0, 10));
    }
}
