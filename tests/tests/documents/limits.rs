//! Limits that no option sets: the pages have the numbers of the code.

use super::read;

/// A limit, and where it is written.
struct Limit {
    page: &'static str,
    /// The words of the page, with `#` for the number.
    words: &'static str,
    file: &'static str,
    constant: &'static str,
    /// The unit of the page in that of the constant, which is 1 or seconds.
    unit: u64,
}

const DAY: u64 = 24 * 60 * 60;

const LIMITS: [Limit; 5] = [
    Limit {
        page: "docs/security.md",
        words: "as the IKE SA has fewer than #.",
        file: "crates/ike-proto/src/exchange/create_child/responder.rs",
        constant: "MAX_CHILDREN",
        unit: 1,
    },
    Limit {
        page: "docs/resumption.md",
        words: "keeps tickets of # lost IKE SAs",
        file: "crates/ike-proto/src/endpoint/tickets.rs",
        constant: "MAX_LOST",
        unit: 1,
    },
    Limit {
        page: "docs/resumption.md",
        words: "no ticket for longer than # days",
        file: "crates/ike-proto/src/exchange/resume/granting.rs",
        constant: "LONGEST",
        unit: DAY,
    },
    Limit {
        page: "docs/resumption.md",
        words: "# days is the longest value",
        file: "crates/ike-config/src/sections/resumption.rs",
        constant: "LONGEST",
        unit: DAY,
    },
    Limit {
        page: "docs/certificates.md",
        words: "good from # minutes before its thisUpdate",
        file: "crates/pki/src/revocation/mod.rs",
        constant: "SKEW",
        unit: 60,
    },
];

/// The number of a constant: factors, or seconds of factors.
fn constant(file: &str, name: &str) -> u64 {
    let text = read(file);
    let mut lines = text.lines().map(|line| line.strip_prefix("pub ").unwrap_or(line));
    let line = lines.find_map(|line| line.strip_prefix(&format!("const {name}: ")));
    let (_, value) =
        line.and_then(|line| line.split_once(" = ")).unwrap_or_else(|| panic!("{file}: no {name}"));
    let value = value.trim_end_matches(';');
    let factors = match value.strip_prefix("Duration::from_secs(") {
        Some(seconds) => seconds.trim_end_matches(')'),
        None => value,
    };
    let number = |factor: &str| factor.trim().replace('_', "").parse::<u64>();
    let product = factors.split('*').map(number).product::<Result<u64, _>>();
    product.unwrap_or_else(|error| panic!("{file}: {name} = {value}: {error}"))
}

/// Fault: in ike-proto, change `MAX_CHILDREN` and not docs/security.md.
#[test]
fn pages_have_the_limits_of_the_code() {
    for Limit { page, words, file, constant: name, unit } in LIMITS {
        let number = constant(file, name);
        assert_eq!(number % unit, 0, "{file}: {name}");
        let written = words.replace('#', &(number / unit).to_string());
        // Lines of a page end anywhere.
        let text = read(page).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&written), "{page} does not say \"{written}\", as {name} of {file}");
    }
}

/// Fault: take `icmp` out of docs/first-tunnel.md.
#[test]
fn the_first_tunnel_names_what_needs_the_kernel() {
    let code = read("crates/ipsec-types/src/dataplane.rs");
    let (_, after) =
        code.split_once("let asked = [").expect("the options that a data plane may lack");
    let (list, _) = after.split_once("];").expect("its end");
    let options: Vec<&str> =
        list.split("(\"").skip(1).filter_map(|item| item.split('"').next()).collect();
    assert!(options.len() > 15, "{options:?}");
    let page = read("docs/first-tunnel.md");
    let (_, after) =
        page.split_once("These options need ESP in the kernel: ").expect("the list of the page");
    let (written, _) = after.split_once("Where ESP runs").expect("its end");
    // ESP in user space has transport mode and copies header fields, and no file can ask for BEET.
    let unfit = ["mode = transport", "mode = beet", "copy_df = no", "copy_ecn = no", "copy_dscp"];
    for option in options.into_iter().filter(|option| !unfit.contains(option)) {
        let name = option.strip_suffix(" = no").unwrap_or(option);
        assert!(
            written.contains(&format!("`{name}`")),
            "docs/first-tunnel.md does not name {option}"
        );
    }
}
