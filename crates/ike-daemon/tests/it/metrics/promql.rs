//! A reader of PromQL: of as much of it as the dashboard and docs/service.md use. It refuses all else, so that a query
//! with a mistake fails a test, also where no Prometheus is. tests/lab/prometheus.sh has Prometheus itself.
//!
//! ```text
//! query      = comparison                                        no range
//! comparison = sum [ COMPARE [ "on" labels ] sum ]               not of two numbers
//! sum        = product { ( "+" | "-" ) product }
//! product    = operand { ( "*" | "/" ) operand }
//! operand    = "(" comparison ")" | NUMBER | call | selector
//! call       = FUNCTION "(" [ comparison { "," comparison } ] ")"
//!            | AGGREGATION [ "by" labels ] "(" comparison { "," comparison } ")"
//! labels     = "(" NAME { "," NAME } ")"
//! selector   = NAME [ "{" condition { "," condition } "}" ] [ "[" "$__rate_interval" "]" ]
//! ```

use super::text::Cursor;

/// What an expression is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Number,
    /// One sample of each series.
    Samples,
    /// The samples of some time, of each series.
    Range,
}

/// The functions, with what they take and give.
const FUNCTIONS: [(&str, &[Kind], Kind); 3] = [
    ("histogram_quantile", &[Kind::Number, Kind::Samples], Kind::Samples),
    ("rate", &[Kind::Range], Kind::Samples),
    ("time", &[], Kind::Number),
];

/// The aggregations, with what they take. All of them give samples.
const AGGREGATIONS: [(&str, &[Kind]); 3] = [
    ("count", &[Kind::Samples]),
    ("sum", &[Kind::Samples]),
    ("topk", &[Kind::Number, Kind::Samples]),
];

const COMPARISONS: [&str; 6] = ["==", "!=", ">=", "<=", ">", "<"];

/// The words that are never the name of a metric.
const KEYWORDS: [&str; 11] = [
    "and",
    "bool",
    "by",
    "group_left",
    "group_right",
    "ignoring",
    "offset",
    "on",
    "or",
    "unless",
    "without",
];

/// The names in a query.
#[derive(Debug, Default)]
pub(super) struct Query<'a> {
    pub selectors: Vec<Selector<'a>>,
    /// The labels of each `by (…)` and `on (…)`.
    pub labels: Vec<&'a str>,
}

/// A metric and its conditions: label, operator, value.
#[derive(Debug)]
pub(super) struct Selector<'a> {
    pub name: &'a str,
    pub conditions: Vec<(String, &'static str, String)>,
}

impl<'a> Query<'a> {
    /// Reads a whole query.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let mut reader = Reader { rest: Cursor(text), query: Self::default() };
        let kind = reader.comparison()?;
        reader.space();
        if !reader.rest.0.is_empty() {
            return Err(format!("no operator before '{}'", reader.rest.0));
        }
        if kind == Kind::Range { Err("a range is no answer".to_owned()) } else { Ok(reader.query) }
    }
}

/// A query that is read from its beginning.
struct Reader<'a> {
    rest: Cursor<'a>,
    query: Query<'a>,
}

impl<'a> Reader<'a> {
    fn space(&mut self) {
        self.rest.take(|char| char == ' ');
    }

    /// Takes `token` if it is next, after space.
    fn eat(&mut self, token: &str) -> bool {
        self.space();
        self.rest.eat(token)
    }

    /// Takes `token`, which is next, after space.
    fn expect(&mut self, token: &str) -> Result<(), String> {
        self.space();
        self.rest.expect(token)
    }

    /// Takes `word` if it is next, and does not go on.
    fn word(&mut self, word: &str) -> bool {
        self.space();
        let mut ahead = Cursor(self.rest.0);
        let found = ahead.name() == Ok(word);
        if found {
            self.rest = ahead;
        }
        found
    }

