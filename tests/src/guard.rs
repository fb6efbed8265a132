//! Figures that must not grow unnoticed: instructions, memory, sizes.
//!
//! A file names each figure once, with its base:
//!
//! ```text
//! # NAME BASE [+PERCENT% REASON]
//! handshake-psk 246504 +1.5% the registry of crossing IKE SAs
//! malformed 1706
//! ```
//!
//! A figure may exceed its base by [`TOLERANCE`]. An allowance adds to that, and needs a reason. No program writes
//! these files: a person edits a base or an allowance, and the reason stands in the same change.

use std::fmt;
use std::str::FromStr;

/// Percent by which a figure may exceed its base without an allowance.
pub const TOLERANCE: f64 = 3.0;

/// The bases of one file, in its order.
#[derive(Debug, Clone, PartialEq)]
pub struct Bases(Vec<Base>);

/// One line of the file.
#[derive(Debug, Clone, PartialEq)]
struct Base {
    name: String,
    base: u64,
    /// Percent; 0 without an allowance.
    allowance: f64,
    /// Empty without an allowance.
    reason: String,
}

/// What was measured, in the order of the bases.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    rows: Vec<(Base, u64)>,
    /// Names that are only in one of the two, and in which.
    strays: Vec<(String, Stray)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stray {
    NotMeasured,
    NoBase,
    MeasuredTwice,
}

/// How a figure compares with its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// It exceeds the base, the tolerance and the allowance together.
    TooMuch,
    /// It would be good without its allowance.
    NeedsNoAllowance,
    /// It is below the base by more than the tolerance.
    MuchLess,
}

impl FromStr for Bases {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all: Vec<Base> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let base = Base::read(line).map_err(|why| format!("line {number}: {why}"))?;
            if all.iter().any(|other| other.name == base.name) {
                return Err(format!("line {number}: {} stands here twice", base.name));
            }
            all.push(base);
        }
        if all.is_empty() { Err("no base".to_owned()) } else { Ok(Self(all)) }
    }
}

impl Base {
    fn read(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        let base = words.next().and_then(|word| word.parse().ok()).filter(|base| *base > 0);
        let base = base.ok_or_else(|| format!("{name} has no base"))?;
        let allowance = match words.next() {
            None => 0.0,
            Some(word) => word
                .strip_prefix('+')
                .and_then(|word| word.strip_suffix('%'))
                .and_then(|word| word.parse().ok())
                .filter(|percent| *percent > 0.0 && *percent <= 100.0)
                .ok_or_else(|| format!("allowance {word} of {name} is not +PERCENT%"))?,
        };
        let reason = words.collect::<Vec<_>>().join(" ");
        if allowance > 0.0 && reason.is_empty() {
            return Err(format!("allowance of {name} has no reason"));
        }
        Ok(Self { name, base, allowance, reason })
    }

    /// Percent by which `now` exceeds the base.
    fn change(&self, now: u64) -> f64 {
        100.0 * (now as f64 - self.base as f64) / self.base as f64
    }

    fn verdict(&self, now: u64) -> Verdict {
        match self.change(now) {
            change if change > TOLERANCE + self.allowance => Verdict::TooMuch,
            change if change < -TOLERANCE => Verdict::MuchLess,
            change if change <= TOLERANCE && self.allowance > 0.0 => Verdict::NeedsNoAllowance,
            _ => Verdict::Good,
        }
    }
}

impl Bases {
    /// Compares figures with their bases.
    pub fn compare(&self, figures: &[(String, u64)]) -> Report {
        let mut report = Report { rows: Vec::new(), strays: Vec::new() };
        for base in &self.0 {
            let of_base = figures.iter().filter(|(name, _)| *name == base.name);
            match *of_base.map(|(_, now)| *now).collect::<Vec<_>>() {
                [] => report.strays.push((base.name.clone(), Stray::NotMeasured)),
                [now] => report.rows.push((base.clone(), now)),
                _ => report.strays.push((base.name.clone(), Stray::MeasuredTwice)),
            }
        }
        let unknown = figures.iter().filter(|(name, _)| self.0.iter().all(|b| b.name != *name));
        report.strays.extend(unknown.map(|(name, _)| (name.clone(), Stray::NoBase)));
        report
    }
}

