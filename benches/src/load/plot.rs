//! What a handshake costs while the responder's SAs become more.

use std::fmt::Write as _;

use super::report::used;
use super::run::Row;
use crate::svg::{Scale, WIDTH, color, escape, head};

const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 30.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = HEIGHT - 50.0;

/// The responder's CPU time for a handshake of each slice, over the SAs that there were in its middle.
pub fn cost(rows: &[Row]) -> String {
    let series: Vec<(&str, Vec<(f64, f64)>)> = rows
        .iter()
        .map(|row| {
            (
                row.suite,
                row.slices
                    .iter()
                    .map(|slice| {
                        let middle = slice.before as f64 + slice.established as f64 / 2.0;
                        (middle, used(slice)[0])
                    })
                    .filter(|(_, cost)| cost.is_finite())
                    .collect(),
            )
        })
        .collect();
    let all = || series.iter().flat_map(|(_, points)| points);
    let x = Scale::over(all().map(|(middle, _)| *middle), LEFT, RIGHT);
    let most = all().map(|(_, cost)| *cost).fold(1.0, f64::max);
    // A round step, and five or so of them.
    let magnitude = 10_f64.powf((most / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * magnitude);
    let step = step.into_iter().find(|step| most / step <= 6.0).unwrap_or(10.0 * magnitude);
    let top = (most / step).ceil() * step;
    let y = |cost: f64| BOTTOM - (BOTTOM - TOP) * cost / top;
    let legend = 16.0 * series.len() as f64;
    let mut out =
        head(HEIGHT + legend, "responder's CPU time for a handshake (us) over established SAs");
    x.grid(&mut out, TOP, BOTTOM);
    let mut line = 0.0;
    while line <= top {
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{0:.1}\" x2=\"{RIGHT}\" y2=\"{0:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\">{line:.0}</text>",
            y(line),
            LEFT - 6.0,
            y(line) + 4.0
        );
        line += step;
    }
    for (index, (suite, points)) in series.iter().enumerate() {
        let line: Vec<String> = points
            .iter()
            .map(|(middle, cost)| format!("{:.1},{:.1}", x.at(*middle), y(*cost)))
            .collect();
        let (color, legend) = (color(index), HEIGHT + 16.0 * index as f64);
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>\
             <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"18\" height=\"3\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"{legend:.1}\">{}</text>",
            line.join(" "),
            legend - 5.0,
            LEFT + 26.0,
            escape(suite)
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::process::Usage;
    use crate::load::run::Slice;

    #[test]
    fn a_slice_is_a_point() {
        let slice = |before, ms| Slice {
            before,
            established: 1000,
            used: Some(Usage { cpu: Duration::from_millis(ms), ..Usage::default() }),
            ..Slice::default()
        };
        let slices = vec![slice(0, 100), slice(1000, 200), Slice::default()];
        let svg = cost(&[Row { suite: "psk", slices, ..Row::default() }]);
        let points = svg.split("points=\"").nth(1).and_then(|rest| rest.split('"').next());
        let points: Vec<&str> = points.unwrap_or_default().split(' ').collect();
        assert_eq!(points.len(), 2, "{svg}");
        assert!(points[1].ends_with(",60.0"), "200 us are the top: {points:?}");
        assert!(points[0].ends_with(",215.0"), "100 us are half as high: {points:?}");
        assert!(!svg.contains("NaN") && !cost(&[]).contains("NaN"));
    }
}
