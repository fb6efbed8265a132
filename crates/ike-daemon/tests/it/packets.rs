//! The options of a child that the data plane gets as they are, and policies without SAs.

use std::time::Duration;

use ike_proto::config::{ChildConfig, InterfaceId, Scope, UniqueNumbers};
use ike_proto::dataplane::{Capabilities, CopyDscp, Iptfs, Mark, Mode, Processing, TfcPadding};

use super::config::{ROUNDS, accept, mistakes};

/// The child of a connection with these options.
#[track_caller]
fn child_with(options: &str) -> ChildConfig {
    let config = accept(&format!("[connections.c.children.k]\n{options}\n{ROUNDS}"));
    ChildConfig::clone(&config.endpoint.connections[0].children[0])
}

#[test]
fn how_packets_are_treated() {
    let p = child_with("");
    assert_eq!((*p.processing).clone(), Processing::default());
    assert_eq!(p.unique, UniqueNumbers::default());
    let all = child_with(
        "mark_in = \"0x11/0xf0\"\nmark_out = 42\nmark_in_sa = true\nset_mark_in = \"%same/0xff\"\n\
         set_mark_out = \"7\"\nif_id_in = \"0x2a\"\nif_id_out = 43\ninterface = \"eth0.7\"\n\
         reqid = 99\ncopy_df = false\ncopy_ecn = \"no\"\ncopy_dscp = \"in\"\nicmp = true\n\
         policies = false\npolicies_fwd_out = true\nper_cpu_sas = \"yes\"\nhw_offload = \"auto\"\n\
         replay_window = 4096\nmode = \"iptfs\"",
    );
    let p = &*all.processing;
    let mark = |value, mask| Mark { value, mask };
    // As in strongSwan, what the mask leaves out of a value does not count.
    assert_eq!((p.mark_in, p.mark_out), (mark(0x10, 0xf0), mark(42, u32::MAX)));
    assert_eq!((p.set_mark_in, p.set_mark_out), (mark(0, 0xff), mark(7, u32::MAX)));
    assert!(all.unique.set_mark_in_same && !all.unique.set_mark_out_same);
    assert_eq!((p.if_id_in, p.if_id_out, p.reqid), (42, 43, 99));
    assert_eq!(p.interface.as_deref(), Some("eth0.7"));
    assert_eq!((p.copy_df, p.copy_ecn, p.copy_dscp), (false, false, CopyDscp::In));
    assert!(p.mark_in_sa && p.icmp && !p.policies && p.policies_fwd_out && p.per_cpu);
    assert_eq!((all.replay_window, all.mode), (4096, Mode::Iptfs));
    let unique = child_with(
        "mark_in = \"%unique/0xff\"\nmark_out = \"%unique-dir\"\nif_id_in = \"%unique-dir\"\n\
         if_id_out = \"%unique\"",
    );
    let expected = UniqueNumbers {
        mark_in: Some(Scope::Pair),
        mark_out: Some(Scope::Direction),
        if_id_in: Some(Scope::Direction),
        if_id_out: Some(Scope::Pair),
        ..UniqueNumbers::default()
    };
    assert_eq!((unique.unique, unique.processing.mark_in), (expected, mark(0, 0xff)));
    let config =
        accept(&format!("[connections.c]\nif_id_in = 5\nif_id_out = \"%unique\"\n{ROUNDS}"));
    let c = &config.endpoint.connections[0];
    assert_eq!(c.if_id_in, InterfaceId::Fixed(5));
    assert_eq!(c.if_id_out, InterfaceId::Unique(Scope::Pair));
}

