//! The tables as pictures.

use std::fmt::Write as _;

use crate::counter::{NAME, Rates};
use crate::rates::{SIZES, Series};
use crate::report::Row;

/// Minimum, median and maximum of every row as dots on a logarithmic scale of estimated core cycles.
pub fn spreads(rows: &[Row], rates: &Rates) -> String {
    let height = TOP + ROW * rows.len() as f64 + 40.0;
    let values = rows.iter().flat_map(|row| [row.spread.min, row.spread.max]);
    let scale = Scale::over(values.map(|ticks| rates.cycles(ticks)), LEFT, WIDTH - 30.0);
    let title = format!("core cycles, estimated from {NAME}: minimum, median, maximum");
    let mut out = head(height, &title);
    scale.grid(&mut out, TOP - 8.0, height - 32.0);
    for (index, Row { algorithm, backend, operation, spread }) in rows.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        let text = escape(&format!("{algorithm} {operation} ({backend})"));
        let x = [spread.min, spread.median, spread.max].map(|ticks| scale.at(rates.cycles(ticks)));
        let color = COLORS[index % 3];
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>\n\
             <line x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"{color}\"/>\n\
             <circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2\" fill=\"{color}\"/>\n\
             <rect x=\"{:.1}\" y=\"{:.1}\" width=\"4\" height=\"10\" fill=\"{color}\"/>\n\
             <circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2\" fill=\"{color}\"/>",
            LEFT - 10.0,
            y + 4.0,
            x[0],
            x[2],
            x[0],
            x[1] - 2.0,
            y - 5.0,
            x[2],
        );
    }
    out.push_str("</svg>\n");
    out
}

/// Operations per second over the size of the message: signatures above, verifications below.
pub fn rates(series: &[Series]) -> String {
    let legend = 14.0 * series.len() as f64;
    let height = 2.0 * PANEL + legend + 40.0;
    let mut out = head(height, "signatures and verifications per second by size of the message");
    for (title, top, pick) in [
        ("sign/s", TOP, (|s| s.sign) as fn(&Series) -> [Option<f64>; SIZES.len()]),
        ("verify/s", TOP + PANEL, |s| s.verify),
    ] {
        panel(&mut out, title, top, series, pick);
    }
    for (index, Series { algorithm, backend, .. }) in series.iter().enumerate() {
        let y = 2.0 * PANEL + 60.0 + 14.0 * index as f64;
        let (color, text) = (color(index), escape(&format!("{algorithm} ({backend})")));
        let _ = writeln!(
            out,
            "<rect x=\"60\" y=\"{:.1}\" width=\"18\" height=\"3\" fill=\"{color}\"/>\
             <text x=\"84\" y=\"{y:.1}\">{text}</text>",
            y - 5.0
        );
    }
    out.push_str("</svg>\n");
    out
}

fn panel(
    out: &mut String,
    title: &str,
    top: f64,
    series: &[Series],
    pick: fn(&Series) -> [Option<f64>; SIZES.len()],
) {
    let bottom = top + PANEL - 50.0;
    let values = series.iter().flat_map(|s| pick(s).into_iter().flatten());
    // Upwards: the scale runs from the bottom to the top.
    let scale = Scale::over(values, bottom, top);
    let x = |size: usize| 60.0 + (WIDTH - 90.0) * size as f64 / SIZES[SIZES.len() - 1] as f64;
    for power in scale.low..=scale.high {
        let y = scale.at(10_f64.powi(power));
        let _ = writeln!(
            out,
            "<line x1=\"60\" y1=\"{y:.1}\" x2=\"{:.0}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"54\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - 30.0,
            y + 4.0,
            power_of_ten(power)
        );
    }
    for size in SIZES {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{size}</text>",
            x(size),
            bottom + 16.0
        );
    }
    let _ = writeln!(out, "<text x=\"60\" y=\"{:.1}\">{title}</text>", top - 6.0);
    for (index, series) in series.iter().enumerate() {
        let points: Vec<String> = SIZES
            .into_iter()
            .zip(pick(series))
            .filter_map(|(size, rate)| Some(format!("{:.1},{:.1}", x(size), scale.at(rate?))))
            .collect();
        // What is not measured is dashed.
        let dashes = if points.len() < SIZES.len() { " stroke-dasharray=\"4 4\"" } else { "" };
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\"{dashes}/>",
            points.join(" "),
            color(index)
        );
    }
}

/// A logarithmic scale over whole powers of ten.
pub(crate) struct Scale {
    /// Powers of ten at its ends.
    pub(crate) low: i32,
    pub(crate) high: i32,
    start: f64,
    end: f64,
}

impl Scale {
    pub(crate) fn over(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Self {
        let logs = values.filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) =
            logs.fold((f64::MAX, f64::MIN), |(low, high), log| (low.min(log), high.max(log)));
        if low > high {
            return Self { low: 0, high: 1, start, end };
        }
        let (low, high) = (low.floor() as i32, high.ceil() as i32);
        Self { low, high: high.max(low + 1), start, end }
    }

    pub(crate) fn at(&self, value: f64) -> f64 {
        let part =
            (value.max(1e-9).log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        self.start + (self.end - self.start) * part
    }

    pub(crate) fn grid(&self, out: &mut String, top: f64, bottom: f64) {
        for power in self.low..=self.high {
            let x = self.at(10_f64.powi(power));
            let _ = writeln!(
                out,
                "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                power_of_ten(power)
            );
        }
    }
}

pub(crate) fn head(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"20\" y=\"20\" font-size=\"14\">{}</text>\n",
        escape(title)
    )
}

fn power_of_ten(power: i32) -> String {
    match power {
        0..=3 => format!("{}", 10_u64.pow(power.unsigned_abs())),
        -3..0 => format!("{}", 10_f64.powi(power)),
        _ => format!("10<tspan dy=\"-4\" font-size=\"8\">{power}</tspan>"),
    }
}

pub(crate) fn color(index: usize) -> &'static str {
    COLORS[index % COLORS.len()]
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

pub(crate) const WIDTH: f64 = 1000.0;
const LEFT: f64 = 330.0;
const TOP: f64 = 50.0;
const ROW: f64 = 16.0;
const PANEL: f64 = 380.0;
const COLORS: [&str; 9] = [
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2",
    "#7f7f7f",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::rainbow;
    use crate::sample::Spread;

    /// Every element that is opened is closed.
    fn assert_balanced(svg: &str) {
        let opened = svg.matches('<').count() - svg.matches("</").count();
        let closed = svg.matches("/>").count() + svg.matches("</").count();
        assert_eq!(opened, closed, "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn pictures_are_whole() {
        let rates = Rates { ticks: 2e9, core: 3e9, overhead: 30 };
        let row = Row {
            algorithm: "a<b&c".into(),
            backend: "x",
            operation: "sign",
            spread: Spread { runs: 3, min: 0, median: 900, max: 40_000 },
        };
        let svg = spreads(&[row.clone(), row], &rates);
        assert_balanced(&svg);
        assert!(svg.contains("a&lt;b&amp;c"), "{svg}");
        assert_balanced(&spreads(&[], &rates));
        assert_balanced(&super::rates(&[rainbow()]));
    }

    #[test]
    fn scales_put_powers_at_even_distances() {
        let scale = Scale::over([20.0, 4000.0].into_iter(), 100.0, 400.0);
        assert_eq!((scale.low, scale.high), (1, 4));
        assert!((scale.at(100.0) - 200.0).abs() < 1e-6);
        assert!((scale.at(10_000.0) - 400.0).abs() < 1e-6);
    }
}
