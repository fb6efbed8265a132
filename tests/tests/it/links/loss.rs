//! Setup time and octets of many handshakes over links that lose datagrams.

use ike_tests::Setup;
use ike_tests::link::{LinkModel, Loss};

use super::scene::{MS, Suite, establish, octets, pair, silent};

/// What many handshakes took.
struct Runs {
    /// Seconds, sorted.
    seconds: Vec<f64>,
    /// Octets of both ends, sorted.
    octets: Vec<f64>,
}

impl Runs {
    fn of(runs: u64, suite: Suite, model: LinkModel, change: impl Fn(&mut Setup) + Copy) -> Self {
        let mut all = Self { seconds: Vec::new(), octets: Vec::new() };
        for seed in 0..runs {
            let mut pair = pair(1000 + seed, suite, model, change);
            let took = establish(&mut pair).unwrap_or_else(|| panic!("{}", pair.story()));
            all.seconds.push(took.as_secs_f64());
            all.octets.push(octets(&pair) as f64);
            if std::env::var("LINKS_STORY")
                .is_ok_and(|least| took.as_secs_f64() > least.parse().unwrap_or(1e9))
            {
                println!("{}", pair.story());
            }
        }
        all.seconds.sort_by(f64::total_cmp);
        all.octets.sort_by(f64::total_cmp);
        all
    }

    fn mean(&self) -> f64 {
        self.seconds.iter().sum::<f64>() / self.seconds.len() as f64
    }

    fn octets_95(&self) -> f64 {
        self.octets[self.octets.len() * 95 / 100]
    }

    fn show(&self, what: &str) {
        let at = |part: usize| {
            self.seconds[(self.seconds.len() * part / 100).min(self.seconds.len() - 1)]
        };
        println!(
            "{what}: mean {:.3} s, median {:.3}, 95 % {:.3}, worst {:.3}, octets 95 % {:.0}",
            self.mean(),
            at(50),
            at(95),
            at(100),
            self.octets_95()
        );
    }
}

fn lossy(loss: f64) -> LinkModel {
    LinkModel { loss: Loss::Random(loss), ..LinkModel::rtt(10 * MS) }
}

#[test]
fn five_percent_lost() {
    let acked = Runs::of(200, Suite::MlDsa1024, lossy(0.05), |_| {});
    acked.show("acknowledged");
    assert!(acked.mean() < 0.150);
    let frodo = Runs::of(100, Suite::Frodo, lossy(0.05), |_| {});
    frodo.show("FrodoKEM");
    assert!(frodo.mean() < 0.250);
    let silent = Runs::of(200, Suite::MlDsa1024, lossy(0.05), silent);
    silent.show("not acknowledged");
    // strongSwan's rules take 5.5 s.
    assert!(silent.mean() < 0.400);
}

#[test]
fn octets_stay_few() {
    for suite in [Suite::Psk, Suite::MlDsa1024, Suite::Frodo] {
        let least = Runs::of(1, suite, lossy(0.0), |_| {}).octets_95();
        for (loss, most) in [(0.08, 1.5), (0.12, 1.6), (0.2, 2.0)] {
            let runs = Runs::of(60, suite, lossy(loss), |_| {});
            runs.show(&format!("{suite:?} {loss}"));
            let part = runs.octets_95() / least;
            println!("  {part:.2} of {least}");
            assert!(part <= most || suite == Suite::Psk, "{suite:?} {loss}: {part}");
        }
    }
}
