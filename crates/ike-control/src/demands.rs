//! Requirements of a configuration that the running data plane does not meet.

use ike_proto::config::{
    ChildConfig, ConnectionConfig, EndpointConfig, InterfaceId, SeparateTransports, TcpUse,
};
use ike_proto::dataplane::{Capabilities, Mode};

/// A sentence for each option that `plane` could not honour. None of them is ever ignored in silence.
pub fn unmet(config: &EndpointConfig, plane: &Capabilities) -> Vec<String> {
    let mut all = Vec::new();
    for connection in &config.connections {
        let name = &connection.name;
        if let Some(option) = of_connection(connection, plane) {
            all.push(sentence(&format!("connections.{name}"), option));
        }
        for child in &connection.children {
            if let Some(option) = of_child(child, plane) {
                all.push(sentence(&format!("connections.{name}.children.{}", child.name), option));
            }
        }
    }
    for shunt in &config.shunts {
        if let Some(option) = plane.lacks(Mode::Tunnel, &shunt.processing) {
            let place = format!("connections.{}.children.{}", shunt.connection, shunt.child);
            all.push(sentence(&place, option));
        }
    }
    all
}

fn of_connection(connection: &ConnectionConfig, plane: &Capabilities) -> Option<&'static str> {
    let tcp = connection.enable_tcp != TcpUse::No;
    if tcp && !plane.tcp_esp && connection.separate_transports != SeparateTransports::Yes {
        return Some("enable_tcp` without `separate_transports = yes");
    }
    let asks = |id: InterfaceId| id != InterfaceId::Fixed(0) && !plane.processing;
    [("if_id_in", connection.if_id_in), ("if_id_out", connection.if_id_out)]
        .into_iter()
        .find_map(|(option, id)| asks(id).then_some(option))
}

fn of_child(child: &ChildConfig, plane: &Capabilities) -> Option<&'static str> {
    let chosen = [("if_id_in", child.unique.if_id_in), ("if_id_out", child.unique.if_id_out)]
        .into_iter()
        .find_map(|(option, scope)| scope.filter(|_| !plane.processing).map(|_| option));
    plane.lacks(child.mode, &child.processing).or(chosen)
}

fn sentence(place: &str, option: &str) -> String {
    format!("`{place}`: the data plane in use cannot do `{option}`")
}
