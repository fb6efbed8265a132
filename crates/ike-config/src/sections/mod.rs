//! The sections of a configuration, and the settings that they mean.

mod authorities;
mod charon;
mod child;
mod connection;
mod eap;
mod hash_and_url;
mod keys;
mod metrics;
mod ocsp;
mod packets;
mod plugins;
mod pools;
mod qcd;
mod redirect;
mod remote_access;
mod resumption;
mod round;
mod sandbox;
mod secrets;
mod tcp;
mod values;

use std::sync::Arc;

pub use keys::read_token;
pub use resumption::ticket_key_text;
pub use secrets::hex;
pub use values::IDENTITY;

use crate::diagnostic::Report;
use crate::host::Files;
use crate::settings::{Ports, Settings};
use crate::tree::{Section, Unsupported};
use connection::Found;
use ike_proto::dataplane::Iptfs;

/// Sections of swanctl.conf(5) that do nothing here yet.
const UNSUPPORTED: &[Unsupported] = &[("include", None)];

/// Reads all sections.
pub(crate) fn read(mut root: Section<'_>, files: Files<'_>, report: &mut Report) -> Settings {
    let mut all = Settings::default();
    let mut iptfs = Iptfs::default();
    if let Some(mut section) = root.section("charon", report) {
        plugins::read(&mut section, files, &mut all, report);
        remote_access::read(&mut section, &mut all.remote_access, report);
        all.metrics = metrics::read(&mut section, report);
        all.sandbox = sandbox::read(&mut section, report);
        all.qcd_secret = qcd::read(&mut section, report);
        (all.endpoint.resumption, all.void_tickets) = resumption::read(&mut section, files, report);
        all.hash_and_url = hash_and_url::read(&mut section, &mut all.endpoint, report);
        iptfs = charon::read(section, files.host, &mut all, report);
    }
    let Ports { nat_t, .. } = all.ports;
    if nat_t != 0 {
        all.endpoint.natt_port = nat_t;
    }
    all.endpoint.accepts_tcp = all.tcp.listen;
    if let Some(section) = root.section("secrets", report) {
        secrets::read(section, files, &mut all, report);
    }
    if let Some(section) = root.section("authorities", report) {
        all.authorities = authorities::read(section, report);
    }
    if let Some(mut connections) = root.section("connections", report) {
        for (name, section) in connections.subsections(report) {
            let Found { mut connection, shunts, negotiated } =
                connection::read(name, section, all.ports, files.host, report);
            all.endpoint.shunts.extend(shunts);
            if !negotiated {
                continue;
            }
            for child in &mut connection.config.children {
                Arc::make_mut(&mut Arc::make_mut(child).processing).iptfs = iptfs;
            }
            eap::check(&connection, all.eap.radius.as_ref(), report);
            all.connections.push(connection);
        }
        connections.finish(&[], report);
    }
    if let Some(section) = root.section("pools", report) {
        all.pools = pools::read(section, report);
    }
    root.finish(UNSUPPORTED, report);
    all
}
