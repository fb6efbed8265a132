//! Pictures: distributions as measuredSwan's Figures 3 and 4 have them, and published shares beside
//! ours.

use std::fmt::Write as _;

use super::report::row_check;
use super::run::Row;
use crate::svg::{Scale, WIDTH, color, escape, head};

/// Height of the panels of one link.
const PANEL: f64 = 230.0;
const TOP: f64 = 50.0;
const GAP: f64 = 60.0;

/// For every link two panels: the distribution of setup times and that of octets, each suite in its
/// colour, our rules solid and others dashed.
pub fn distributions(rows: &[Row], title: &str) -> String {
    let labels = distinct(rows.iter().map(|row| row.case.label.as_str()));
    let suites = distinct(rows.iter().map(|row| row.case.suite.name.as_str()));
    let rules = distinct(rows.iter().map(|row| row.case.rules_name()));
    let legend = 16.0 * (suites.len() * rules.len()) as f64;
    let height = TOP + PANEL * labels.len() as f64 + legend + 20.0;
    let mut out = head(height, title);
    let half = (WIDTH - 3.0 * GAP) / 2.0;
    let times = |row: &Row| -> Vec<f64> {
        // What never came about keeps its curve below 1.
        row.outcomes
            .iter()
            .map(|o| if o.established { o.time.as_secs_f64() } else { f64::INFINITY })
            .collect()
    };
    let octets = |row: &Row| -> Vec<f64> {
        row.outcomes.iter().map(|outcome| outcome.all_ike_octets() as f64).collect()
    };
    type Values<'a> = &'a dyn Fn(&Row) -> Vec<f64>;
    let panels: [(&str, f64, Values<'_>); 2] =
        [("setup time, s", GAP, &times), ("octets of both ends", 2.0 * GAP + half, &octets)];
    for (caption, left, values) in panels {
        let all = rows.iter().flat_map(values).filter(|value| value.is_finite());
        let scale = Scale::over(all, left, left + half);
        for (index, label) in labels.iter().enumerate() {
            let top = TOP + PANEL * index as f64;
            let bottom = top + PANEL - 50.0;
            frame(
                &mut out,
                &scale,
                &format!("{label}: {caption}"),
                [left, left + half, top, bottom],
            );
            for row in rows.iter().filter(|row| row.case.label == *label) {
                let suite = place(&suites, &row.case.suite.name);
                let dash = DASHES[place(&rules, &row.case.rules_name()) % DASHES.len()];
                let points = steps(values(row), &scale, top, bottom);
                let _ = writeln!(
                    out,
                    "<polyline points=\"{points}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"{dash}/>",
                    color(suite)
                );
            }
        }
    }
    let mut y = TOP + PANEL * labels.len() as f64;
    for (suite, name) in suites.iter().enumerate() {
        for (index, rules) in rules.iter().enumerate() {
            let _ = writeln!(
                out,
                "<line x1=\"{GAP}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{}\" \
                 stroke-width=\"1.5\"{}/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                y - 4.0,
                GAP + 30.0,
                y - 4.0,
                color(suite),
                DASHES[index % DASHES.len()],
                GAP + 40.0,
                escape(&format!("{name}, {rules}")),
            );
            y += 16.0;
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Published shares of handshakes of more than four seconds over ours, with the interval of samples.
pub fn shares(rows: &[Row], seed: u64) -> String {
    let (left, size) = (80.0, 600.0);
    let mut out = head(size + 120.0, "share of handshakes of more than four seconds");
    let (top, bottom) = (TOP, TOP + size);
    for step in 0..=10 {
        let at = f64::from(step) / 10.0;
        let (x, y) = (left + size * at, bottom - size * at);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\
             <line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{at:.1}</text>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{at:.1}</text>",
            left + size,
            bottom + 16.0,
            left - 6.0,
            y + 4.0,
        );
    }
    let _ = writeln!(
        out,
        "<line x1=\"{left}\" y1=\"{bottom}\" x2=\"{:.1}\" y2=\"{top}\" stroke=\"#888\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">simulated, strongSwan's rules; the bar is where 95 of 100 samples of the \
         published size lie</text>\
         <text x=\"{left}\" y=\"{:.1}\">published</text>",
        left + size,
        left,
        bottom + 36.0,
        top - 6.0,
    );
    for row in rows {
        let Some((_, check)) = row_check(row, seed) else { continue };
        let cell = check.stalled;
        let [low, high] = cell.interval.map(|share| left + size * share);
        let (x, y) = (left + size * cell.ours, bottom - size * cell.theirs);
        let color = if cell.inside() { color(0) } else { color(1) };
        let _ = writeln!(
            out,
            "<line x1=\"{low:.1}\" y1=\"{y:.1}\" x2=\"{high:.1}\" y2=\"{y:.1}\" stroke=\"{color}\" \
             stroke-opacity=\"0.4\"/><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\" fill=\"{color}\"/>"
        );
    }
    out.push_str("</svg>\n");
    out
}

/// The frame of a panel: left, right, top and bottom.
fn frame(out: &mut String, scale: &Scale, caption: &str, [left, right, top, bottom]: [f64; 4]) {
    scale.grid(out, top, bottom);
    for (part, text) in [(0.0, "0"), (0.5, "0.5"), (0.95, "0.95"), (1.0, "")] {
        let y = bottom - (bottom - top) * part;
        let _ = writeln!(
            out,
            "<line x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            left - 6.0,
            y + 4.0
        );
    }
    let _ =
        writeln!(out, "<text x=\"{left:.1}\" y=\"{:.1}\">{}</text>", top - 6.0, escape(caption));
}

/// An empirical distribution function as points: what is infinite is beyond the last.
fn steps(mut values: Vec<f64>, scale: &Scale, top: f64, bottom: f64) -> String {
    let count = values.len().max(1) as f64;
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let mut points = String::new();
    let mut last = (f64::NAN, bottom);
    for (index, value) in values.iter().enumerate() {
        let x = scale.at(*value);
        let y = bottom - (bottom - top) * (index + 1) as f64 / count;
        // Steps of less than a pixel do not show; the first and the last do.
        let small = (x - last.0).abs() < 1.0 && (y - last.1).abs() < 1.0;
        if small && index + 1 < values.len() {
            continue;
        }
        let _ = write!(points, "{x:.1},{:.1} {x:.1},{y:.1} ", last.1);
        last = (x, y);
    }
    points
}

fn distinct(names: impl Iterator<Item = impl Into<String>>) -> Vec<String> {
    let mut known: Vec<String> = Vec::new();
    for name in names.map(Into::into) {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known
}

fn place(names: &[String], name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or(0)
}

/// Of the first rules, the second and so on.
const DASHES: [&str; 3] = ["", " stroke-dasharray=\"5 4\"", " stroke-dasharray=\"1 3\""];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_rises_to_the_share_that_came_about() {
        let scale = Scale::over([1.0, 100.0].into_iter(), 0.0, 200.0);
        let points = steps(vec![1.0, 10.0, 100.0, f64::INFINITY], &scale, 0.0, 100.0);
        assert_eq!(
            points.split_whitespace().collect::<Vec<_>>(),
            ["0.0,100.0", "0.0,75.0", "100.0,75.0", "100.0,50.0", "200.0,50.0", "200.0,25.0"]
        );
    }
}
