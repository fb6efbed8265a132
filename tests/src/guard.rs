//! Figures that must not grow unnoticed: instructions, memory, sizes.
//!
//! A file names each figure once, with its base:
//!
//! ```text
//! # NAME BASE COMMIT [+PERCENT% REASON]
//! handshake-psk 246504 65a59d7 +1.5% the registry of crossing IKE SAs
//! malformed 1706 65a59d7
//! # limit NAME FIGURE [missed FIGURE COMMIT REASON]
//! limit handshake-psk 260000
//! ```
//!
//! The base was measured at COMMIT. A figure may exceed its base by [`TOLERANCE`]. An allowance adds to that, and needs
//! a reason. A figure with a limit may also not exceed that. If a limit is missed, its line says by how much, since
//! which commit, and why. No program writes these files: a person edits them. `benches/bases.py` compares them with
//! their history.

use std::fmt;
use std::str::FromStr;

/// Percent by which a figure may exceed its base without an allowance.
pub const TOLERANCE: f64 = 3.0;

/// Percent by which a base may be too high.
pub const SLACK: f64 = 1.0;

/// Percent of the largest allowance of a figure without a limit.
pub const LARGEST_ALLOWANCE: f64 = 5.0;

/// The bases of one file, in its order.
#[derive(Debug, Clone, PartialEq)]
pub struct Bases(Vec<Base>);

/// One figure of the file.
#[derive(Debug, Clone, PartialEq)]
struct Base {
    name: String,
    base: u64,
    /// Percent; 0 without an allowance.
    allowance: f64,
    /// Empty without an allowance.
    reason: String,
    limit: Option<Limit>,
}

/// What a figure may not exceed, whatever its base.
#[derive(Debug, Clone, PartialEq)]
struct Limit {
    figure: u64,
    missed: Option<Missed>,
}

/// A limit that is missed.
#[derive(Debug, Clone, PartialEq)]
struct Missed {
    /// What the figure may not exceed instead.
    figure: u64,
    /// The commit since which the limit is missed, and why.
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
    /// It exceeds its limit, or what its limit is missed by.
    AboveLimit,
    /// Its limit is not missed any more.
    MeetsLimit,
    /// It is below the base by more than [`SLACK`].
    BaseTooHigh,
    /// It would be good without its allowance.
    NeedsNoAllowance,
}

impl Verdict {
    /// True if the figure and its line may stay.
    fn is_good(self) -> bool {
        matches!(self, Self::Good | Self::NeedsNoAllowance)
    }
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
            let added = match line.strip_prefix("limit ") {
                Some(limit) => {
                    Limit::read(limit).and_then(|(name, limit)| add_limit(&mut all, &name, limit))
                }
                None => Base::read(line).and_then(|base| add_base(&mut all, base)),
            };
            added.map_err(|why| format!("line {number}: {why}"))?;
        }
        for base in &all {
            if base.allowance > LARGEST_ALLOWANCE && base.limit.is_none() {
                let (name, percent) = (&base.name, base.allowance);
                return Err(format!(
                    "allowance +{percent}% of {name} is more than {LARGEST_ALLOWANCE}%"
                ));
            }
        }
        if all.is_empty() { Err("no base".to_owned()) } else { Ok(Self(all)) }
    }
}

fn add_base(all: &mut Vec<Base>, base: Base) -> Result<(), String> {
    if all.iter().any(|other| other.name == base.name) {
        return Err(format!("{} stands here twice", base.name));
    }
    all.push(base);
    Ok(())
}

/// Adds a limit to its base, which stands above.
fn add_limit(all: &mut [Base], name: &str, limit: Limit) -> Result<(), String> {
    let base = all.iter_mut().find(|base| base.name == name);
    let base = base.ok_or_else(|| format!("{name} has a limit before its base"))?;
    match base.limit.replace(limit) {
        Some(_) => Err(format!("{name} has two limits")),
        None => Ok(()),
    }
}

/// A number above 0.
fn number(word: Option<&str>) -> Option<u64> {
    word.and_then(|word| word.parse().ok()).filter(|number| *number > 0)
}

