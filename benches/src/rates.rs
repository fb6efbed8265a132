//! Signatures and verifications per second against the size of the message.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use ike_proto::crypto::{CryptoError, SecureRandom};

use crate::operations::Signature;

/// Sizes of messages in octets: 21 to 65,520 in eleven steps.
pub const SIZES: [usize; 11] =
    [21, 6_571, 13_121, 19_671, 26_221, 32_771, 39_320, 45_870, 52_420, 58_970, 65_520];

/// Operations per second of one backend, one per size; `None` where nothing was measured.
#[derive(Debug, Clone)]
pub struct Series {
    /// Algorithm.
    pub algorithm: String,
    /// Backend, or what to know of figures that come from elsewhere.
    pub backend: String,
    /// Signatures per second.
    pub sign: [Option<f64>; SIZES.len()],
    /// Verifications per second.
    pub verify: [Option<f64>; SIZES.len()],
}

/// Measures `signature` for `time` per size and operation, but for at least one run of each.
///
/// # Errors
/// What the backend says.
pub fn measure(signature: &Signature, time: Duration) -> Result<Series, CryptoError> {
    let scheme = signature.scheme.clone();
    let key = (signature.keygen)(scheme.clone(), signature.rsa_bits)?;
    let mut series = Series {
        algorithm: signature.name(),
        backend: signature.backend.to_owned(),
        sign: [None; SIZES.len()],
        verify: [None; SIZES.len()],
    };
    let slots = series.sign.iter_mut().zip(&mut series.verify);
    for (size, (sign, verify)) in SIZES.into_iter().zip(slots) {
        let mut message = vec![0; size];
        pq_kem::os_random().fill(&mut message);
        let signed = key.sign(&scheme, &message)?;
        signature.verifier.verify(&scheme, key.public_key(), &message, &signed)?;
        *sign = Some(rate(time, || key.sign(&scheme, &message).map(drop))?);
        *verify = Some(rate(time, || {
            signature.verifier.verify(&scheme, key.public_key(), &message, &signed)
        })?);
    }
    Ok(series)
}

/// What was published of Rainbow-Ia, of which there is no backend and will be none.
pub fn rainbow() -> Series {
    let ends = |first, last| {
        let mut rates = [None; SIZES.len()];
        rates[0] = Some(first);
        rates[SIZES.len() - 1] = Some(last);
        rates
    };
    Series {
        algorithm: "Rainbow-Ia: BROKEN".into(),
        backend: "published".into(),
        sign: ends(6000.0, 3080.0),
        verify: ends(7089.0, 3352.0),
    }
}

/// What to know of the row of [`rainbow`].
pub const RAINBOW_NOTE: &str = "Rainbow-Ia is broken (Beullens, ePrint 2022/214: a weekend on a laptop) \
and has no backend here; its row repeats the ends of the published curves, from an Intel Core i5-7500T.";

/// Both tables as text.
pub fn text(series: &[Series]) -> String {
    let mut out = String::new();
    for (title, pick) in [
        ("signatures per second", (|s| s.sign) as fn(&Series) -> [Option<f64>; SIZES.len()]),
        ("verifications per second", |s| s.verify),
    ] {
        let _ = write!(out, "{title} by size of the message in octets\n{:<42}", "");
        for size in SIZES {
            let _ = write!(out, "{size:>9}");
        }
        out.push('\n');
        for series in series {
            let _ = write!(out, "{:<28} {:<13}", series.algorithm, series.backend);
            for rate in pick(series) {
                let _ = match rate {
                    Some(rate) if rate < 100.0 => write!(out, "{rate:>9.2}"),
                    Some(rate) => write!(out, "{rate:>9.0}"),
                    None => write!(out, "{:>9}", "-"),
                };
            }
            out.push('\n');
        }
        out.push('\n');
    }
    out.push_str(RAINBOW_NOTE);
    out.push('\n');
    out
}

/// One line per series, size and operation, with a heading.
pub fn csv(series: &[Series]) -> String {
    let mut out = String::from("algorithm,backend,operation,octets,per_second\n");
    for series in series {
        for (operation, rates) in [("sign", &series.sign), ("verify", &series.verify)] {
            for (size, rate) in SIZES.iter().zip(rates) {
                if let Some(rate) = rate {
                    let Series { algorithm, backend, .. } = series;
                    let _ = writeln!(out, "{algorithm},{backend},{operation},{size},{rate:.2}");
                }
            }
        }
    }
    out
}

fn rate(
    time: Duration,
    mut operation: impl FnMut() -> Result<(), CryptoError>,
) -> Result<f64, CryptoError> {
    let start = Instant::now();
    let mut runs = 0_u32;
    loop {
        operation()?;
        runs += 1;
        let elapsed = start.elapsed();
        if elapsed >= time {
            return Ok(f64::from(runs) / elapsed.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::signatures;

    #[test]
    fn sizes_are_even_steps() {
        assert_eq!((SIZES[0], SIZES[10]), (21, 65_520));
        assert!(SIZES.windows(2).all(|pair| (6_549..=6_550).contains(&(pair[1] - pair[0]))));
    }

    #[test]
    fn every_size_is_measured_and_told() {
        let fast = signatures().into_iter().find(|s| s.name() == "ED25519");
        let series = measure(&fast.unwrap(), Duration::ZERO).unwrap();
        assert!(series.sign.iter().chain(&series.verify).all(|rate| rate.is_some_and(|r| r > 0.0)));
        let all = [series, rainbow()];
        assert_eq!(csv(&all).lines().count(), 1 + 22 + 4);
        let text = text(&all);
        assert!(text.contains("BROKEN") && text.contains("65520"), "{text}");
    }
}
