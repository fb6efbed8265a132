//! A data plane that asks what the path carries, in a life (RFC 8899).

use ike_proto::dataplane::{Event, Probed};
use xfrm::Summary;

use crate::random::Seeded;
use crate::world::World;

/// Sizes that are asked for.
const SIZES: std::ops::Range<u64> = 1281..1501;

/// Draws the size of the path, and when its data planes ask.
pub(crate) struct Prober {
    rng: Seeded,
}

impl Prober {
    /// For the life of `seed`. Three paths in four are narrow, and lose fragments as well.
    pub(crate) fn new(seed: u64, world: &mut World) -> Self {
        let mut rng = Seeded::new(seed ^ 0x7072_6f62_6500);
        if rng.chance(750) {
            world.net.narrow = usize::try_from(rng.below(SIZES.end - SIZES.start) + 1280).ok();
        }
        Self { rng }
    }

    /// Some of the hosts ask, now and then. Returns whether one did.
    pub(crate) fn ask(&mut self, world: &mut World) -> bool {
        let mut any = false;
        for host in 0..world.hosts.len() {
            if !self.rng.chance(300) {
                continue;
            }
            let mut sas: Vec<_> = world.hosts[host].plane.outbound().map(|(id, _)| id).collect();
            sas.sort_by_key(|sa| sa.spi);
            let more = self.rng.below(SIZES.end - SIZES.start);
            if let (Some(sa), Ok(octets)) = (self.rng.any(&sas), u16::try_from(SIZES.start + more))
            {
                world.plane_event(host, Event::ProbePath { sa, octets });
                any = true;
            }
        }
        any
    }

    /// No data plane was told that the path carries more than it does.
    pub(crate) fn check(world: &World) -> Result<(), String> {
        let Some(narrow) = world.net.narrow else { return Ok(()) };
        for (host, end) in world.hosts.iter().enumerate() {
            let lie = end.plane.table().commands().iter().find(|command| {
                matches!(command, Summary::PathProbed(_, Probed::Carried(octets))
                    if usize::from(*octets) > narrow)
            });
            if let Some(lie) = lie {
                return Err(format!("host {host} was told of a path of {narrow}: {lie:?}"));
            }
        }
        Ok(())
    }
}