/// The shortened or whole hash of a commit.
fn commit(word: Option<&str>) -> Option<&str> {
    word.filter(|word| {
        (7..=40).contains(&word.len()) && word.chars().all(|c| c.is_ascii_hexdigit())
    })
}

impl Limit {
    /// The name of a figure, and its limit.
    fn read(line: &str) -> Result<(String, Self), String> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        let figure = number(words.next()).ok_or_else(|| format!("limit of {name} is no number"))?;
        let missed = match words.next() {
            None => None,
            Some("missed") => {
                let why = format!("missed limit of {name} needs a figure, a commit and a reason");
                let figure = number(words.next())
                    .filter(|more| *more > figure)
                    .ok_or_else(|| why.clone())?;
                let since = commit(words.next()).ok_or_else(|| why.clone())?;
                let reason: Vec<_> = std::iter::once(since).chain(words).collect();
                if reason.len() < 2 {
                    return Err(why);
                }
                Some(Missed { figure, reason: reason.join(" ") })
            }
            Some(word) => return Err(format!("{word} stands behind the limit of {name}")),
        };
        Ok((name, Self { figure, missed }))
    }

    fn verdict(&self, now: u64) -> Verdict {
        match &self.missed {
            Some(_) if now <= self.figure => Verdict::MeetsLimit,
            Some(missed) if now > missed.figure => Verdict::AboveLimit,
            None if now > self.figure => Verdict::AboveLimit,
            _ => Verdict::Good,
        }
    }
}

impl Base {
    fn read(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        let base = number(words.next()).ok_or_else(|| format!("{name} has no base"))?;
        commit(words.next()).ok_or_else(|| format!("base of {name} names no commit"))?;
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
        Ok(Self { name, base, allowance, reason, limit: None })
    }

    /// Percent by which `now` exceeds the base.
    fn change(&self, now: u64) -> f64 {
        100.0 * (now as f64 - self.base as f64) / self.base as f64
    }

    fn verdict(&self, now: u64) -> Verdict {
        let of_limit = self.limit.as_ref().map_or(Verdict::Good, |limit| limit.verdict(now));
        match self.change(now) {
            change if change > TOLERANCE + self.allowance => Verdict::TooMuch,
            _ if of_limit != Verdict::Good => of_limit,
            change if change < -SLACK => Verdict::BaseTooHigh,
            change if change <= TOLERANCE && self.allowance > 0.0 => Verdict::NeedsNoAllowance,
            _ => Verdict::Good,
        }
    }

    /// What a person has to do about the figure; empty if nothing.
    fn advice(&self, now: u64) -> String {
        match (self.verdict(now), &self.limit) {
            (Verdict::Good, _) => String::new(),
            (Verdict::TooMuch, _) => ": TOO MUCH".to_owned(),
            (Verdict::BaseTooHigh, _) => {
                format!(": BASE TOO HIGH; lower it to {now} in a commit that changes nothing else")
            }
            (Verdict::AboveLimit, Some(Limit { missed: Some(missed), .. })) => {
                format!(": ABOVE {}, by which its limit is missed", missed.figure)
            }
            (Verdict::AboveLimit, _) => ": ABOVE ITS LIMIT".to_owned(),
            (Verdict::MeetsLimit, _) => {
                ": MEETS ITS LIMIT, whose line says that it is missed".to_owned()
            }
            (Verdict::NeedsNoAllowance, _) => ": its allowance is not needed any more".to_owned(),
        }
    }
}

