//! Host names, mailboxes and URIs, as constraints compare them. A name that does not have the form of its RFC is no
//! name here: what another program reads in it is not certain.

use std::borrow::Cow;

use super::Relation;

/// A domain name without the dot of the root. Compare it without regard to case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host<'a>(&'a str);

/// The local part and the host of an e-mail address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mailbox<'a> {
    local: Cow<'a, str>,
    host: Host<'a>,
}

impl<'a> Host<'a> {
    /// `None` if `text` is no domain name of letters, digits, hyphens and underscores.
    pub fn read(text: &'a str) -> Option<Self> {
        let host = text.strip_suffix('.').unwrap_or(text);
        let letter = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        let label = |label: &str| !label.is_empty() && label.bytes().all(letter);
        host.split('.').all(label).then_some(Self(host))
    }

    /// The host of a URI; `None` if it has none, or has an address.
    //= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.10
    //# If a constraint is applied to the
    //# uniformResourceIdentifier name form and a subsequent certificate
    //# includes a subjectAltName extension with a uniformResourceIdentifier
    //# that does not include an authority component with a host name
    //# specified as a fully qualified domain name (e.g., if the URI either
    //# does not include an authority component or includes an authority
    //# component in which the host name is specified as an IP address), then
    //# the application MUST reject the certificate.
    pub fn of_uri(uri: &'a str) -> Option<Self> {
        let (_, rest) = uri.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (host, port) = host.split_once(':').unwrap_or((host, ""));
        let of_user = |c: u8| c.is_ascii_graphic() && !b"@\\\"<>[]^`{|}".contains(&c);
        if !user.bytes().all(of_user) || !port.bytes().all(|c| c.is_ascii_digit()) {
            return None;
        }
        let host = Self::read(host)?;
        // Programs read 192.0.2.1, 192.1 and 0xc0000201 as addresses.
        let last = host.0.rsplit('.').next()?;
        let number = last.bytes().all(|c| c.is_ascii_digit())
            || last.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("0x"));
        (!number).then_some(host)
    }

    pub fn is(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(other.0)
    }

    /// True if this is a name below `domain`.
    pub fn is_below(&self, domain: &Self) -> bool {
        let (name, domain) = (self.0.as_bytes(), domain.0.as_bytes());
        let tail = name.len().checked_sub(domain.len() + 1).and_then(|at| name.get(at..));
        tail.and_then(|tail| tail.strip_prefix(b"."))
            .is_some_and(|tail| tail.eq_ignore_ascii_case(domain))
    }
}

impl<'a> Mailbox<'a> {
    /// `None` if `text` is no `Local-part@Domain` (RFC 5321 §4.1.2).
    pub fn read(text: &'a str) -> Option<Self> {
        let (local, host) = text.rsplit_once('@')?;
        let local = match local.strip_prefix('"') {
            Some(quoted) => Cow::Owned(unquoted(quoted.strip_suffix('"')?)?),
            None => {
                let fits =
                    |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&c);
                (!local.is_empty() && local.bytes().all(fits)).then_some(Cow::Borrowed(local))?
            }
        };
        Some(Self { local, host: Host::read(host)? })
    }

    pub fn host(&self) -> &Host<'a> {
        &self.host
    }

    /// The relation to a constraint that is one mailbox.
    ///
    /// RFC 5280 §7.5 compares the local part with case, and identities of IKE compare without. A mailbox that differs
    /// from the constraint in case alone is neither permitted nor safe from exclusion.
    pub fn relation(&self, base: &Mailbox<'_>) -> Relation {
        if !self.host.is(&base.host) || !self.local.eq_ignore_ascii_case(&base.local) {
            Relation::Outside
        } else if self.local == base.local {
            Relation::Within
        } else {
            Relation::Unclear
        }
    }
}

/// The content of a quoted string; `None` if a quote in it is not escaped.
fn unquoted(text: &str) -> Option<String> {
    let mut content = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => return None,
            '\\' => content.push(rest.next()?),
            c => content.push(c),
        }
    }
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_host_name_is_not_read_as_one() {
        for name in
            ["example.com", "Example.COM.", "a_b.example", "localhost", "xn--bcher-kva.example"]
        {
            assert!(Host::read(name).is_some(), "{name}");
        }
        for wrong in
            ["", ".", "..", "a..b", ".example.com", "example.com..", "a b", "*.example.com", "a@b"]
        {
            assert_eq!(Host::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_host_of_a_uri_is_a_domain_name_or_not_certain() {
        for uri in [
            "http://user@host.example.com:80/x",
            "ike://host.example.com?x@y",
            "a://host.example.com.",
        ] {
            assert_eq!(Host::of_uri(uri), Some(Host("host.example.com")), "{uri}");
        }
        for none in [
            "urn:x",
            "http:///x",
            "http://192.0.2.1/",
            "http://192.1/",
            "http://0xc0000201/",
            "http://[::1]/",
            "http://a@b@host.example.com/",
            "http://host.example.com:80:90/",
            "http://host%2eexample.com/",
            "http://other.example\\@host.example.com/",
        ] {
            assert_eq!(Host::of_uri(none), None, "{none}");
        }
    }

    #[test]
    fn a_mailbox_has_one_local_part_and_one_host() {
        for (text, local) in [
            ("a.b+c@example.com", "a.b+c"),
            ("\"a@b\"@example.com", "a@b"),
            ("\"\\a\"@example.com", "a"),
        ] {
            let mailbox = Mailbox { local: local.into(), host: Host("example.com") };
            assert_eq!(Mailbox::read(text), Some(mailbox), "{text}");
        }
        for wrong in [
            "@example.com",
            "a@",
            "a@b@example.com",
            "\"a\"b\"@example.com",
            "a b@example.com",
            "a",
        ] {
            assert_eq!(Mailbox::read(wrong), None, "{wrong}");
        }
    }
}
