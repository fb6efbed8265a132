//! One handshake as it was measured, as a line of CSV.

use super::tally::Sent;

/// A handshake.
#[derive(Debug, Clone, PartialEq)]
pub struct Handshake {
    /// What was between the ends.
    pub link: String,
    /// Who spoke to whom: `ours-strongswan` has our initiator.
    pub pair: String,
    /// Algorithms.
    pub suite: String,
    /// Seconds from the wish to the IKE SA with its first child, failed attempts included; `None` if it
    /// was given up.
    pub setup: Option<f64>,
    /// Attempts that began anew.
    pub attempts: u32,
    /// What the initiator sent.
    pub initiator: Sent,
    /// What the responder sent, if that is known.
    pub responder: Option<Sent>,
}

/// First line of the file.
pub const HEADING: &str =
    "link,pair,suite,setup_s,attempts,i_datagrams,i_octets,i_again,r_datagrams,r_octets,r_again";

impl Handshake {
    /// The line.
    pub fn csv(&self) -> String {
        let setup = self.setup.map_or_else(String::new, |seconds| format!("{seconds:.6}"));
        let Sent { datagrams, octets, again } = self.initiator;
        let responder = self.responder.map_or_else(
            || ",,".to_owned(),
            |sent| format!("{},{},{}", sent.datagrams, sent.octets, sent.again),
        );
        format!(
            "{},{},{},{setup},{},{datagrams},{octets},{again},{responder}",
            self.link, self.pair, self.suite, self.attempts
        )
    }

    /// Reads a line; other columns may follow.
    pub fn parse(line: &str) -> Result<Self, String> {
        let fields: Vec<&str> = line.split(',').collect();
        let [link, pair, suite, setup, attempts, i @ .., r_datagrams, r_octets, r_again] =
            fields.as_slice()
        else {
            return Err(format!("{line:?} has too few columns"));
        };
        let wrong = |field: &str| format!("{field:?} in {line:?} is no number");
        let number = |field: &&str| field.parse::<u64>().map_err(|_| wrong(field));
        let setup = match *setup {
            "" => None,
            seconds => {
                let seconds = seconds.parse::<f64>().map_err(|_| wrong(seconds))?;
                Some(seconds)
                    .filter(|s| s.is_finite() && *s >= 0.0)
                    .ok_or_else(|| wrong("setup"))
                    .map(Some)?
            }
        };
        let [i_datagrams, i_octets, i_again] = i else {
            return Err(format!("{line:?} has not the columns {HEADING}"));
        };
        let responder = match *r_datagrams {
            "" => None,
            _ => Some(Sent {
                datagrams: number(r_datagrams)?,
                octets: number(r_octets)?,
                again: number(r_again)?,
            }),
        };
        Ok(Self {
            link: (*link).to_owned(),
            pair: (*pair).to_owned(),
            suite: (*suite).to_owned(),
            setup,
            attempts: attempts.parse().map_err(|_| wrong(attempts))?,
            initiator: Sent {
                datagrams: number(i_datagrams)?,
                octets: number(i_octets)?,
                again: number(i_again)?,
            },
            responder,
        })
    }

    /// Octets of IKE by both ends, and datagrams; of the initiator alone if no more is known.
    pub fn sum(&self) -> Sent {
        let mut sum = self.initiator;
        sum += self.responder.unwrap_or_default();
        sum
    }
}

/// The handshakes of a file with [`HEADING`].
pub fn parse(text: &str) -> Result<Vec<Handshake>, String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && *line != HEADING);
    lines.map(Handshake::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back() {
        let sent = Sent { datagrams: 4, octets: 1200, again: 1 };
        let done = Handshake {
            link: "loss-5".into(),
            pair: "ours-ours".into(),
            suite: "psk".into(),
            setup: Some(0.0125),
            attempts: 1,
            initiator: sent,
            responder: Some(sent),
        };
        let failed = Handshake { setup: None, responder: None, ..done.clone() };
        let text = format!("{HEADING}\n{}\n{}\n", done.csv(), failed.csv());
        assert_eq!(parse(&text), Ok(vec![done.clone(), failed.clone()]));
        assert_eq!(done.sum().octets, 2400);
        assert_eq!(failed.sum().datagrams, 4);
        for wrong in ["a,b", "l,p,s,x,1,1,1,1,,,", "l,p,s,-1,1,1,1,1,,,", "l,p,s,1,1,1,1,1,1,,"] {
            assert!(Handshake::parse(wrong).is_err(), "{wrong}");
        }
    }
}