#[test]
fn padding_against_traffic_analysis() {
    for (value, expected) in [
        ("0", TfcPadding::None),
        ("1200", TfcPadding::To(1200)),
        ("0x100", TfcPadding::To(256)),
        ("mtu", TfcPadding::Mtu),
    ] {
        let child = child_with(&format!("tfc_padding = \"{value}\""));
        assert_eq!(child.processing.tfc_padding, expected, "{value}");
    }
    assert_eq!(child_with("tfc_padding = 1200").processing.tfc_padding, TfcPadding::To(1200));
    for wrong in ["MTU", "-1", "yes", "", "4294967296"] {
        let text = format!("[connections.c.children.k]\ntfc_padding = \"{wrong}\"\n{ROUNDS}");
        let found = mistakes(&text);
        assert!(matches!(&*found, [one] if one.contains("tfc_padding")), "{wrong}: {found:?}");
    }
    let in_transport = "tfc_padding = \"mtu\"\nmode = \"transport\"";
    let config = accept(&format!("[connections.c.children.k]\n{in_transport}\n{ROUNDS}"));
    assert!(
        config.warnings.iter().any(|warning| warning.contains("in tunnel mode alone")),
        "{:?}",
        config.warnings
    );
    assert!(child_with("hostaccess = \"yes\"").hostaccess && !child_with("").hostaccess);
    assert!(child_with("sha256_96 = true").sha256_96 && !child_with("").sha256_96);
}

#[test]
fn the_codepoint_of_ike_packets_is_binary() {
    for (text, expected) in [("000000", 0), ("101110", 46), ("111111", 63), ("1", 1)] {
        let config = accept(&format!("[connections.c]\ndscp = \"{text}\"\n{ROUNDS}"));
        assert_eq!(config.endpoint.connections[0].dscp, expected, "{text}");
    }
    for wrong in ["", "46", "0x2e", "1111111", "EF", "-1"] {
        let found = mistakes(&format!("[connections.c]\ndscp = \"{wrong}\"\n{ROUNDS}"));
        assert!(
            matches!(&*found, [one] if one.contains("connections.c.dscp")),
            "{wrong}: {found:?}"
        );
    }
}

#[test]
fn payloads_of_iptfs_are_for_all_children() {
    let text = "[charon.iptfs]\naccept_fragments = false\ndrop_time = 250\nreorder_window = 9\n\
                max_queue_size = 4096\npacket_size = 1400\ninit_delay = 3\ndont_frag = true\n";
    let config = accept(&format!("{text}[connections.c.children.k]\n{ROUNDS}"));
    let expected = Iptfs {
        accept_fragments: false,
        dont_frag: true,
        drop_time: Duration::from_micros(250),
        init_delay: Duration::from_micros(3),
        max_queue_size: 4096,
        packet_size: 1400,
        reorder_window: 9,
    };
    assert_eq!(config.endpoint.connections[0].children[0].processing.iptfs, expected);
}

#[test]
fn policies_without_sas() {
    // A connection of nothing else needs nobody to authenticate, and is not one to a peer.
    let config = accept(
        "[connections.local]\n[connections.local.children.lan]\nlocal_ts = \"10.1.0.0/16\"\n\
         remote_ts = \"10.1.0.0/16,10.3.0.0/16\"\nmode = \"pass\"\nstart_action = \"trap\"\n\
         priority = 10\ninterface = \"eth0\"\n[connections.local.children.later]\nmode = \"drop\"\n\
         local_ts = \"10.1.0.0/16\"\nremote_ts = \"0.0.0.0/0\"\n",
    );
    assert!(config.endpoint.connections.is_empty());
    let [lan] = config.endpoint.shunts.as_slice() else { panic!("{:?}", config.endpoint.shunts) };
    assert_eq!((lan.connection.as_str(), lan.child.as_str()), ("local", "lan"));
    assert_eq!((lan.drop, lan.priority, lan.remote_ts.len()), (false, 10, 2));
    assert_eq!(lan.processing.interface.as_deref(), Some("eth0"));
    // Beside others it is one of the connection's.
    let drop = "mode = 'drop'\nstart_action = 'trap'\nlocal_ts = '::/0'\nremote_ts = '::/0'\n";
    let config = accept(&format!("[connections.c.children.k]\n{drop}{ROUNDS}"));
    assert_eq!(config.endpoint.connections.len(), 1);
    assert!(config.endpoint.connections[0].children.is_empty());
    assert!(config.endpoint.shunts[0].drop);
    // One that is to be negotiated does need them.
    let missing = mistakes("[connections.c.children.k]\nmode = 'tunnel'\n");
    assert!(
        missing.iter().any(|line| line.contains("`connections.c.local` is missing")),
        "{missing:?}"
    );
}