    fn comparison(&mut self) -> Result<Kind, String> {
        let left = self.sum()?;
        if !COMPARISONS.iter().any(|operator| self.eat(operator)) {
            return Ok(left);
        }
        let matching = self.word("on");
        if matching {
            self.labels()?;
        }
        let right = self.sum()?;
        let both = both(left, right)?;
        if both == Kind::Number || matching && (left, right) != (Kind::Samples, Kind::Samples) {
            return Err(format!("a comparison of numbers before '{}'", self.rest.0));
        }
        Ok(both)
    }

    fn sum(&mut self) -> Result<Kind, String> {
        let mut sum = self.product()?;
        while self.eat("+") || self.eat("-") {
            sum = both(sum, self.product()?)?;
        }
        Ok(sum)
    }

    fn product(&mut self) -> Result<Kind, String> {
        let mut product = self.operand()?;
        while self.eat("*") || self.eat("/") {
            product = both(product, self.operand()?)?;
        }
        Ok(product)
    }

    fn operand(&mut self) -> Result<Kind, String> {
        if self.eat("(") {
            let kind = self.comparison()?;
            self.expect(")")?;
            return Ok(kind);
        }
        if self.rest.0.starts_with(|char: char| char.is_ascii_digit()) {
            return self.number();
        }
        let name = self.rest.name()?;
        if KEYWORDS.contains(&name) {
            return Err(format!("the keyword {name} before '{}'", self.rest.0));
        }
        if let Some((_, takes)) = AGGREGATIONS.iter().find(|(known, _)| *known == name) {
            if self.word("by") {
                self.labels()?;
            }
            self.arguments(name, takes)?;
            return Ok(Kind::Samples);
        }
        if let Some((_, takes, gives)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) {
            self.arguments(name, takes)?;
            return Ok(*gives);
        }
        self.selector(name)
    }

    /// A number: digits, and perhaps a point and more digits.
    fn number(&mut self) -> Result<Kind, String> {
        let digits =
            self.rest.take(|char| char.is_ascii_alphanumeric() || char == '.' || char == '_');
        let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if plain(whole) && plain(part) {
            Ok(Kind::Number)
        } else {
            Err(format!("no number: {digits}"))
        }
    }

    fn selector(&mut self, name: &'a str) -> Result<Kind, String> {
        if self.rest.0.trim_start().starts_with('(') {
            return Err(format!("no function that is known: {name}"));
        }
        let conditions = if self.rest.eat("{") {
            self.rest.labels(&["=~", "!~", "!=", "="])?
        } else {
            Vec::new()
        };
        self.query.selectors.push(Selector { name, conditions });
        if !self.rest.eat("[") {
            return Ok(Kind::Samples);
        }
        self.rest.expect("$__rate_interval")?;
        self.rest.expect("]")?;
        Ok(Kind::Range)
    }

    fn arguments(&mut self, name: &str, takes: &[Kind]) -> Result<(), String> {
        self.expect("(")?;
        for (index, kind) in takes.iter().enumerate() {
            if index > 0 {
                self.expect(",")?;
            }
            let given = self.comparison()?;
            if given != *kind {
                return Err(format!("{name} takes {kind:?} and not {given:?}"));
            }
        }
        self.expect(")")
    }

    fn labels(&mut self) -> Result<(), String> {
        self.expect("(")?;
        loop {
            self.space();
            self.query.labels.push(self.rest.name()?);
            if self.eat(")") {
                return Ok(());
            }
            self.expect(",")?;
        }
    }
}

/// What an operator makes of two operands.
fn both(left: Kind, right: Kind) -> Result<Kind, String> {
    match (left, right) {
        (Kind::Range, _) | (_, Kind::Range) => Err("an operator on a range".to_owned()),
        (Kind::Number, Kind::Number) => Ok(Kind::Number),
        _ => Ok(Kind::Samples),
    }
}