impl Bases {
    /// The limit of a figure, whether it is missed or not.
    pub fn limit(&self, name: &str) -> Option<u64> {
        let base = self.0.iter().find(|base| base.name == name)?;
        base.limit.as_ref().map(|limit| limit.figure)
    }

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
    /// True if every base was measured once, nothing else was, no figure is too large, and no base is too high.
    pub fn is_good(&self) -> bool {
        let fits = |(base, now): &(Base, u64)| base.verdict(*now).is_good();
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
            if let Some(limit) = &base.limit {
                write!(f, ", limit {}", limit.figure)?;
            }
            if let Some(Limit { missed: Some(missed), .. }) = &base.limit {
                write!(f, ", MISSED since {}", missed.reason)?;
            }
            writeln!(f, "{}", base.advice(*now))?;
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
        one 1000 0123456\n\
        two 1000 0123456 +2.5% it checks twice\n";

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

    /// Fault: in `Base::read`, accept an empty reason or no commit; in `Bases::from_str`, compare no allowance with
    /// `LARGEST_ALLOWANCE`.
    #[test]
    fn a_base_needs_a_commit_and_an_allowance_a_reason() {
        for (line, why) in [
            ("one 1000 0123456 +2%", "line 1: allowance of one has no reason"),
            ("one 1000 0123456 2% for nothing", "line 1: allowance 2% of one is not +PERCENT%"),
            ("one 1000 0123456 +0% for nothing", "line 1: allowance +0% of one is not +PERCENT%"),
            ("one 1000 0123456 because", "line 1: allowance because of one is not +PERCENT%"),
            ("one 1000 0123456 +60% x", "allowance +60% of one is more than 5%"),
            ("one 1000", "line 1: base of one names no commit"),
            ("one 1000 +2% it checks twice", "line 1: base of one names no commit"),
            ("one 1000 012345", "line 1: base of one names no commit"),
            ("one", "line 1: one has no base"),
            ("one 0", "line 1: one has no base"),
            ("one 1 0123456\none 2 0123456", "line 2: one stands here twice"),
            ("# nothing", "no base"),
        ] {
            assert_eq!(line.parse::<Bases>(), Err(why.to_owned()), "{line}");
        }
    }

    /// Fault: in `Base::verdict`, compare with `TOLERANCE` in place of `SLACK`; in `Verdict::is_good`, accept
    /// `BaseTooHigh`.
    #[test]
    fn a_base_is_lowered_when_the_figure_is_one_percent_below() {
        let good = report(&[("one", 990), ("two", 1030)]);
        assert!(good.is_good(), "{good}");
        assert!(
            good.to_string().contains("(it checks twice): its allowance is not needed any more"),
            "{good}"
        );
        let high = report(&[("one", 989), ("two", 1031)]);
        assert!(!high.is_good(), "{high}");
        assert!(
            high.to_string().contains("-1.1%  +3.0%: BASE TOO HIGH; lower it to 989"),
            "{high}"
        );
    }

    /// Fault: in `Base::verdict`, leave `of_limit` out; in `Limit::verdict`, drop an arm.
    #[test]
    fn a_limit_holds_whatever_the_base_and_a_missed_one_is_named() {
        let file =
            |limit: &str| format!("one 1000 0123456 +20% much\nlimit one {limit}").parse::<Bases>();
        let verdict =
            |limit: &str, now: u64| file(limit).unwrap().compare(&[("one".to_owned(), now)]);
        for (limit, now, advice) in [
            ("1100", 1100, None),
            ("1100", 1101, Some(": ABOVE ITS LIMIT")),
            ("1100 missed 1120 89abcde a hash", 1120, None),
            ("1100 missed 1120 89abcde a hash", 1121, Some(": ABOVE 1120")),
            ("1100 missed 1120 89abcde a hash", 1100, Some(": MEETS ITS LIMIT")),
            ("1300", 1231, Some(": TOO MUCH")),
        ] {
            let report = verdict(limit, now);
            assert_eq!(report.is_good(), advice.is_none(), "{report}");
            assert!(report.to_string().contains(advice.unwrap_or("limit 1100")), "{report}");
        }
        let needs = "line 2: missed limit of one needs a figure, a commit and a reason";
        for (limit, why) in [
            ("1100 missed 1120 89abcde", needs),
            ("1100 missed 1120 a hash", needs),
            ("1100 missed 1100 89abcde a hash", needs),
            ("1100 1120", "line 2: 1120 stands behind the limit of one"),
            ("many", "line 2: limit of one is no number"),
            ("1100\nlimit one 1200", "line 3: one has two limits"),
            ("1100\nlimit two 1200", "line 3: two has a limit before its base"),
        ] {
            assert_eq!(file(limit), Err(why.to_owned()), "{limit}");
        }
        assert_eq!(file("1100 missed 1120 89abcde a hash").unwrap().limit("one"), Some(1100));
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
