//! Time spans, sizes and switches as swanctl.conf(5) writes them.

use std::time::Duration;

/// What [`duration`] takes, for messages.
pub(crate) const DURATION: &str = "a time such as 30, \"30s\", \"5m\", \"4h\" or \"1d\"";
/// What [`size`] takes, for messages.
pub(crate) const SIZE: &str = "a number of bytes such as 1000000, \"500M\" or \"2G\"";

/// No configured time is longer: a hundred years.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Reads `30`, `1.5`, `30s`, `5m`, `4h`, `1d` and, beyond swanctl.conf(5), `200ms`.
pub fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = split_unit(text);
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    if let (Ok(whole), false) = (number.parse::<u64>(), unit == "ms") {
        let seconds = whole.checked_mul(scale as u64)?;
        return Some(Duration::from_secs(seconds)).filter(|time| *time <= LONGEST);
    }
    seconds(number.parse::<f64>().ok()? * scale)
}

/// A number of seconds that need not be whole.
pub fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok().filter(|time| *time <= LONGEST)
}

/// Reads `1000`, `5k`, `5M`, `5G` (powers of 1024, as strongSwan has them).
pub(crate) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text.trim());
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Reads `yes` and `no` in the spellings strongSwan knows.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "yes" | "true" | "enabled" | "1" => Some(true),
        "no" | "false" | "disabled" | "0" => Some(false),
        _ => None,
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let table = [
            ("0", Some(0)),
            ("30", Some(30_000)),
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("4h", Some(14_400_000)),
            ("1d", Some(86_400_000)),
            ("1.5", Some(1_500)),
            ("0.5m", Some(30_000)),
            ("200ms", Some(200)),
            (" 4 h ", Some(14_400_000)),
            ("", None),
            ("h", None),
            ("-1", None),
            ("1e3", None),
            ("4 hours", None),
            ("99999999999999999999", None),
            ("18446744073709551615d", None),
            ("1.2.3", None),
            ("NaN", None),
        ];
        for (text, millis) in table {
            assert_eq!(duration(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn sizes() {
        let table = [
            ("0", Some(0)),
            ("1000", Some(1000)),
            ("1k", Some(1024)),
            ("2M", Some(2 << 20)),
            ("3G", Some(3 << 30)),
            ("1T", None),
            ("-5", None),
            ("1.5M", None),
            ("18446744073709551615G", None),
            ("", None),
        ];
        for (text, bytes) in table {
            assert_eq!(size(text), bytes, "{text:?}");
        }
    }

    #[test]
    fn switches() {
        assert_eq!((switch("Yes"), switch("no"), switch("maybe")), (Some(true), Some(false), None));
    }
}
