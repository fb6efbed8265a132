//! A data plane that carries nothing.

use ike_proto::dataplane::{Capabilities, Command, DataPlane, DataPlaneError, Event, Reply, Usage};

/// Accepts every command and carries no traffic: for a program that has IKE alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPlane;

impl NoPlane {
    /// Its capabilities.
    pub const CAPABILITIES: Capabilities = Capabilities {
        transport_mode: true,
        esn: true,
        plain_esp: true,
        udp_costs_less: false,
        tcp_esp: true,
        iptfs: false,
        per_cpu: false,
        cpus: 0,
        processing: true,
        header_fields: true,
    };
}

impl DataPlane for NoPlane {
    fn capabilities(&self) -> Capabilities {
        Self::CAPABILITIES
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        Ok(match command {
            Command::QueryUsage(id) => Reply::Usage(id, Usage::default()),
            _ => Reply::Done,
        })
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
