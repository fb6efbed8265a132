use super::*;

fn admits(pattern: &str, id: &str) -> bool {
    let regex = IdRegex::parse(pattern).unwrap_or_else(|why| panic!("{pattern}: {why}"));
    regex.admits(&IdData::parse(id).unwrap())
}

#[test]
fn names_match_without_regard_to_case_and_types_must_be_the_same() {
    let (moon, vpn) = ("moon@example.org", "vpn1.example.org");
    for (pattern, id, fits) in [
        ("email:^moon@example\\.org$", moon, true),
        ("rfc822:^MOON@Example\\.org$", moon, true),
        ("userfqdn:^(moon|sun)@example\\.org$", moon, true),
        ("Email:^(mars|sun)@example\\.org$", moon, false),
        ("email:^moon@example\\.or$", moon, false),
        ("email:^oon@example\\.org$", moon, false),
        ("email:^.+$", moon, true),
        ("email:^$", moon, false),
        ("fqdn:^.+$", moon, false),
        ("asn1dn:^.+$", moon, false),
        ("fqdn:^vpn[0-9]+\\.example\\.org$", vpn, true),
        ("dns:^vpn[[:digit:]]\\.example\\.org$", vpn, true),
        ("fqdn:^[^0-9]+[0-9]+\\.example\\.org$", vpn, true),
        ("fqdn:^VPN[A-Z]\\.example\\.org$", vpn, false),
        ("fqdn:^[V-X]PN1\\.example\\.org$", vpn, true),
        ("fqdn:^vpn1.example.org$", "vpn1xexamplexorg", true),
        ("fqdn:^vpn1\\.example\\.org$", "vpn1xexamplexorg", false),
        ("fqdn:^(vpn|gw){2,3}$", "vpngw", true),
        ("fqdn:^(vpn|gw){2,3}$", "vpn", false),
        // Only what is between the anchors is anchored.
        ("fqdn:^vpn|gw$", "vpn-of-another", true),
    ] {
        assert_eq!(admits(pattern, id), fits, "{pattern} {id}");
    }
    // `^.*` is about names, not about everybody.
    assert!(!admits("fqdn:^.*$", "keyid:abc"));
    assert!(!admits("fqdn:^.*$", "192.0.2.1"));
    let null = IdData { kind: IdType::NULL, data: Vec::new() };
    assert!(!IdRegex::parse("fqdn:^.*$").unwrap().admits(&null));
}

#[test]
fn distinguished_names_match_as_they_are_shown() {
    let name = "C=CH, O=strongSwan, CN=vpn1.example.org";
    assert!(admits("asn1dn:^.*CN=vpn[0-9]\\.example\\.org$", name));
    assert!(admits("asn1dn:^C=CH, O=strongswan, CN=.+$", name));
    assert!(!admits("asn1dn:^C=CH,O=strongSwan,CN=.+$", name));
    // A value is never taken for another attribute.
    let posing = r"C=CH, O=strongSwan\2c CN=vpn1.example.org, CN=moon";
    assert!(!admits("asn1dn:^.*, CN=vpn1[.]example[.]org.*$", posing));
    assert!(admits("asn1dn:^C=CH, O=strongSwan.2c CN.3dvpn1.*$", posing));
    // What is no name has no text, not even by its type.
    let malformed = IdData { kind: IdType::DER_ASN1_DN, data: vec![0x30, 2, 5, 0] };
    assert!(!IdRegex::parse("asn1dn:^.*$").unwrap().admits(&malformed));
}

#[test]
fn what_does_not_print_is_a_question_mark_and_long_texts_match_nothing() {
    let regex = IdRegex::parse("fqdn:^a[?][?]b'$").unwrap();
    assert!(regex.admits(&IdData::fqdn("a\u{e9}b'")));
    let all = IdRegex::parse("fqdn:^.*$").unwrap();
    assert!(all.admits(&IdData::fqdn("x".repeat(510))));
    assert!(!all.admits(&IdData::fqdn("x".repeat(511))));
}

