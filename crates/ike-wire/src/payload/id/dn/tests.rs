use super::*;
use crate::payload::IdData;
use crate::registry::IdType;

fn dn(text: &str) -> Vec<u8> {
    encode(text).unwrap()
}

fn printed(der: &[u8]) -> String {
    IdData { kind: IdType::DER_ASN1_DN, data: der.to_vec() }.to_string()
}

/// A name of one attribute with the type CN.
fn cn(tag: u8, value: &[u8]) -> Vec<u8> {
    let pair = [tlv(OBJECT_IDENTIFIER, &[0x55, 4, 3]), tlv(tag, value)].concat();
    tlv(SEQUENCE, &tlv(SET, &tlv(SEQUENCE, &pair)))
}

#[test]
fn the_usual_form_is_the_usual_der() {
    let der = dn("C=CH, O=strongSwan, CN=moon");
    let expected = [
        &[0x30, 0x31][..],
        &[0x31, 0x0b, 0x30, 0x09, 0x06, 0x03, 0x55, 0x04, 0x06, 0x13, 0x02],
        b"CH",
        &[0x31, 0x13, 0x30, 0x11, 0x06, 0x03, 0x55, 0x04, 0x0a, 0x13, 0x0a],
        b"strongSwan",
        &[0x31, 0x0d, 0x30, 0x0b, 0x06, 0x03, 0x55, 0x04, 0x03, 0x13, 0x04],
        b"moon",
    ]
    .concat();
    assert_eq!(der, expected);
    assert_eq!(printed(&der), "C=CH, O=strongSwan, CN=moon");
    assert_eq!(dn("/C=CH/O=strongSwan/CN=moon"), expected);
    assert_eq!(dn("c=CH,o=strongSwan,2.5.4.3=moon"), expected);
}

#[test]
fn string_types_follow_the_attribute_and_the_characters() {
    for (text, tag) in [
        ("CN=moon", PRINTABLE_STRING),
        ("CN=moon@x", UTF8_STRING),
        ("CN=m\u{f6}nd", UTF8_STRING),
        ("DC=org", IA5_STRING),
        ("E=a@b.example", IA5_STRING),
        ("E=\u{f6}@b.example", UTF8_STRING),
    ] {
        let der = dn(text);
        let all = attributes(&der).unwrap();
        assert_eq!(all.iter().map(|attribute| attribute.tag).collect::<Vec<_>>(), [tag], "{text}");
    }
}

#[test]
fn what_is_printed_parses_to_the_same_name() {
    for (text, canonical) in [
        ("C=CH, O=strongSwan, CN=moon", "C=CH, O=strongSwan, CN=moon"),
        (r"CN=a\,b", r"CN=a\2cb"),
        (r"CN=a\2cb", r"CN=a\2cb"),
        (r"CN=\#a", r"CN=\23a"),
        (r"CN=a\ ", r"CN=a\20"),
        ("CN=x+OU=y, O=z", "CN=x+OU=y, O=z"),
        (r"CN=m\c3\b6nd", r"CN=m\c3\b6nd"),
        ("CN=$(reboot)`x`\"'", r"CN=\24(reboot)\60x\60\22\27"),
        ("CN=a\nb", r"CN=a\0ab"),
        ("1.3.6.1.4.1.99999.1=x", "1.3.6.1.4.1.99999.1=x"),
        ("2.999.3=x", "2.999.3=x"),
        ("CN=#0403010203", "CN=#0403010203"),
        ("Email=a@b.example", "E=a@b.example"),
        ("CN=a=b", r"CN=a\3db"),
    ] {
        let der = dn(text);
        assert_eq!(printed(&der), canonical, "{text}");
        assert_eq!(dn(canonical), der, "{text}");
    }
}

