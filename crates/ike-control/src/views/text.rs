//! SAs for people, laid out as `swanctl --list-sas` does.

use std::fmt::Write;

use super::sas::{Algorithms, Auth, ChildSa, IkeSa};

/// The text of `list`.
pub fn render(sas: &[IkeSa]) -> String {
    let mut out = String::new();
    for sa in sas {
        // Writing to a string does not fail.
        let _ = ike(&mut out, sa);
        for child_sa in &sa.child_sas {
            let _ = child(&mut out, child_sa);
        }
    }
    out
}

fn ike(out: &mut String, sa: &IkeSa) -> std::fmt::Result {
    let mark = |initiator: bool| if initiator { "*" } else { "" };
    writeln!(
        out,
        "{}: #{}, {}, IKEv{}, {}_i{} {}_r{}",
        sa.name,
        sa.uniqueid,
        sa.state,
        sa.version,
        sa.initiator_spi,
        mark(sa.initiator),
        sa.responder_spi,
        mark(!sa.initiator),
    )?;
    let id = |id: &Option<String>| id.clone().unwrap_or_else(|| "%any".to_owned());
    let nat = |behind: bool| if behind { " (behind NAT)" } else { "" };
    let tcp = if sa.transport == "tcp" { "/tcp" } else { "" };
    let (host, port) = (&sa.local_host, sa.local_port);
    writeln!(out, "  local  '{}' @ {host}[{port}{tcp}]{}", id(&sa.local_id), nat(sa.nat_local))?;
    let (host, port) = (&sa.remote_host, sa.remote_port);
    let unchecked = if sa.unchecked { " (revocation unchecked)" } else { "" };
    let remote = id(&sa.remote_id);
    writeln!(out, "  remote '{remote}'{unchecked} @ {host}[{port}{tcp}]{}", nat(sa.nat_remote))?;
    for (side, vips) in [("local", &sa.local_vips), ("remote", &sa.remote_vips)] {
        if !vips.is_empty() {
            writeln!(out, "  {side} virtual IPs: {}", vips.join(", "))?;
        }
    }
    for (side, rounds) in [("local", &sa.local_auth), ("remote", &sa.remote_auth)] {
        for auth in rounds {
            authenticated(out, side, auth, rounds.len() > 1)?;
        }
    }
    if sa.algorithms.encr_alg.is_some() {
        let ppk = if sa.ppk { "/PPK" } else { "" };
        writeln!(out, "  {}{ppk}", suite(&sa.algorithms))?;
    }
    if sa.resumed {
        writeln!(out, "  resumed by a ticket")?;
    }
    if sa.esp_in_udp {
        writeln!(out, "  ESP in UDP: both ends prefer it")?;
    }
    if sa.mobike {
        writeln!(out, "  MOBIKE")?;
    }
    if let Some(id) = &sa.ppk_id {
        writeln!(out, "  PPK '{id}'")?;
    }
    if let Some(established) = sa.established {
        write!(out, "  established {established}s ago")?;
        if let Some(ms) = sa.setup_time_ms {
            write!(out, " in {ms:.1} ms")?;
        }
        if let Some(rekey) = sa.rekey_time {
            write!(out, ", rekeying in {rekey}s")?;
        }
        if let Some(reauth) = sa.reauth_time {
            write!(out, ", reauth in {reauth}s")?;
        }
        writeln!(out)?;
    }
    if let Some(exchange) = &sa.outstanding {
        writeln!(out, "  waiting for the {exchange} response")?;
    }
    Ok(())
}

fn authenticated(out: &mut String, side: &str, auth: &Auth, several: bool) -> std::fmt::Result {
    write!(out, "  {side} authenticated by {}", auth.by)?;
    if several {
        write!(out, " as '{}'", auth.id)?;
    }
    if let Some(subject) = &auth.certificate {
        write!(out, ", certificate '{subject}'")?;
    }
    writeln!(out)
}

