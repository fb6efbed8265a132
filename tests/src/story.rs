//! What happened, for a failing test.

use std::time::Duration;

use crate::world::World;

impl World {
    /// Everything that happened, for a failing test.
    pub fn story(&self) -> String {
        use std::fmt::Write;
        let mut story = String::new();
        let mut lines: Vec<(Duration, String)> =
            self.net.trace.iter().map(|packet| (packet.sent, packet.describe())).collect();
        for (index, host) in self.hosts.iter().enumerate() {
            let events = host.log.iter().map(|(at, event)| (*at, format!("{index}: {event:?}")));
            lines.extend(events);
        }
        let given = self.commands.iter();
        lines.extend(given.map(|(at, host, what)| (*at, format!("{host}: <= {what}"))));
        lines.sort_by_key(|(at, _)| *at);
        for (at, line) in &lines {
            let _ = writeln!(story, "{:10.3} {line}", at.as_secs_f64());
        }
        for (index, host) in self.hosts.iter().enumerate() {
            let dropped: Vec<_> = host.dropped.iter().map(|why| why.text()).collect();
            let _ = writeln!(story, "host {index} dropped: {dropped:?}");
            for ike in host.ikes() {
                let children: Vec<_> = ike
                    .children
                    .iter()
                    .map(|c| {
                        format!(
                            "{:?} {} {:?} in {:08x} out {:08x}",
                            c.id, c.name, c.state, c.inbound.spi, c.outbound.spi
                        )
                    })
                    .collect();
                let _ = writeln!(
                    story,
                    "host {index} {:?} {:?} {:016x}/{:016x} outstanding {:?} {children:#?}",
                    ike.id, ike.state, ike.spi_i, ike.spi_r, ike.outstanding
                );
            }
            let _ = writeln!(
                story,
                "host {index} plane in {:x?} out {:x?} routes {:x?}",
                host.plane.inbound_spis(),
                host.plane.outbound_spis(),
                host.plane.routes(),
            );
        }
        for complaint in &self.audit.complaints {
            let _ = writeln!(story, "audit: {complaint}");
        }
        story
    }
}