#[test]
fn what_is_not_a_name_is_refused() {
    for (text, error) in [
        ("moon", DnError::NoValue),
        ("CN=moon,", DnError::NoValue),
        ("CN=moon, O", DnError::NoValue),
        ("XX=moon", DnError::UnknownType),
        ("=moon", DnError::UnknownType),
        ("3.1=x", DnError::UnknownType),
        ("1.40=x", DnError::UnknownType),
        ("1=x", DnError::UnknownType),
        ("2.4294967295=x", DnError::UnknownType),
        ("CN=", DnError::EmptyValue),
        ("CN= , O=x", DnError::EmptyValue),
        (r"CN=a\", DnError::Escape),
        (r"CN=a\1", DnError::Escape),
        (r"CN=\ff", DnError::Escape),
        ("CN=#04", DnError::Escape),
        ("CN=#040", DnError::Escape),
        ("CN=#040101ff", DnError::Escape),
    ] {
        assert_eq!(encode(text), Err(error), "{text}");
    }
    assert_eq!(encode(&"CN=x,".repeat(MAX_ATTRIBUTES + 1)), Err(DnError::TooLong));
    assert_eq!(encode(&format!("CN={}", "x".repeat(MAX_VALUE))), Err(DnError::TooLong));
}

#[test]
fn names_are_equal_whatever_their_string_type_and_case() {
    let moon = dn("C=CH, O=strongSwan, CN=moon");
    assert!(equal(&moon, &dn("C=CH, O=STRONGSWAN, CN=Moon")));
    for other in ["C=CH, O=strongSwan, CN=sun", "C=CH, O=strongSwan", "O=strongSwan, C=CH, CN=moon"]
    {
        assert!(!equal(&moon, &dn(other)), "{other}");
    }
    assert!(equal(&cn(UTF8_STRING, b"moon"), &cn(PRINTABLE_STRING, b"moon")));
    assert!(equal(&cn(BMP_STRING, b"\0m\0o\0o\0n"), &cn(PRINTABLE_STRING, b"moon")));
    assert!(!equal(&cn(0x14, b"moon"), &cn(PRINTABLE_STRING, b"moon")));
    assert!(equal(&cn(0x14, b"moon"), &cn(0x14, b"moon")));
    assert!(!equal(&cn(0x14, b"moon"), &cn(0x14, b"Moon")));
    assert!(!equal(&cn(UTF8_STRING, b"moon\0"), &cn(UTF8_STRING, b"moon")));
    assert!(!equal(&dn("CN=x+OU=y"), &dn("CN=x, OU=y")));
}

#[test]
fn an_asterisk_stands_for_one_value_and_only_in_the_pattern() {
    let moon = dn("C=CH, O=strongSwan, CN=moon");
    for (pattern, expected) in [
        ("C=CH, O=strongSwan, CN=*", true),
        ("C=*, O=*, CN=*", true),
        ("C=CH, O=other, CN=*", false),
        ("C=CH, O=strongSwan, OU=*", false),
        ("C=CH, O=strongSwan, CN=*, E=*", false),
        ("C=CH, O=strongSwan, CN=m*", false),
    ] {
        let pattern = dn(pattern);
        assert_eq!(covers(&pattern, &moon), expected);
        assert!(!covers(&moon, &pattern));
        assert!(!equal(&pattern, &moon));
    }
    assert!(has_wildcard(&dn("C=CH, CN=*")));
    assert!(!has_wildcard(&moon));
}

#[test]
fn der_that_is_not_a_name_equals_nothing_and_prints_as_octets() {
    let moon = cn(PRINTABLE_STRING, b"moon");
    for end in 0..moon.len() {
        assert_eq!(attributes(&moon[..end]), None, "{end}");
        assert!(!equal(&moon[..end], &moon[..end]));
    }
    let trailing = [&moon[..], &[0]].concat();
    let empty_set = tlv(SEQUENCE, &tlv(SET, &[]));
    let long_form = [&[0x30, 0x81, 0x0f], &moon[2..]].concat();
    for bad in [&trailing, &empty_set, &long_form] {
        assert_eq!(attributes(bad), None);
        assert!(!covers(&dn("CN=*"), bad));
        assert!(printed(bad).starts_with("{ID_DER_ASN1_DN}:#"));
    }
    assert_eq!(printed(&[0x30, 0]), "{ID_DER_ASN1_DN}:#3000");
}