#[test]
fn mistakes_in_how_packets_are_treated() {
    let modes = "\"tunnel\", \"transport\", \"iptfs\", \"pass\" or \"drop\"";
    let table = [
        ("mark_in = \"%same\"", "12: `K.mark_in` cannot be \"%same\": expected a mark such as 42, \"0x2a/0xff\", \"%unique\" or \"%unique-dir\"".to_owned()),
        ("mark_out = \"1/0x1ffffffff\"", "13: `K.mark_out` cannot be \"1/0x1ffffffff\": expected a mark such as 42, \"0x2a/0xff\", \"%unique\" or \"%unique-dir\"".to_owned()),
        ("set_mark_in = \"%unique\"", "16: `K.set_mark_in` cannot be \"%unique\": expected a mark such as 42, \"0x2a/0xff\" or \"%same\"".to_owned()),
        ("if_id_in = \"%uniq\"", "13: `K.if_id_in` cannot be \"%uniq\": expected a number such as 42 or \"0x2a\", \"%unique\" or \"%unique-dir\"".to_owned()),
        ("interface = \"a/b\"", "14: `K.interface` cannot be \"a/b\": expected the name of an interface, of 1 to 15 characters".to_owned()),
        ("interface = \"sixteen-and-more\"", "14: `K.interface` cannot be \"sixteen-and-more\": expected the name of an interface, of 1 to 15 characters".to_owned()),
        ("replay_window = 4097", "17: `K.replay_window` cannot be \"4097\": expected a whole number from 0 to 4096".to_owned()),
        ("per_cpu_sas = \"encap\"", "15: `K.per_cpu_sas = \"encap\"` is not supported: expected \"yes\" or \"no\"".to_owned()),
        ("mode = \"beet\"", format!("9: `K.mode = \"beet\"`: no notify is registered to agree on it with a peer: expected {modes}")),
        ("mode = \"transport_proxy\"", format!("9: `K.mode = \"transport_proxy\"`: Mobile IPv6 is not supported: expected {modes}")),
        ("mode = \"iptsf\"", format!("9: `K.mode` cannot be \"iptsf\": expected {modes}; did you mean `iptfs`?")),
    ];
    for (option, expected) in table {
        let text = format!("[connections.c.children.k]\n{option}\n{ROUNDS}");
        let expected = format!("2:{}", expected.replace('K', "connections.c.children.k"));
        assert_eq!(mistakes(&text), [expected], "{option}");
    }
    let shunt = "[connections.c.children.k]\nmode = 'pass'\nlocal_ts = '10.0.0.0/8'\n";
    let cases = [
        (
            "start_action = 'start'\nremote_ts = '::/0'",
            "4:16: `K.start_action` cannot be \"start\" with `mode = \"pass\"`: expected \"trap\" or \"none\"",
        ),
        (
            "remote_ts = 'dynamic'",
            "4:13: `K.remote_ts` cannot be \"dynamic\" with `mode = \"pass\"`: expected subnets or ranges of addresses",
        ),
        (
            "remote_ts = '::/0'\nmark_in = '%unique'",
            "5:11: `K.mark_in` cannot be chosen with `mode = \"pass\"`: expected a number",
        ),
    ];
    for (options, expected) in cases {
        let expected = expected.replace('K', "connections.c.children.k");
        assert_eq!(mistakes(&format!("{shunt}{options}\n")), [expected], "{options}");
    }
}

