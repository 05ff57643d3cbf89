//! The findings of all pieces: lines with a tag, counted.

use std::collections::BTreeMap;

/// Counts. Of a run that compared everything without a difference, [`Tally::wrong`] is false.
#[derive(Debug, Default)]
pub struct Tally {
    programs: u64,
    results: u64,
    multiplies: u64,
    values: u64,
    differing: u64,
    faults: u64,
    /// Milliseconds of all processes: making programs, simulating them, and the device with its
    /// compiler.
    times: [u64; 3],
    rows: BTreeMap<String, u64>,
}

impl Tally {
    /// Counts a line, and prints one that is to be read.
    pub fn line(&mut self, line: &str) {
        let (tag, text) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = text.split(' ');
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match tag {
            "programs" => {
                self.programs += number();
                self.results += number();
                self.times.iter_mut().for_each(|time| *time += number());
            }
            "multiply" => {
                self.multiplies += 1;
                self.values += number();
            }
            "row" => {
                let (row, count) = text.rsplit_once(' ').unwrap_or((text, "0"));
                *self.rows.entry(row.into()).or_default() += count.parse::<u64>().unwrap_or(0);
            }
            "differs" => {
                self.differing += 1;
                println!("DIFFERS {text}");
            }
            "fault" => {
                self.faults += 1;
                println!("FAULT {text}");
            }
            "text" => println!("  {text}"),
            _ => {
                self.faults += 1;
                println!("FAULT not a line of a worker: {line}");
            }
        }
    }

    /// Whether anything differs, failed, or was never compared.
    pub fn wrong(&self) -> bool {
        self.differing > 0 || self.faults > 0 || self.programs == 0
    }

    /// Prints the counts.
    pub fn print(&self) {
        for (row, count) in &self.rows {
            println!("{row:32} {count:9}");
        }
        let [making, simulating, device] = self.times.map(|time| time as f64 / 1e3);
        println!(
            "processor seconds: {making:.1} making programs, {simulating:.1} simulating, {device:.1} device and its compiler"
        );
        println!("{} multiplies, {} values", self.multiplies, self.values);
        println!(
            "{} programs, {} results, {} programs differ, {} faults",
            self.programs, self.results, self.differing, self.faults
        );
    }
}
