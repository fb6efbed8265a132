//! The rule by which one recognizes a quantum-safe key exchange in `list`: its names are those of the code.

use ike_proto::wire::registry::KeMethodId;

use super::read;

/// The words of `line` in backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The key exchange methods that have a name, by name.
fn methods() -> Vec<(String, KeMethodId)> {
    let all = (1..=u16::MAX).map(KeMethodId).map(|method| (method.to_string(), method));
    all.filter(|(name, _)| name.contains('_')).collect()
}

/// Fault: in docs/first-tunnel.md, take `EFRODOKEM_…` out of the first row of the table, or write it into the second.
#[test]
fn the_first_tunnel_tells_safe_key_exchanges_from_classical_ones() {
    let page = read("docs/first-tunnel.md");
    let row = |verdict: &str| {
        let mut rows = page.lines().filter(|line| line.starts_with("| an IKE SA with "));
        let row = rows.find(|line| line.ends_with(verdict)).expect(verdict);
        let names: Vec<&str> = quoted(row).filter_map(|name| name.strip_suffix('…')).collect();
        assert!(names.len() > 1, "{row}");
        names
    };
    let (safe, classical) = (row("| yes |"), row("| no |"));
    let methods = methods();
    assert!(methods.len() > 30, "{methods:?}");
    for (name, method) in &methods {
        let is = |names: &[&str]| names.iter().any(|start| name.starts_with(start));
        assert_eq!((is(&safe), is(&classical)), (method.is_kem(), !method.is_kem()), "{name}");
    }
}

/// Fault: in README.md, leave out `FRODOKEM`.
#[test]
fn the_readme_tells_safe_key_exchanges_from_classical_ones() {
    let readme = read("README.md");
    let line = readme.lines().find(|line| line.starts_with("Look for ")).expect("the rule");
    let (rule, _) = line.split_once(" in that line: ").expect("its end");
    let names: Vec<&str> = quoted(rule).filter(|name| *name != "PPK").collect();
    for (name, method) in methods() {
        let safe = names.iter().any(|part| name.contains(part));
        assert_eq!(safe, method.is_kem(), "{name}");
    }
}
