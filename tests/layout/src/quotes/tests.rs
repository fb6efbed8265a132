//! The reader of quotes, on a small document that is written for it.

use super::*;

const DOCUMENT: &str = "\
Group                                                             N. Body
Request for Comments: 1                                              2026

1.  Contents ..................................................... 1
1.1.  Rules ...................................................... 1

Body                      Standards Track                       [Page 1]
\x0c
RFC 1                           Rules                        November 2026

1.  Introduction

   A host MUST answer each re-
   quest with a well-

Body                      Standards Track                       [Page 2]
\x0c
RFC 1                           Rules                        November 2026

   formed answer.

1.1.  Rules

   1. An answer SHOULD be short.
7.  Items of a list at the margin end a section

   Nothing of this is quoted.

2.  Security

   There is none.

Author's Address

   Nowhere
";

/// The mistake that a quote of `section` with `lines` is, if it is one.
fn mistake(section: &str, lines: &str) -> Option<String> {
    let source =
        format!("fn f() {{\n    //= https://x.example/rfc1#section-{section}\n{lines}\n}}\n");
    let quotes = Quote::read(Path::new("f.rs"), &source);
    let text = Text::read(DOCUMENT);
    let checked = quotes.and_then(|quotes| {
        assert_eq!(quotes.len(), 1);
        text.check(&quotes[0])
    });
    checked.err().map(|mistake| mistake.to_string())
}

/// Fault: in [`Text::read`], do not skip the head of a page.
#[test]
fn a_quote_may_be_broken_at_other_places_and_across_pages() {
    let whole =
        "    //# A host MUST answer\n    //# each re-quest with a well-formed\n    //# answer.";
    assert_eq!(mistake("1", whole), None);
    assert_eq!(mistake("1.1", "//= type=test\n//# An answer SHOULD be short"), None);
    let exception = "//= type=exception\n//= reason=Nobody asks.\n//# An answer SHOULD be short.";
    assert_eq!(mistake("1.1", exception), None);
}

/// Fault: in [`Text::check`], look in the whole document.
#[test]
fn words_that_the_section_does_not_have_are_a_mistake() {
    let says = |section: &str, text: &str| {
        let what = format!("f.rs:2: x.example/rfc1 does not say in section {section}: {text}");
        assert_eq!(mistake(section, &format!("//# {text}")), Some(what));
    };
    says("1", "A host MUST NOT answer");
    says("1", "A host must answer");
    says("1", "A host MUST answer, each");
    // In another section, below it, after it.
    says("1", "An answer SHOULD be short.");
    says("1.1", "A host MUST answer");
    says("1.1", "Nothing of this is quoted.");
    says("2", "Nowhere");
    // Parts of words.
    says("1", "host MUST ans");
    says("1", "ost MUST answer");
}

/// Fault: in [`follows`], answer true.
#[test]
fn a_section_that_is_not_there_is_a_mistake() {
    for section in ["7", "1.2", "3", "", "1."] {
        let what = format!("f.rs:2: x.example/rfc1 has no section {section}");
        assert_eq!(mistake(section, "//# Nothing of this is quoted."), Some(what));
    }
}

/// Fault: in [`Quote::of`], accept any type.
#[test]
fn a_quote_without_place_words_or_reason_is_a_mistake() {
    let words = "//# An answer SHOULD be short.";
    let begins = "a quote begins with `//= https://…#section-x`";
    let follow = "only `type=test`, or `type=exception` and `reason=…`, may follow";
    let nothing = "nothing is quoted: `//# text` is missing";
    let heads = [
        (String::from(words), begins),
        (format!("//= https://x.example/rfc1\n{words}"), begins),
        (format!("//= http://x.example/rfc1#section-1\n{words}"), begins),
        (format!("//= type=test\n{words}"), begins),
        (format!("//= https://x#section-1\n//= type=tset\n{words}"), follow),
        (format!("//= https://x#section-1\n//= type=exception\n{words}"), follow),
        (format!("//= https://x#section-1\n//= type=exception\n//= reason=\n{words}"), follow),
        (format!("//= https://x#section-1\n//= reason=None.\n{words}"), follow),
        ("//= https://x#section-1".to_owned(), nothing),
        (format!("//= https://x#section-1\n//#\n\n{words}"), nothing),
    ];
    for (source, what) in heads {
        let found = Quote::read(Path::new("f.rs"), &source).unwrap_err();
        assert_eq!(found.to_string(), format!("f.rs:1: {what}"), "{source}");
    }
}

/// Fault: in [`Quote::read`], let a head that stands directly after a quote belong to it.
#[test]
fn quotes_may_follow_one_another_directly() {
    let source =
        "//= https://x#section-1\n//# One\n//= https://y#section-2\n//# two\n//# three\n// four\n";
    let quotes = Quote::read(Path::new("f.rs"), source).unwrap();
    let read =
        quotes.iter().map(|quote| (quote.line, &*quote.document, &*quote.section, &*quote.words));
    assert_eq!(read.collect::<Vec<_>>(), [(1, "x", "1", "One"), (3, "y", "2", "two three")]);
}
