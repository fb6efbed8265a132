//! Service parameters of encrypted resolvers (RFC 9464 §3.1, RFC 9460) in the words that `encdns` of a pool takes.

use ike_proto::wire::payload::cp::EncDns;

const ALPN: u16 = 1;
const PORT: u16 = 3;
const DOHPATH: u16 = 7;

/// The resolver in one line: `priority=1 addresses=10.1.0.53 name=doh.example.org alpn=h2 dohpath=/dns-query{?dns}`.
/// A peer has made it: what is not plain is in hexadecimal digits, so that no value looks like several.
pub(super) fn line(resolver: &EncDns) -> String {
    let addresses: Vec<_> = resolver.addresses.iter().map(ToString::to_string).collect();
    let (priority, name) = (resolver.priority, &resolver.name);
    let mut line = format!("priority={priority} addresses={} name={name}", addresses.join(","));
    match parameters(&resolver.params) {
        Some(words) => words.iter().for_each(|word| {
            line.push(' ');
            line.push_str(word);
        }),
        None => line.push_str(&format!(" params={}", hex(&resolver.params))),
    }
    line
}

/// One word for each; `None` if they are malformed.
fn parameters(mut octets: &[u8]) -> Option<Vec<String>> {
    let mut words = Vec::new();
    while !octets.is_empty() {
        let (key, rest) = octets.split_first_chunk::<2>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (value, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        words.push(word(u16::from_be_bytes(*key), value));
        octets = rest;
    }
    Some(words)
}

fn word(key: u16, value: &[u8]) -> String {
    let named = match key {
        ALPN => protocols(value).map(|ids| format!("alpn={}", ids.join(":"))),
        PORT => value.try_into().ok().map(|port| format!("port={}", u16::from_be_bytes(port))),
        DOHPATH => plain(value).map(|path| format!("dohpath={path}")),
        _ => None,
    };
    named.unwrap_or_else(|| format!("key{key}={}", hex(value)))
}

/// The identifiers of `alpn`, each behind its length; none may look like two.
fn protocols(mut value: &[u8]) -> Option<Vec<&str>> {
    let mut ids = Vec::new();
    while let Some((length, rest)) = value.split_first() {
        let (id, rest) = rest.split_at_checked((*length).into())?;
        ids.push(plain(id).filter(|id| !id.contains(':'))?);
        value = rest;
    }
    (!ids.is_empty()).then_some(ids)
}

/// Printable ASCII without a space.
fn plain(octets: &[u8]) -> Option<&str> {
    let good = !octets.is_empty() && octets.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(octets).ok().filter(|_| good)
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(params: &[u8]) -> String {
        let addresses = vec!["10.1.0.53".parse().unwrap(), "10.1.0.54".parse().unwrap()];
        let name = "doh.example.org".to_owned();
        line(&EncDns { priority: 1, addresses, name, params: params.to_vec() })
    }

    #[test]
    fn parameters_are_in_the_words_of_the_configuration() {
        let all = b"\0\x01\0\x06\x02h2\x02h3\0\x03\0\x02\x03\x55\0\x07\0\x10/dns-query{?dns}\xff\0\0\x02\xab\xcd";
        assert_eq!(
            of(all),
            "priority=1 addresses=10.1.0.53,10.1.0.54 name=doh.example.org alpn=h2:h3 port=853 \
             dohpath=/dns-query{?dns} key65280=abcd"
        );
        assert!(of(b"").ends_with("name=doh.example.org"));
    }

    #[test]
    fn what_a_peer_makes_up_is_no_other_word() {
        assert!(of(b"\0\x07\0\x06/ a=b\n").ends_with(" key7=2f20613d620a"));
        assert!(of(b"\0\x01\0\x04\x03h:2").ends_with(" key1=03683a32"));
        assert!(of(b"\0\x01\0\x03\x05h2").ends_with(" key1=056832"));
        assert!(of(b"\0\x01\0\0").ends_with(" key1="));
        assert!(of(b"\0\x03\0\x01\x09").ends_with(" key3=09"));
        for malformed in [&b"\0"[..], b"\0\x01\0", b"\0\x01\0\x09abc"] {
            assert!(of(malformed).contains(" params=00"), "{}", of(malformed));
        }
    }
}