/// Fault: in [`Reader::selector`], drop the conditions.
#[test]
fn a_query_is_read_with_its_names() {
    let text = "topk(20, sum by (le, x) (rate(a_total{x=~\"b(.*\",y=\"\"}[$__rate_interval]))) / 0.5 > on(job) c{z!=\"1\"}";
    let query = Query::parse(text).expect("a query");
    let names: Vec<_> = query.selectors.iter().map(|selector| selector.name).collect();
    assert_eq!((names, query.labels), (vec!["a_total", "c"], vec!["le", "x", "job"]));
    let conditions = &query.selectors[0].conditions;
    let plain = |index: usize| {
        let (label, operator, value) = &conditions[index];
        (label.as_str(), *operator, value.as_str())
    };
    assert_eq!([plain(0), plain(1)], [("x", "=~", "b(.*"), ("y", "=", "")]);
    assert!(Query::parse("count(a) > 0").expect("a query").selectors[0].conditions.is_empty());
}

/// Each of these is a query of the dashboard with one mistake, and Prometheus refuses each.
///
/// Fault: in [`Reader::expect`], answer `Ok`; in [`Reader::arguments`], take any kind.
#[test]
fn a_query_with_a_mistake_is_refused() {
    let wrong = [
        ("a missing parenthesis", "sum(ike_sas{job=\"$job\"}", "no ')' before ''"),
        (
            "a rate without a range",
            "rate(ike_a_total{job=\"$job\"})",
            "rate takes Range and not Samples",
        ),
        (
            "two operators in a row",
            "ike_a{job=\"$job\"} / / ike_b{job=\"$job\"}",
            "no name before '/ ike_b",
        ),
        (
            "an unclosed bracket",
            "rate(ike_a_total{job=\"$job\"}[$__rate_interval)",
            "no ']' before ')'",
        ),
        ("an unclosed brace", "sum(ike_a{job=\"$job\")", "no ',' before ')'"),
        ("a stray comma", "topk(20, ike_a{job=\"$job\"},)", "no ')' before ',)'"),
        ("a stray comma in labels", "sum by (role,) (ike_a{job=\"$job\"})", "no name before ')"),
        ("a stray comma in conditions", "ike_a{job=\"$job\",,x=\"1\"}", "no name before ',x"),
        ("an operator at the end", "ike_a{job=\"$job\"} *", "no name before ''"),
        ("an operator at the beginning", "> ike_a{job=\"$job\"}", "no name before '> ike_a"),
        ("an unclosed text", "ike_a{job=\"$job}", "an open quote"),
        (
            "an unknown function",
            "rates(ike_a_total{job=\"$job\"}[$__rate_interval])",
            "known: rates",
        ),
        ("an unknown word", "sum from (role) (ike_a{job=\"$job\"})", "no '(' before 'from"),
        ("a keyword for a metric", "sum(by)", "the keyword by"),
        ("a parenthesis too many", "sum(ike_a{job=\"$job\"}))", "no operator before ')'"),
        (
            "two metrics without an operator",
            "ike_a{job=\"$job\"} ike_b",
            "no operator before 'ike_b'",
        ),
        ("an empty query", "", "no name before ''"),
        ("a range as the answer", "ike_a{job=\"$job\"}[$__rate_interval]", "a range is no answer"),
        (
            "a sum of a range",
            "sum(ike_a{job=\"$job\"}[$__rate_interval])",
            "sum takes Samples and not Range",
        ),
        ("an operator on a range", "ike_a[$__rate_interval] * 8", "an operator on a range"),
        ("a missing argument", "topk(ike_a{job=\"$job\"})", "topk takes Number and not Samples"),
        ("a number with letters", "ike_a{job=\"$job\"} * 8x", "no number: 8x"),
        ("a comparison of numbers", "time() > 1", "a comparison of numbers"),
        ("a condition without a value", "ike_a{job}", "no operator before '}'"),
        ("a value without quotes", "ike_a{job=1}", "no '\"' before '1}'"),
    ];
    for (mistake, query, error) in wrong {
        let found = Query::parse(query).expect_err(mistake);
        assert!(found.contains(error), "{mistake}: {query}: {found}");
    }
}
