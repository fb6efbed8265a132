//! Configuration files with mistakes: where a refusal points, and what it says.

use ike_daemon::config;

use super::config::{ROUNDS, mistakes, parse};

#[test]
fn mistakes_name_their_place_and_what_was_expected() {
    let table = [
        ("[conections]\n", "1:2: unknown section `conections`; did you mean `connections`?"),
        (
            "[charon]\nport = 70000\n",
            "2:8: `charon.port` cannot be \"70000\": expected a whole number from 0 to 65535",
        ),
        (
            "[charon]\nport = 4500\n",
            "1:1: `charon.port_nat_t` is the same as `charon.port`, 4500: expected two ports that differ",
        ),
        (
            "[charon]\ncookie_treshold = 1\n",
            "2:1: unknown option `charon.cookie_treshold`; did you mean `cookie_threshold`?",
        ),
        ("[charon]\nthreads = 16\n", "2:1: `charon.threads` is not supported yet"),
        (
            "[charon]\nkeep_alive = \"20 parsecs\"\n",
            "2:15: `charon.keep_alive` cannot be \"20 parsecs\": expected a time such as 30, \"30s\", \"5m\", \"4h\" or \"1d\"",
        ),
        (
            "[charon]\nretransmit_base = 0.5\n",
            "2:19: `charon.retransmit_base` cannot be \"0.5\": expected a number from 1.0 to 10.0",
        ),
        (
            "[charon]\nretransmit_base = nan\n",
            "2:19: `charon.retransmit_base` cannot be \"nan\": expected a number from 1.0 to 10.0",
        ),
        (
            "[charon]\nfragment_ack = 3\n",
            "2:16: `charon.fragment_ack` cannot be \"3\": expected true or false (\"yes\" or \"no\")",
        ),
        (
            "[charon]\nfragment_ack_types = [51000, 51001]\n",
            "2:22: `charon.fragment_ack_types` cannot be [\"51000\", \"51001\"]: expected three different notify message types from 40960 to 65535: [supported, req, res]",
        ),
        (
            "[charon]\nfragment_ack = false\nfragment_ack_types = \"51000, 51001, 51000\"\n",
            "3:22: `charon.fragment_ack_types` cannot be [\"51000\", \"51001\", \"51000\"]: expected three different notify message types from 40960 to 65535: [supported, req, res]",
        ),
        (
            "[charon]\nkeep_alive = 1979-05-27\n",
            "2:14: `charon.keep_alive` cannot be a date: expected a time such as 30, \"30s\", \"5m\", \"4h\" or \"1d\"",
        ),
        ("charon = 3\n", "1:10: `charon` cannot be such a number: expected a section [charon]"),
        (
            "[pools.p]\naddrs = \"10.0.0.0/33\"\n",
            "2:10: `pools.p.addrs` cannot be \"10.0.0.0/33\": expected a subnet, a range \"from-to\" or an address",
        ),
        // Fault: in `pool` of sections/pools.rs, leave out `has_all`.
        (
            "[pools.p]\naddrs = \"0.0.0.0/0\"\n",
            "2:9: `pools.p.addrs` has all addresses there are: expected a smaller subnet: no host can have most of these addresses",
        ),
        (
            "[pools.p]\naddrs = \"10.0.0.0/8\"\n[pools.q]\naddrs = \"10.9.0.1\"\n",
            "4:9: pools p and q have addresses in common: expected addresses that no other pool has",
        ),
        (
            "[pools.p]\naddrs = \"10.0.0.0/8\"\nsplit_dns = \"a b\"\n",
            "3:14: `pools.p.split_dns` cannot be \"a b\": expected domains such as \"example.com\"",
        ),
        (
            "[pools.p]\naddrs = \"10.0.0.0/8\"\ndsn = \"10.0.0.1\"\n",
            "3:1: unknown option `pools.p.dsn`; did you mean `dns`?",
        ),
        (
            "[secrets.ike-a]\nsecret = \"0xzz\"\n",
            "2:11: `secrets.ike-a.secret` is not hexadecimal: expected a key: text, \"0x\" and hexadecimal digits, or \"0s\" and base64",
        ),
        (
            "[secrets.ike-a]\nid = \"a\"\n",
            "1:1: `secrets.ike-a.secret` is missing: expected a key: text, \"0x\" and hexadecimal digits, or \"0s\" and base64; or `secret_file`",
        ),
        (
            "[secrets.ntlm-a]\nsecret = \"x\"\n",
            "1:10: `secrets.ntlm-a` is not supported yet: expected [secrets.ike-<suffix>] for pre-shared keys, [secrets.private-<suffix>] for private ones",
        ),
        ("[secrets.ik-a]\nsecret = \"x\"\n", "1:10: unknown section in `secrets`"),
    ];
    for (text, expected) in table {
        assert_eq!(mistakes(text), [expected], "{text}");
    }
}

