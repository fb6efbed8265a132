//! One log line per event. Identities print escaped, and nothing else of the peer's is printed.

use ike_proto::dataplane;
use ike_proto::{ChildSaId, Endpoint, Event, IkeSaId, IkeStatus};
use tracing::{debug, info, warn};

/// Logs an event of the engine.
pub(super) fn event(event: &Event, endpoint: &Endpoint) {
    match event {
        Event::Done(request, Ok(())) => debug!(request = request.0, "command done"),
        Event::Done(request, Err(why)) => info!(request = request.0, %why, "command failed"),
        Event::IkeUp(ike) => ike_up(*ike, endpoint),
        Event::IkeDown { ike, connection, established: true, reason } => {
            info!(ike = ike.0, %connection, %reason, "IKE SA down");
        }
        Event::IkeDown { ike, connection, established: false, reason } => {
            info!(ike = ike.0, %connection, %reason, "IKE SA not established");
        }
        Event::IkeRekeyed { old, new } => info!(old = old.0, new = new.0, "IKE SA rekeyed"),
        Event::ChildUp { ike, child } => child_line("Child SA up", *ike, *child, endpoint),
        Event::ChildRekeyed { ike, old, new } => {
            info!(ike = ike.0, old = old.0, new = new.0, "Child SA rekeyed");
        }
        Event::ChildDown { ike, child, name, reason } => {
            info!(ike = ike.0, child = child.0, %name, %reason, "Child SA down");
        }
        Event::ChildFailed { ike, name, reason } => {
            warn!(ike = ike.0, %name, %reason, "Child SA failed");
        }
        Event::Acquire { connection, child } => info!(%connection, %child, "traffic wants a child"),
        Event::PathChanged { ike, path } => {
            info!(ike = ike.0, local = %path.local, remote = %path.remote, "peer address changed");
        }
        Event::Unique { ike, local, remote } => {
            debug!(ike = ike.0, %local, %remote, "only IKE SA of this peer");
        }
        Event::Dropped { path, why } => debug!(remote = %path.remote, why, "message dropped"),
    }
}

/// Logs an event of the data plane.
pub(super) fn plane_event(event: &dataplane::Event) {
    match event {
        dataplane::Event::Acquire { policy, .. } => debug!(policy = policy.0, "trap policy met"),
        dataplane::Event::SoftExpire(sa) => {
            debug!(spi = format_args!("{:08x}", sa.spi), "soft limit")
        }
        dataplane::Event::HardExpire(sa) => {
            info!(spi = format_args!("{:08x}", sa.spi), "hard limit")
        }
        dataplane::Event::Mapping { sa, remote } => {
            debug!(spi = format_args!("{:08x}", sa.spi), %remote, "ESP from a new address");
        }
        dataplane::Event::FirstPacket(sa) => {
            debug!(spi = format_args!("{:08x}", sa.spi), "first packet");
        }
    }
}

fn ike_up(id: IkeSaId, endpoint: &Endpoint) {
    let Some(ike) = status(id, endpoint) else { return };
    let name = |id: &Option<ike_proto::wire::payload::IdData>| match id {
        Some(id) => id.to_string(),
        None => "unknown".to_owned(),
    };
    info!(
        ike = id.0,
        connection = %ike.connection,
        local = %ike.path.local,
        local_id = %name(&ike.local_id),
        remote = %ike.path.remote,
        remote_id = %name(&ike.remote_id),
        ms = ike.setup_time.map_or(0, |time| time.as_millis() as u64),
        "IKE SA established"
    );
}

fn child_line(what: &'static str, ike: IkeSaId, child: ChildSaId, endpoint: &Endpoint) {
    let Some(status) = status(ike, endpoint) else { return };
    let Some(c) = status.children.iter().find(|c| c.id == child) else { return };
    info!(
        ike = ike.0,
        child = child.0,
        name = %c.name,
        spi_in = format_args!("{:08x}", c.inbound.spi),
        spi_out = format_args!("{:08x}", c.outbound.spi),
        local_ts = ?c.local_ts,
        remote_ts = ?c.remote_ts,
        "{what}"
    );
}

fn status(id: IkeSaId, endpoint: &Endpoint) -> Option<IkeStatus> {
    endpoint.ike_sas().into_iter().find(|ike| ike.id == id)
}
