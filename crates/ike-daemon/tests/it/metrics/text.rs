//! Prometheus' text format 0.0.4, read as strictly as `promtool check metrics` does.

use std::collections::{BTreeMap, BTreeSet};

/// Labels and their values.
pub(super) type Labels = BTreeMap<String, String>;

/// The samples of a scrape.
#[derive(Debug)]
pub(super) struct Scrape {
    pub samples: Vec<Sample>,
}

#[derive(Debug)]
pub(super) struct Sample {
    pub name: String,
    pub labels: Labels,
    pub value: f64,
}

/// The metric whose samples follow.
struct Family<'a> {
    name: &'a str,
    kind: Option<&'a str>,
}

impl Scrape {
    /// Reads a whole answer. Every sample stands below the help and the type of its metric, and none comes twice.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut family: Option<Family<'_>> = None;
        let mut names = BTreeSet::new();
        let mut known = BTreeSet::new();
        let mut samples = Vec::new();
        if !text.ends_with('\n') {
            return Err("the last line does not end".to_owned());
        }
        for line in text.lines() {
            let bad = |why: String| format!("{line}: {why}");
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').ok_or_else(|| bad("no help".into()))?;
                if help.is_empty() || !names.insert(name) {
                    return Err(bad("no help, or a second one".into()));
                }
                family = Some(Family { name, kind: None });
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let open = family.as_mut().filter(|family| family.kind.is_none());
                let open = open.ok_or_else(|| bad("a type without help".into()))?;
                let kind = kind.strip_prefix(open.name).and_then(|kind| kind.strip_prefix(' '));
                match kind {
                    Some("counter" | "gauge" | "histogram") => open.kind = kind,
                    _ => return Err(bad("no type of this metric".into())),
                }
            } else {
                let sample = Sample::parse(line).map_err(bad)?;
                let fits = family.as_ref().is_some_and(|family| family.has(&sample));
                if !fits || !known.insert((sample.name.clone(), sample.labels.clone())) {
                    return Err(bad("not a sample of this metric, or a second time".into()));
                }
                samples.push(sample);
            }
        }
        Ok(Self { samples })
    }
}

impl Family<'_> {
    /// True if `sample` is of this metric: a bucket has the label `le`, and nothing else has it.
    fn has(&self, sample: &Sample) -> bool {
        let Some(end) = sample.name.strip_prefix(self.name) else { return false };
        let bucket = sample.labels.contains_key("le");
        match self.kind {
            Some("histogram") if bucket => end == "_bucket",
            Some("histogram") => end == "_sum" || end == "_count",
            Some(_) => end.is_empty() && !bucket,
            None => false,
        }
    }
}

impl Sample {
    fn parse(line: &str) -> Result<Self, String> {
        let mut rest = Cursor(line);
        let name = rest.name()?.to_owned();
        let mut labels = Labels::new();
        if rest.eat("{") {
            for (label, _, value) in rest.labels(&["="])? {
                if labels.insert(label, value).is_some() {
                    return Err("a label stands twice".to_owned());
                }
            }
        }
        rest.expect(" ")?;
        let value = rest.0.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { name, labels, value })
    }
}

/// A text that is read from its beginning.
pub(super) struct Cursor<'a>(pub &'a str);

impl<'a> Cursor<'a> {
    /// Takes `token` if it is next.
    pub fn eat(&mut self, token: &str) -> bool {
        let rest = self.0.strip_prefix(token);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Takes `token`, which is next.
    pub fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) { Ok(()) } else { Err(format!("no '{token}' before '{}'", self.0)) }
    }

    /// Takes as many characters as are accepted.
    pub fn take(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let end = self.0.find(|char| !accept(char)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    /// The name of a metric, a label or a function.
    pub fn name(&mut self) -> Result<&'a str, String> {
        let name = self.take(|char| char.is_ascii_alphanumeric() || char == '_');
        if name.starts_with(|char: char| !char.is_ascii_digit()) {
            Ok(name)
        } else {
            Err(format!("no name before '{}'", self.0))
        }
    }

    /// The labels of a sample or of a selector, after its brace: name, operator, value.
    pub fn labels(
        &mut self,
        operators: &[&'static str],
    ) -> Result<Vec<(String, &'static str, String)>, String> {
        let mut labels = Vec::new();
        loop {
            let name = self.name()?.to_owned();
            let operator = operators.iter().find(|operator| self.eat(operator));
            let operator = operator.ok_or_else(|| format!("no operator before '{}'", self.0))?;
            labels.push((name, *operator, self.quoted()?));
            if self.eat("}") {
                return Ok(labels);
            }
            self.expect(",")?;
        }
    }

    fn quoted(&mut self) -> Result<String, String> {
        self.expect("\"")?;
        let mut value = String::new();
        let mut chars = self.0.chars();
        loop {
            match chars.next() {
                Some('"') => break,
                Some('\\') => value.push(match chars.next() {
                    Some('n') => '\n',
                    Some(char @ ('\\' | '"')) => char,
                    other => return Err(format!("an escape: {other:?}")),
                }),
                Some(char) => value.push(char),
                None => return Err("an open quote".to_owned()),
            }
        }
        self.0 = chars.as_str();
        Ok(value)
    }
}

/// Fault: in [`Family::has`], answer true.
#[test]
fn the_text_format_is_read_strictly() {
    let good = "# HELP a_total All, \"of it\"\n# TYPE a_total counter\na_total{x=\"1\\\"\\n,}\",y=\"\"} 2\na_total 3\n\
                # HELP s Time\n# TYPE s histogram\ns_bucket{le=\"+Inf\"} 4\ns_sum 0.25\ns_count 4\n";
    let scrape = Scrape::parse(good).expect("Prometheus' text format");
    let values: Vec<_> = scrape.samples.iter().map(|sample| sample.value).collect();
    assert_eq!(values, [2.0, 3.0, 4.0, 0.25, 4.0]);
    assert_eq!(scrape.samples[0].labels["x"], "1\"\n,}");
    let head = "# HELP a Text\n# TYPE a gauge\n";
    let bad = [
        "a 1\n",
        "# HELP a Text\na 1\n",
        "# TYPE a gauge\na 1\n",
        "# HELP a Text\n# TYPE b gauge\n",
        "# HELP a Text\n# TYPE a number\n",
        "# HELP a \n",
        "# HELP a Text\n# TYPE a histogram\na 1\n",
        &format!("{head}a 1"),
        &format!("{head}a 1\n\n"),
        &format!("{head}a 1\na 1\n"),
        &format!("{head}a 1\n{head}"),
        &format!("{head}b 1\n"),
        &format!("{head}a one\n"),
        &format!("{head}a 1 2\n"),
        &format!("{head}a\n"),
        &format!("{head}a{{}} 1\n"),
        &format!("{head}a{{x=\"1\",}} 1\n"),
        &format!("{head}a{{x=\"1\",x=\"2\"}} 1\n"),
        &format!("{head}a{{le=\"1\"}} 1\n"),
        &format!("{head}a{{x=\"1}} 1\n"),
        &format!("{head}a{{x=\"\\t\"}} 1\n"),
        &format!("{head}a{{1=\"\"}} 1\n"),
    ];
    for text in bad {
        assert!(Scrape::parse(text).is_err(), "{text}");
    }
}
