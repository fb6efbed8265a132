//! Figures: the summary repeats those of the pages.

use super::read;

/// The numbers of a text that stand alone: not those in names like `RSA-2048`, `X25519` or `P-256`.
fn numbers(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, '|' | ';' | '*' | '(' | ')'));
    words
        .map(|word| word.trim_end_matches([',', '.', ':', '×']))
        .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .filter(|word| word.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ','))
        .map(str::to_owned)
        .collect()
}

/// Fault: change a figure in the last column of docs/performance.md.
#[test]
fn the_summary_of_performance_has_the_figures_of_its_pages() {
    let summary = read("docs/performance.md");
    let mut page = String::new();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for row in summary.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if let Some((_, path)) = cells[1].split_once("](") {
            page = format!("docs/{}", path.trim_end_matches(')'));
        }
        let written = numbers(&read(&page));
        for number in numbers(cells[4]) {
            seen += 1;
            if !written.contains(&number) {
                wrong.push(format!("{page} does not have {number}: {row}"));
            }
        }
    }
    assert!(seen > 25, "only {seen} figures were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
