//! What others measured, to stand beside ours.

use std::time::Duration;

use super::Case;
use super::rules::Rules;
use super::suite::Suite;
use ike_tests::link::{LinkModel, Loss};

/// Published figures of one case: what is given of them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Figures {
    /// Handshakes.
    pub n: Option<usize>,
    /// Median setup time in seconds.
    pub median: Option<f64>,
    /// Mean setup time in seconds.
    pub mean: Option<f64>,
    /// 95th percentile of the setup time in seconds.
    pub p95: Option<f64>,
    /// Longest setup time in seconds.
    pub worst: Option<f64>,
    /// Share of setups of more than four seconds.
    pub stalled: Option<f64>,
    /// 95th percentile of the octets that both ends sent.
    pub octets_p95: Option<f64>,
    /// Largest number of octets that both ends sent.
    pub octets_worst: Option<f64>,
}

/// One line of the study of 137,490 handshakes.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Certificate type.
    pub cert: String,
    /// Key exchanges.
    pub ke: String,
    /// Delay in milliseconds, as the study names it.
    pub ping: f64,
    /// Loss in percent.
    pub loss: f64,
    /// Handshakes.
    pub n: usize,
    /// Mean in seconds.
    pub mean: f64,
    /// Median in seconds.
    pub median: f64,
    /// 95th percentile in seconds.
    pub p95: f64,
    /// Longest in seconds.
    pub max: f64,
    /// Share of more than four seconds.
    pub stalled: f64,
}

const PQ_IPSEC: &str = include_str!("pq_ipsec.csv");

/// Every line of the study.
pub fn pq_ipsec() -> Vec<Line> {
    PQ_IPSEC.lines().skip(1).filter_map(line).collect()
}

fn line(text: &str) -> Option<Line> {
    let mut fields = text.split(',');
    let (cert, ke) = (fields.next()?.to_owned(), fields.next()?.to_owned());
    let numbers: Vec<f64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
    let [ping, loss, n, mean, median, p95, _p99, max, stalled] = numbers.try_into().ok()?;
    Some(Line { cert, ke, ping, loss, n: n as usize, mean, median, p95, max, stalled })
}

impl Line {
    /// Why the line says nothing of retransmission by itself, if so.
    pub fn defect(&self) -> Option<&'static str> {
        if self.ping == 200.0 && self.loss == 0.0 {
            return Some("the delay was not active: its median is 14 ms");
        }
        // Five tries end after 165 s. With independent losses of 5 % no suite needs as much once in
        // a million handshakes.
        if self.max > 100.0 {
            return Some("handshakes of more than 500 s: the peer was away");
        }
        if self.loss == 0.0 && self.max > 5.0 {
            return Some("a stall of seconds without loss");
        }
        None
    }
}

/// A case for every line of at least `least` handshakes, by strongSwan's rules unless `rules` are given.
///
/// What the study does not say is taken from its lines without loss. The time of computing (and of the
/// command that starts a handshake) is the median of the same suite without delay and loss. What it calls
/// a ping of 100 ms adds 220 ms to each exchange, one of 200 ms 435 ms: a delay in each direction, and
/// some.
pub fn pq_ipsec_cases(least: usize, rules: [Rules; 2]) -> Vec<(Line, Case)> {
    let lines = pq_ipsec();
    let find = |cert: &str, ke: &str, ping: f64, loss: f64| {
        lines.iter().find(|l| l.cert == cert && l.ke == ke && l.ping == ping && l.loss == loss)
    };
    let case = |line: &Line| {
        let suite = Suite::published(&line.cert, &line.ke)?;
        let exchanges = f64::from(suite.exchanges());
        let base = find(&line.cert, &line.ke, 0.0, 0.0)?.median;
        let delayed = match line.ping {
            0.0 => base,
            // The line of 200 ms without loss is of no use; a loss of 0.5 % does not move the median.
            200.0 => find(&line.cert, &line.ke, 200.0, 0.5)?.median,
            ping => find(&line.cert, &line.ke, ping, 0.0)?.median,
        };
        let seconds = |seconds: f64| Duration::from_secs_f64(seconds.max(0.0));
        let link = LinkModel {
            delay: seconds((delayed - base) / exchanges / 2.0),
            loss: Loss::Random(line.loss / 100.0),
            ..LinkModel::default()
        };
        let label = format!("{} ms {} %", line.ping, line.loss);
        let mut case = Case::new(label, suite, Rules::Strongswan, link);
        case.rules = rules;
        case.processing = seconds(base / exchanges / 2.0);
        case.published = Some(Figures {
            n: Some(line.n),
            median: Some(line.median),
            mean: Some(line.mean),
            p95: Some(line.p95),
            worst: Some(line.max),
            stalled: Some(line.stalled),
            ..Figures::default()
        });
        Some(case)
    };
    let wanted = lines.iter().filter(|line| line.n >= least);
    wanted.filter_map(|line| Some((line.clone(), case(line)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_and_has_a_case() {
        let lines = pq_ipsec();
        assert_eq!(lines.len(), PQ_IPSEC.lines().count() - 1);
        assert_eq!(lines.iter().map(|line| line.n).sum::<usize>(), 137_490);
        let long = lines.iter().filter(|line| line.n >= 500).count();
        assert_eq!(pq_ipsec_cases(500, [Rules::Strongswan; 2]).len(), long);
    }

    #[test]
    fn delays_come_of_the_lines_without_loss() {
        for (line, case) in pq_ipsec_cases(500, [Rules::Strongswan; 2]) {
            let rtt = case.rtt().as_secs_f64();
            match line.ping {
                0.0 => assert_eq!(rtt, 0.0),
                100.0 => assert!((0.20..0.24).contains(&rtt), "{line:?} {rtt}"),
                _ => assert!((0.42..0.45).contains(&rtt), "{line:?} {rtt}"),
            }
        }
    }
}