/// What POSIX says of brackets, which is not what the crate says.
#[test]
fn brackets_are_those_of_posix() {
    for (set, inside, outside) in [
        (r"[\w]", r"\w", "ax"),
        ("[]a]", "]a", "^"),
        ("[^]a]", "xb", "]a"),
        ("[a-]", "a-", "b"),
        ("[-a]", "a-", "b"),
        ("[a&&b]", "a&b", "c"),
        ("[a--c]", "-b", ""),
        ("[a~~b]", "a~", "c"),
        ("[[a]", "[a", "b"),
        ("[a^]", "a^", "b"),
        ("[[:digit:]_]", "19_", "a:d"),
        ("[[:punct:][:space:]]", "!@ ", "a1"),
        ("[+-.]", "+,-.", "*/"),
    ] {
        let pattern = format!("fqdn:^x{set}$");
        if set == "[a--c]" {
            // 'a' is after '-': no range.
            assert!(IdRegex::parse(&pattern).is_err());
            continue;
        }
        for (characters, fits) in [(inside, true), (outside, false)] {
            for character in characters.chars() {
                let id = IdData::fqdn(format!("x{character}"));
                assert_eq!(
                    IdRegex::parse(&pattern).unwrap().admits(&id),
                    fits,
                    "{set} {character}"
                );
            }
        }
    }
}

#[test]
fn what_is_not_posix_or_too_much_is_refused() {
    let big = format!("fqdn:^{}$", "a".repeat(1023));
    let deep = format!("fqdn:^{}a{}$", "(".repeat(400), ")".repeat(400));
    for (text, why) in [
        ("^vpn$", IdRegexError::Type),
        ("keyid:^vpn$", IdRegexError::Type),
        ("ipv4:^10[.]1$", IdRegexError::Type),
        ("fqdn:^vpn", IdRegexError::Anchors),
        ("fqdn:^", IdRegexError::Anchors),
        ("fqdn:vpn$", IdRegexError::Anchors),
        (&*big, IdRegexError::TooLong),
        ("fqdn:^(.{900}){900}$", IdRegexError::TooLong),
    ] {
        assert_eq!(IdRegex::parse(text), Err(why), "{text}");
    }
    for text in [
        "(?i)a",
        "(?P<n>a)",
        r"\d+",
        r"\pL",
        r"(a)\1",
        r"\x41",
        r"\<a",
        "a**",
        "a+?",
        "a{2}{3}",
        "*a",
        "a|*b",
        "(*a)",
        "[a",
        "[]",
        "[z-a]",
        "[[.a.]]",
        "[[=a=]]",
        "[[:word:]]",
        "[[:alpha]",
        "a{",
        "a{x}",
        "a{3,2}",
        "a{}",
        "(a",
        "a)",
        "\u{e9}",
        "a\n",
    ] {
        let parsed = IdRegex::parse(&format!("fqdn:^{text}$"));
        assert!(matches!(parsed, Err(IdRegexError::Syntax(_))), "{text}: {parsed:?}");
    }
    assert!(IdRegex::parse(&deep).is_err());
    assert!(IdRegex::is_meant_by("fqdn:^a") && IdRegex::is_meant_by("^a"));
    assert!(!IdRegex::is_meant_by("a^b") && !IdRegex::is_meant_by("fqdn:a^"));
}

#[test]
fn they_are_the_same_if_type_and_text_are() {
    let parse = |text: &str| IdRegex::parse(text).unwrap();
    assert_eq!(parse("fqdn:^a$"), parse("dns:^a$"));
    assert_ne!(parse("fqdn:^a$"), parse("email:^a$"));
    assert_ne!(parse("fqdn:^a$"), parse("fqdn:^b$"));
    assert_eq!(parse("email:^a$").as_str(), "^a$");
}