fn child(out: &mut String, sa: &ChildSa) -> std::fmt::Result {
    let encap = match (sa.encap, sa.tcp) {
        (true, _) => "-in-UDP",
        (_, true) => "-in-TCP",
        _ => "",
    };
    let esn = if sa.esn { "/ESN" } else { "" };
    writeln!(
        out,
        "  {}: #{}, reqid {}, {}, {}{encap}, {}:{}{esn}",
        sa.name,
        sa.uniqueid,
        sa.reqid,
        sa.state,
        sa.mode,
        sa.protocol,
        suite(&sa.algorithms),
    )?;
    if let Some(cpu) = sa.cpu {
        writeln!(out, "    for CPU {cpu}")?;
    }
    if let Some(id) = &sa.ppk_id {
        writeln!(out, "    PPK '{id}'")?;
    }
    if sa.hw_offload_in.is_some() || sa.hw_offload_out.is_some() {
        let word = |used: &Option<String>| used.clone().unwrap_or_else(|| "no".to_owned());
        let (inward, outward) = (word(&sa.hw_offload_in), word(&sa.hw_offload_out));
        writeln!(out, "    hardware offload: in {inward}, out {outward}")?;
    }
    if let Some(octets) = sa.path_mtu {
        writeln!(out, "    path MTU {octets}")?;
    }
    write!(out, "    installed {}s ago in {:.1} ms", sa.install_time, sa.setup_time_ms)?;
    if let Some(rekey) = sa.rekey_time {
        write!(out, ", rekeying in {rekey}s")?;
    }
    if let Some(life) = sa.life_time {
        write!(out, ", expires in {life}s")?;
    }
    writeln!(out)?;
    let used = |idle: Option<u64>| idle.map_or(String::new(), |idle| format!(", {idle:>5}s ago"));
    let spi = named(&sa.spi_in, &sa.mark_in, &sa.mark_mask_in, &sa.if_id_in);
    let (bytes, packets) = (sa.bytes_in, sa.packets_in);
    writeln!(out, "    in  {spi}, {bytes:>6} bytes, {packets:>5} packets{}", used(sa.use_in))?;
    let spi = named(&sa.spi_out, &sa.mark_out, &sa.mark_mask_out, &sa.if_id_out);
    let (bytes, packets) = (sa.bytes_out, sa.packets_out);
    writeln!(out, "    out {spi}, {bytes:>6} bytes, {packets:>5} packets{}", used(sa.use_out))?;
    writeln!(out, "    local  {}", sa.local_ts.join(" "))?;
    writeln!(out, "    remote {}", sa.remote_ts.join(" "))
}

/// An SPI with the mark and the interface that go with it.
fn named(
    spi: &str,
    mark: &Option<String>,
    mask: &Option<String>,
    if_id: &Option<String>,
) -> String {
    let mark = mark.iter().zip(mask).map(|(mark, mask)| format!(", mark {mark}/{mask}"));
    let if_id = if_id.iter().map(|id| format!(", interface {id}"));
    let rest: String = mark.chain(if_id).collect();
    format!("{spi}{rest}")
}

/// `AES_GCM_16-256/PRF_HMAC_SHA2_384/CURVE_25519`.
pub fn suite(algorithms: &Algorithms) -> String {
    let mut text = algorithms.encr_alg.clone().unwrap_or_default();
    if let Some(bits) = algorithms.encr_keysize {
        let _ = write!(text, "-{bits}");
    }
    let rest = [&algorithms.integ_alg, &algorithms.prf_alg, &algorithms.dh_group];
    for name in rest.into_iter().flatten() {
        let _ = write!(text, "/{name}");
    }
    for (index, name) in algorithms.ke.iter().enumerate() {
        let _ = write!(text, "/KE{}_{name}", index + 1);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `child`, leave the path MTU out.
    #[test]
    fn the_path_mtu_is_told_where_it_is_known() {
        let mut json = serde_json::json!({
            "name": "net", "uniqueid": 1, "reqid": 1, "state": "INSTALLED", "mode": "TUNNEL",
            "protocol": "ESP", "encap": false, "spi-in": "00000001", "spi-out": "00000002",
            "esn": false, "bytes-in": 0, "packets-in": 0, "bytes-out": 0, "packets-out": 0,
            "install-time": 0, "local-ts": [], "remote-ts": [], "setup-time-ms": 0.0,
        });
        let mut told = |octets: serde_json::Value| {
            json["path-mtu"] = octets;
            let mut out = String::new();
            child(&mut out, &serde_json::from_value(json.clone()).unwrap()).unwrap();
            out.contains("    path MTU 1320\n")
        };
        assert!(told(1320.into()) && !told(serde_json::Value::Null));
    }
}
