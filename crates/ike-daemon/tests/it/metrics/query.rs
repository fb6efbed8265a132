//! What a query of PromQL names: metrics, labels and functions. Whether the query is valid, Prometheus itself says:
//! tests/lab/prometheus.sh asks it every query of the dashboard.

use super::text::Cursor;

/// The functions, operators and keywords that the dashboard uses.
const WORDS: [&str; 7] = ["by", "count", "histogram_quantile", "rate", "sum", "time", "topk"];

/// The names in a query.
#[derive(Debug, Default)]
pub(super) struct Query<'a> {
    pub selectors: Vec<Selector<'a>>,
    /// The labels of each `by (…)`.
    pub by: Vec<&'a str>,
}

/// A metric and its conditions: label, operator, value.
#[derive(Debug)]
pub(super) struct Selector<'a> {
    pub name: &'a str,
    pub conditions: Vec<(String, &'static str, String)>,
}

impl<'a> Query<'a> {
    /// Reads the names. Every metric has conditions; every other word is a function or a keyword.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let mut query = Self::default();
        let mut rest = Cursor(text);
        loop {
            // Numbers, operators, parentheses.
            rest.take(|char| char.is_ascii_digit() || " .,()+-*/<>=!".contains(char));
            if rest.0.is_empty() {
                return Ok(query);
            }
            if rest.eat("[") {
                rest.take(|char| char != ']');
                rest.expect("]")?;
                continue;
            }
            let name = rest.name()?;
            if rest.eat("{") {
                let conditions = rest.labels(&["=~", "!~", "!=", "="])?;
                query.selectors.push(Selector { name, conditions });
            } else if !WORDS.contains(&name) {
                return Err(format!(
                    "neither a word of PromQL nor a metric with conditions: {name}"
                ));
            } else if name == "by" {
                rest.expect(" (")?;
                query.by.extend(rest.take(|char| char != ')').split(", "));
            }
        }
    }
}

/// Fault: in [`Query::parse`], take a word that is not known for a function.
#[test]
fn a_metric_without_conditions_is_a_mistake() {
    let text = "topk(20, sum by (le, x) (rate(a_total{x=~\"b(.*\",y=\"\"}[$__rate_interval]))) / 0.5 > c{z!=\"1\"}";
    let query = Query::parse(text).expect("a query");
    let names: Vec<_> = query.selectors.iter().map(|selector| selector.name).collect();
    assert_eq!((names, query.by), (vec!["a_total", "c"], vec!["le", "x"]));
    let conditions = &query.selectors[0].conditions;
    let plain = |index: usize| {
        let (label, operator, value) = &conditions[index];
        (label.as_str(), *operator, value.as_str())
    };
    assert_eq!([plain(0), plain(1)], [("x", "=~", "b(.*"), ("y", "=", "")]);
    for bad in ["sum(a_total)", "rates(a{x=\"1\"}[1m])", "a{x}", "a{x=1}", "a{x=\"1\"", "\"a\""] {
        assert!(Query::parse(bad).is_err(), "{bad}");
    }
}
