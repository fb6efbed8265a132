//! Time by the processor's counter, for criterion: results are shown as time and as ticks.

use criterion::measurement::{Measurement, ValueFormatter};
use criterion::{Criterion, Throughput};
use ike_bench::counter::{Rates, ticks};

/// What `criterion_group!` takes as its configuration.
pub fn criterion() -> Criterion<Counter> {
    Criterion::default().with_measurement(Counter(Shown(Rates::measure())))
}

/// The counter. Values are in nanoseconds, as those of wall-clock time are, so that a saved baseline
/// may be of either.
pub struct Counter(Shown);

impl Measurement for Counter {
    type Intermediate = u64;
    type Value = u64;

    fn start(&self) -> u64 {
        ticks()
    }

    fn end(&self, begun: u64) -> u64 {
        ticks().saturating_sub(begun)
    }

    fn add(&self, a: &u64, b: &u64) -> u64 {
        a + b
    }

    fn zero(&self) -> u64 {
        0
    }

    fn to_f64(&self, value: &u64) -> f64 {
        self.0.0.nanoseconds(*value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        &self.0
    }
}

/// Shows nanoseconds as time and ticks.
struct Shown(Rates);

impl ValueFormatter for Shown {
    fn format_value(&self, nanoseconds: f64) -> String {
        let mut values = [nanoseconds];
        let unit = self.scale_values(nanoseconds, &mut values);
        let ticks = nanoseconds * self.0.ticks / 1e9;
        format!("{} {unit} = {ticks:.0} ticks", three(values[0]))
    }

    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        let (unit, divisor) = match typical {
            ..1e3 => ("ns", 1.0),
            1e3..1e6 => ("µs", 1e3),
            1e6..1e9 => ("ms", 1e6),
            _ => ("s", 1e9),
        };
        values.iter_mut().for_each(|value| *value /= divisor);
        unit
    }

    fn scale_throughputs(
        &self,
        _typical: f64,
        throughput: &Throughput,
        values: &mut [f64],
    ) -> &'static str {
        // Per nanosecond; octets so are gigabytes per second.
        let (unit, amount) = match *throughput {
            Throughput::Bytes(octets) | Throughput::BytesDecimal(octets) => ("GB/s", octets as f64),
            Throughput::Elements(elements) => ("/s", elements as f64 * 1e9),
            _ => ("/s", 1e9),
        };
        values.iter_mut().for_each(|value| *value = amount / *value);
        unit
    }

    fn scale_for_machines(&self, _values: &mut [f64]) -> &'static str {
        "ns"
    }
}

/// With some three digits.
fn three(value: f64) -> String {
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$}")
}