#[test]
fn what_the_data_plane_cannot_do_is_named() {
    let kernel = Capabilities {
        transport_mode: true,
        esn: true,
        plain_esp: true,
        udp_costs_less: false,
        tcp_esp: false,
        iptfs: true,
        per_cpu: true,
        cpus: 4,
        processing: true,
        header_fields: true,
    };
    let userspace =
        Capabilities { iptfs: false, per_cpu: false, cpus: 0, processing: false, ..kernel };
    let old = Capabilities { iptfs: false, per_cpu: false, cpus: 0, ..kernel };
    let table = [
        ("mark_in = 1", "mark_in", false),
        ("mark_out = \"%unique\"", "mark_out", false),
        ("mark_in_sa = true", "mark_in_sa", false),
        ("set_mark_in = 1", "set_mark_in", false),
        ("set_mark_out = 1", "set_mark_out", false),
        ("if_id_in = 1", "if_id_in", false),
        ("if_id_out = \"%unique-dir\"", "if_id_out", false),
        ("interface = \"eth0\"", "interface", false),
        ("reqid = 1", "reqid", false),
        ("hw_offload = \"crypto\"", "hw_offload", false),
        ("hw_offload = \"packet\"", "hw_offload", false),
        ("icmp = true", "icmp", false),
        ("policies = false", "policies = no", false),
        ("policies_fwd_out = true", "policies_fwd_out", false),
        ("mode = \"iptfs\"", "mode = iptfs", true),
        ("per_cpu_sas = true", "per_cpu_sas", true),
    ];
    for (option, named, new) in table {
        let config = accept(&format!("[connections.c.children.k]\n{option}\n{ROUNDS}"));
        let sentence =
            format!("`connections.c.children.k`: the data plane in use cannot do `{named}`");
        assert_eq!(config.unmet(&userspace), std::slice::from_ref(&sentence), "{option}");
        assert_eq!(config.unmet(&old), if new { vec![sentence] } else { Vec::new() }, "{option}");
        assert_eq!(config.unmet(&kernel), Vec::<String>::new(), "{option}");
    }
    let config = accept(&format!("[connections.c]\nif_id_in = 7\n{ROUNDS}"));
    assert_eq!(
        config.unmet(&userspace),
        ["`connections.c`: the data plane in use cannot do `if_id_in`"]
    );
    for tcp in ["yes", "fallback"] {
        let config = |separate: &str| {
            let options = format!("enable_tcp = '{tcp}'\nseparate_transports = '{separate}'");
            accept(&format!("[connections.c]\n{options}\n{ROUNDS}"))
        };
        let sentence = "`connections.c`: the data plane in use cannot do `enable_tcp` without \
                        `separate_transports = yes`";
        assert_eq!(config("no").unmet(&kernel), [sentence]);
        assert_eq!(config("accept").unmet(&kernel), [sentence]);
        assert_eq!(config("yes").unmet(&kernel), Vec::<String>::new());
        let carries = Capabilities { tcp_esp: true, ..kernel };
        assert_eq!(config("no").unmet(&carries), Vec::<String>::new());
    }
    let harmless = "hw_offload = 'auto'\ncopy_df = true\ncopy_dscp = 'out'\nicmp = 'no'\nreqid = 0";
    let fields = "copy_df = false\ncopy_ecn = false\ncopy_dscp = 'yes'";
    for options in [harmless, fields] {
        let config = accept(&format!("[connections.c.children.k]\n{options}\n{ROUNDS}"));
        assert_eq!(config.unmet(&userspace), Vec::<String>::new());
    }
    let none = Capabilities { header_fields: false, ..userspace };
    let config = accept(&format!("[connections.c.children.k]\ncopy_ecn = false\n{ROUNDS}"));
    let sentence = "`connections.c.children.k`: the data plane in use cannot do `copy_ecn = no`";
    assert_eq!(config.unmet(&none), [sentence]);
}
