//! Dates of certificates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ike_proto::wire::der::Der;

use crate::text::Date;

/// A day before this program was made, in seconds since 1970: 2026-11-29. It is no earlier than the newest version in
/// CHANGELOG.md. A constant, so that two builds of one source are the same.
const MADE_AFTER: u64 = 1_795_910_400;

/// What to say where something is not valid yet at `now`; nothing unless the clock is wrong for certain.
pub fn wrong_clock(now: SystemTime) -> Option<String> {
    let made = UNIX_EPOCH + Duration::from_secs(MADE_AFTER);
    (now < made).then(|| {
        format!(
            "this host's clock is wrong, for it stands at {}, before this program was made: a child with `mode = pass` for UDP \
             port 123 lets NTP set it beside a tunnel",
            Date(now)
        )
    })
}

/// Reads the next Time of `reader`; `None` if it is malformed. The library for dates begins in 1970.
//= https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5.1
//# For the purposes of this profile, UTCTime values MUST be expressed in
//# Greenwich Mean Time (Zulu) and MUST include seconds (i.e., times are
//# YYMMDDHHMMSSZ), even where the number of seconds is zero.
//= https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5.1
//# Where YY is greater than or equal to 50, the year SHALL be
//# interpreted as 19YY; and
pub(crate) fn read(reader: &mut Der<'_>) -> Option<SystemTime> {
    let tag = reader.peek()?;
    let text = reader.content(tag)?;
    let (digits, zulu) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if zulu != b"Z" || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let pair = |pair: &[u8; 2]| u64::from(pair[0] - b'0') * 10 + u64::from(pair[1] - b'0');
    let pairs: Vec<u64> = digits.as_chunks::<2>().0.iter().map(pair).collect();
    let (year, rest) = match (tag, digits.len(), pairs.as_slice()) {
        (UTC_TIME, 12, [year, rest @ ..]) if *year >= 50 => (1900 + year, rest),
        (UTC_TIME, 12, [year, rest @ ..]) => (2000 + year, rest),
        (GENERALIZED_TIME, 14, [century, year, rest @ ..]) => (century * 100 + year, rest),
        _ => return None,
    };
    let [month, day, hour, minute, second] = *rest else { return None };
    let days = days(year, month, day)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    match seconds.checked_sub(EPOCH_DAYS * 24 * 3600) {
        Some(since) => UNIX_EPOCH.checked_add(Duration::from_secs(since)),
        None => UNIX_EPOCH.checked_sub(Duration::from_secs(EPOCH_DAYS * 24 * 3600 - seconds)),
    }
}

/// Days from the first of January of year 0 to a date of the Gregorian calendar; `None` if there is no such date.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, 28 + u64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = lengths.get(..usize::try_from(month.checked_sub(1)?).ok()?)?;
    let length = lengths.get(before.len())?;
    if !(1..=*length).contains(&day) {
        return None;
    }
    // Year 0 is a leap year.
    let leaps =
        if year == 0 { 0 } else { (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400 + 1 };
    Some(year * 365 + leaps + before.iter().sum::<u64>() + day - 1)
}

/// Days from the first of January of year 0 to that of 1970.
const EPOCH_DAYS: u64 = 719_528;

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

#[cfg(test)]
mod tests {
    use super::*;
    use ike_proto::wire::der;

    fn at(tag: u8, text: &str) -> Option<i64> {
        let mut octets = Vec::new();
        der::push(&mut octets, tag, &[text.as_bytes()]);
        let time = read(&mut Der::new(&octets))?;
        Some(match time.duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_secs() as i64,
            Err(before) => -(before.duration().as_secs() as i64),
        })
    }

    /// Faults: a later day in CHANGELOG.md than `MADE_AFTER`; in `wrong_clock`, turn the comparison.
    #[test]
    fn a_clock_before_the_newest_version_is_wrong() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../CHANGELOG.md");
        let changes = std::fs::read_to_string(file).unwrap();
        for line in changes.lines().filter(|line| line.starts_with("## [")) {
            let Some((version, day)) = line.split_once("] - ") else { continue };
            let day = at(GENERALIZED_TIME, &format!("{}000000Z", day.replace('-', ""))).unwrap();
            assert!(MADE_AFTER as i64 >= day, "{version}] is newer than `MADE_AFTER`");
        }
        let clock = |seconds| wrong_clock(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(clock(MADE_AFTER), None);
        let wrong = clock(0).unwrap();
        assert!(wrong.contains("stands at 1970-01-01 00:00:00 UTC"), "{wrong}");
        assert!(wrong.contains("`mode = pass` for UDP port 123"), "{wrong}");
    }

    /// The numbers are those of `date -u +%s`.
    ///
    /// Fault: in `read`, yield nothing for a date before 1970.
    #[test]
    fn dates_are_read_from_year_0_to_9999() {
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "691231235959Z", -1),
            (UTC_TIME, "500101000000Z", -631_152_000),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (UTC_TIME, "000229120000Z", 951_825_600),
            (GENERALIZED_TIME, "20300601000000Z", 1_906_502_400),
            (GENERALIZED_TIME, "19000301000000Z", -2_203_891_200),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
            (GENERALIZED_TIME, "00000101000000Z", -62_167_219_200),
        ] {
            assert_eq!(at(tag, text), Some(seconds), "{text}");
        }
        for (tag, text) in [
            (UTC_TIME, ""),
            (UTC_TIME, "7001010000Z"),
            (UTC_TIME, "700101000000+"),
            (UTC_TIME, "20300601000000Z"),
            (UTC_TIME, "70010100000Z"),
            (UTC_TIME, "701301000000Z"),
            (UTC_TIME, "700001000000Z"),
            (UTC_TIME, "700100000000Z"),
            (UTC_TIME, "010229000000Z"),
            (UTC_TIME, "700101240000Z"),
            (UTC_TIME, "700101006000Z"),
            (UTC_TIME, "70010100000xZ"),
            (GENERALIZED_TIME, "19000229000000Z"),
            (GENERALIZED_TIME, "700101000000Z"),
            (GENERALIZED_TIME, "20300601000000.5Z"),
            (0x04, "700101000000Z"),
        ] {
            assert_eq!(at(tag, text), None, "{text}");
        }
    }
}