#[test]
fn mistakes_in_a_connection() {
    let table = [
        (
            "[connections.c]\nremote_adrs = \"192.0.2.1\"\n",
            "2:1: unknown option `connections.c.remote_adrs`; did you mean `remote_addrs`?",
        ),
        (
            "[connections.c.local-2]\nauth = \"psk\"\ncert = \"a.pem\"\n",
            "3:1: unknown option `connections.c.local-2.cert`; did you mean `certs`?",
        ),
        (
            "[secrets.psk-site]\nsecret = \"x\"\n",
            "1:10: unknown section `secrets.psk-site`: expected [secrets.ike-<suffix>] for pre-shared keys, [secrets.ppk-<suffix>] for post-quantum ones, [secrets.private-<suffix>] for private keys",
        ),
        (
            "[connections.c]\nremote_addrs = \"192.0.2.1, 192.0.2.300\"\n",
            "2:28: `connections.c.remote_addrs` cannot be \"192.0.2.300\": expected an address, a subnet, a range \"from-to\", a host name, \"%any\", \"%any4\" or \"%any6\"",
        ),
        (
            "[connections.c]\nproposals = [\"aes256gcm16-prfsha256-x25518\"]\n",
            "2:15: `connections.c.proposals`, \"aes256gcm16-prfsha256-x25518\": unknown algorithm `x25518`, did you mean `x25519`?",
        ),
        (
            "[connections.c]\nproposals = [\"aes256gcm8-aes128gcm16-prfsha256-x25519\"]\n",
            "2:15: `connections.c.proposals`, \"aes256gcm8-aes128gcm16-prfsha256-x25519\": AES_GCM_8_256 is not supported yet",
        ),
        (
            "[connections.c]\nproposals = [\"camellia256-sha256-x25519\"]\n",
            "2:15: `connections.c.proposals`, \"camellia256-sha256-x25519\": CAMELLIA_CBC_256 is not supported yet",
        ),
        (
            "[connections.c]\nunique = \"keeps\"\n",
            "2:11: `connections.c.unique` cannot be \"keeps\": expected \"no\", \"never\", \"keep\", \"replace\" or \"false\"; did you mean `keep`?",
        ),
        (
            "[connections.c]\nmediation = true\n",
            "2:1: `connections.c.mediation` is not supported yet: expected \"no\", or no such option",
        ),
        (
            "[connections.c]\nversion = 1\n",
            "2:1: `connections.c.version` is not supported yet: expected \"2\", or no such option",
        ),
        (
            "[connections.c]\nlocal_port = 501\n",
            "2:14: `connections.c.local_port` cannot be 501: expected 500, the port in [charon] for this `remote_port`",
        ),
        (
            "[connections.c]\nencap = \"maybe\"\n",
            "2:10: `connections.c.encap` cannot be \"maybe\": expected auto, yes or no",
        ),
        (
            "[connections.c]\nrekey_time = 10\nrand_time = 10\n",
            "3:13: `connections.c.rand_time` leaves no time before the rekeying: expected less than 10 s",
        ),
        (
            "[connections.c.children.n]\nremote_ts = \"10.0.0.0/8,10.1.0.0/33\"\n",
            "2:25: `connections.c.children.n.remote_ts` cannot be \"10.1.0.0/33\": `10.1.0.0/33` is not a subnet: expected a subnet, a range \"from-to\" or \"dynamic\", with \"[protocol/port]\" if wanted",
        ),
        (
            "[connections.c.children.n]\nmode = \"beet\"\n",
            "2:9: `connections.c.children.n.mode = \"beet\"`: no notify is registered to agree on it with a peer: expected \"tunnel\", \"transport\", \"iptfs\", \"pass\" or \"drop\"",
        ),
        (
            "[connections.c.children.n]\nrekey_time = 100\nlife_time = 50\n",
            "3:13: `connections.c.children.n.life_time` is shorter than `rekey_time`: expected at least 100 s",
        ),
        (
            "[connections.c.children.n]\nlife_bytes = 5\nrekey_bytes = 6\n",
            "2:14: `connections.c.children.n.life_bytes` is less than `rekey_bytes`: expected at least 6",
        ),
        (
            "[connections.c.children.n]\nlabel = \"l\"\n",
            "2:1: `connections.c.children.n.label` is not supported yet",
        ),
        (
            "[connections.c]\nvips = [\"0.0.0.0\", \"any\"]\n",
            "2:21: `connections.c.vips` cannot be \"any\": expected addresses; \"0.0.0.0\" and \"::\" ask for any",
        ),
        (
            "[connections.c.children.\"a b\"]\n",
            "1:25: \"a b\" cannot be a name: expected 1 to 128 printable ASCII characters without spaces",
        ),
    ];
    for (text, expected) in table {
        // The rounds come last, so that the lines of the text are its own.
        let found = mistakes(&format!("{text}{ROUNDS}"));
        assert_eq!(found, [expected], "{text}");
    }
}