impl Report {
    /// True if every base was measured once, nothing else was, and no figure is too large.
    pub fn is_good(&self) -> bool {
        let fits = |(base, now): &(Base, u64)| base.verdict(*now) != Verdict::TooMuch;
        self.strays.is_empty() && self.rows.iter().all(fits)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.rows.iter().map(|(base, _)| base.name.len());
        let width = all.max().unwrap_or_default();
        writeln!(f, "{:width$} {:>10} {:>10} {:>8}  allowed", "", "now", "base", "change")?;
        for (base, now) in &self.rows {
            let (change, allowed) = (base.change(*now), TOLERANCE + base.allowance);
            write!(f, "{:width$} {now:10} {:10} {change:+7.1}%", base.name, base.base)?;
            write!(f, "  {allowed:+.1}%")?;
            if !base.reason.is_empty() {
                write!(f, " ({})", base.reason)?;
            }
            match base.verdict(*now) {
                Verdict::Good => writeln!(f)?,
                Verdict::TooMuch => writeln!(f, ": TOO MUCH")?,
                Verdict::NeedsNoAllowance => writeln!(f, ": its allowance is not needed any more")?,
                Verdict::MuchLess => writeln!(f, ": the base may be lowered")?,
            }
        }
        for (name, stray) in &self.strays {
            match stray {
                Stray::NotMeasured => writeln!(f, "{name} was NOT MEASURED")?,
                Stray::NoBase => writeln!(f, "{name} has NO BASE")?,
                Stray::MeasuredTwice => writeln!(f, "{name} was measured TWICE")?,
            }
        }
        Ok(())
    }
}

/// Reads figures: on each line a name and a number.
///
/// # Errors
///
/// If a line is something else.
pub fn figures(text: &str) -> Result<Vec<(String, u64)>, String> {
    let figure = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| figure(line).ok_or_else(|| format!("{line:?} is no figure"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
        # comment\n\
        \n\
        one 1000\n\
        two 1000 +2.5% it checks twice\n";

    fn report(figures: &[(&str, u64)]) -> Report {
        let figures: Vec<_> = figures.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        FILE.parse::<Bases>().unwrap().compare(&figures)
    }

    /// Fault: in `Base::verdict`, leave `TOLERANCE` or the allowance out, or compare with `>=`.
    #[test]
    fn a_figure_may_exceed_its_base_by_the_tolerance_and_its_allowance() {
        assert!(report(&[("one", 1030), ("two", 1055)]).is_good());
        for figures in [[("one", 1031), ("two", 1055)], [("one", 1030), ("two", 1056)]] {
            let report = report(&figures);
            assert!(!report.is_good(), "{report}");
            assert_eq!(report.to_string().matches("TOO MUCH").count(), 1, "{report}");
        }
    }

    /// Fault: in `Bases::compare`, skip a base without a figure, or figures without a base.
    #[test]
    fn every_base_is_measured_once_and_every_figure_has_a_base() {
        for (figures, word) in [
            (&[("one", 1000)][..], "two was NOT MEASURED"),
            (&[("one", 1000), ("two", 1000), ("three", 1)], "three has NO BASE"),
            (&[("one", 1000), ("two", 1000), ("two", 9000)], "two was measured TWICE"),
        ] {
            let report = report(figures);
            assert!(!report.is_good(), "{report}");
            assert!(report.to_string().contains(word), "{report}");
        }
    }

    /// Fault: in `Base::read`, accept an empty reason.
    #[test]
    fn an_allowance_needs_a_reason() {
        for (line, why) in [
            ("one 1000 +2%", "line 1: allowance of one has no reason"),
            ("one 1000 2% for nothing", "line 1: allowance 2% of one is not +PERCENT%"),
            ("one 1000 +0% for nothing", "line 1: allowance +0% of one is not +PERCENT%"),
            ("one 1000 because", "line 1: allowance because of one is not +PERCENT%"),
            ("one", "line 1: one has no base"),
            ("one 0", "line 1: one has no base"),
            ("one 1\none 2", "line 2: one stands here twice"),
            ("# nothing", "no base"),
        ] {
            assert_eq!(line.parse::<Bases>(), Err(why.to_owned()), "{line}");
        }
    }

    /// Fault: in `Base::verdict`, drop the arm of one of the two.
    #[test]
    fn the_report_says_what_may_be_tightened() {
        let report = report(&[("one", 969), ("two", 1030)]);
        assert!(report.is_good(), "{report}");
        let text = report.to_string();
        assert!(text.contains("-3.1%  +3.0%: the base may be lowered"), "{text}");
        assert!(text.contains("(it checks twice): its allowance is not needed any more"), "{text}");
    }

    /// Fault: write `+4%` without a reason into one of the files.
    #[test]
    fn the_files_of_the_repository_are_read() {
        for text in [
            include_str!("../../benches/counts.txt"),
            include_str!("../../benches/memory.txt"),
            include_str!("../../benches/size.txt"),
        ] {
            assert!(text.parse::<Bases>().is_ok(), "{text}");
        }
    }

    #[test]
    fn a_line_that_is_no_figure_is_an_error() {
        assert_eq!(figures("a 1\n\nb 22\n"), Ok(vec![("a".into(), 1), ("b".into(), 22)]));
        assert_eq!(figures("a 1\nb many\n"), Err("\"b many\" is no figure".into()));
        assert_eq!(figures("a\n"), Err("\"a\" is no figure".into()));
    }
}
