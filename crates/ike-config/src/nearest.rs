//! The nearest known name to a misspelt one.

/// The name of `known` nearest to `given`, if near enough to be what was meant: a third of its
/// letters may be wrong, missing, extra or swapped.
pub fn nearest<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let given: Vec<char> = given.chars().take(64).map(fold).collect();
    known
        .into_iter()
        .map(|name| (distance(&given, &name.chars().map(fold).collect::<Vec<_>>()), name))
        .filter(|(distance, name)| *distance <= (name.chars().count().max(given.len()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Case and the choice between `-` and `_` are no difference worth counting.
fn fold(c: char) -> char {
    if c == '-' { '_' } else { c.to_ascii_lowercase() }
}

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (the optimal
/// string alignment distance).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    let mut last = None;
    for (i, &ca) in a.iter().enumerate() {
        let mut next = Vec::with_capacity(b.len() + 1);
        next.push(i + 1);
        for (j, &cb) in b.iter().enumerate() {
            let mut best = (row[j] + usize::from(ca != cb)).min(row[j + 1] + 1).min(next[j] + 1);
            if j > 0 && last == Some(cb) && b[j - 1] == ca {
                best = best.min(before[j - 1] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
        last = Some(ca);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let known = ["rekey_time", "remote_ts", "remote_addrs", "start_action"];
        assert_eq!(nearest("rekeytime", known), Some("rekey_time"));
        assert_eq!(nearest("Remote-TS", known), Some("remote_ts"));
        assert_eq!(nearest("remtoe_ts", known), Some("remote_ts"));
        assert_eq!(nearest("start-acton", known), Some("start_action"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn counts_edits_and_swaps() {
        let d = |a: &str, b: &str| {
            distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
        };
        assert_eq!(
            (d("", "abc"), d("abc", "abc"), d("ab", "ba"), d("kitten", "sitting")),
            (3, 0, 1, 3)
        );
    }
}