#[test]
fn authentication_must_be_named() {
    assert_eq!(
        mistakes("[connections.c]\n"),
        [
            "1:1: `connections.c.local` is missing: expected a section [connections.c.local] with `auth`",
            "1:1: `connections.c.remote` is missing: expected a section [connections.c.remote] with `auth`",
        ]
    );
    assert_eq!(
        mistakes("[connections.c.local]\n[connections.c.remote]\nauth = \"xauth-eap\"\n"),
        [
            "1:1: `connections.c.local` does not say which certificate is this end's: expected \
             `certs`, `pubkeys`, or an `id` that a certificate in x509/ has",
            "3:9: `connections.c.remote.auth = \"xauth-eap\"` is not supported yet: expected \
             \"pubkey\", \"psk\", \"null\", or key types such as \"rsa-3072\", \"ecdsa-sha384\" or \
             \"ike:mldsa65\"",
        ]
    );
    let identities = [
        ("*", false),
        ("*.example.org", true),
        ("*@example.org", true),
        ("vpn*.example.org", false),
        ("*.*.org", false),
        ("fqdn:^vpn[0-9]$", true),
        ("email:^(moon|sun)@example[.]org$", true),
        ("asn1dn:^.*CN=.+$", true),
        ("fqdn:^vpn[0-9]", false),
        ("fqdn:^vpn[0-9$", false),
        ("^vpn[0-9]$", false),
        ("keyid:^vpn$", false),
        ("%any", true),
        ("keyid:#0102", true),
        ("CN=peer", true),
        ("C=CH, CN=*", true),
        ("asn1dn:#zz", false),
    ];
    for (id, fits) in identities {
        let text = format!("{ROUNDS}id = {id:?}\n");
        assert_eq!(mistakes(&text).is_empty(), fits, "{id}");
    }
}

#[test]
fn all_mistakes_are_found_in_one_reading() {
    let text = "[charon]\nport = \"x\"\nkeepalive = 3\n[connections.c]\nencap = 7\n[connections.c.local]\n\
                auth = \"psk\"\n[connections.c.remote]\nauth = \"psk\"\nidd = \"x\"\n\
                [connections.c.children.n]\nmode = \"tunel\"\n[secrets.ike]\nsecret = \"\"\n";
    let lines: Vec<usize> = parse(text).unwrap_err().iter().map(|d| d.line).collect();
    assert_eq!(lines, [2, 3, 5, 10, 12, 14]);
}

#[test]
fn syntax_errors_come_with_the_other_mistakes() {
    let text = "[charon]\nport = = 3\ncookie_treshold = 4\nport = 3\n";
    let found = mistakes(text);
    assert!(found[0].starts_with("2:8: not valid TOML"), "{found:?}");
    assert!(
        found.iter().any(|line| line.contains("did you mean `cookie_threshold`?")),
        "{found:?}"
    );
}

#[test]
fn a_file_is_named_in_its_errors() {
    let folder = crate::common::tempdir("named");
    let path = folder.join("bad.toml");
    std::fs::write(&path, "[charon]\nport = -1\n").unwrap();
    let error = config::load(&path).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}:2:8: ", path.display())), "{error}");
    let missing = config::load(&folder.join("none.toml")).unwrap_err().to_string();
    assert!(missing.contains("none.toml: cannot read the file"), "{missing}");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(config::load(&path).is_err());
}
