//! The sizes of the types of which a daemon has one for each SA, or one for each message in flight.

use super::attempt::Attempt;
use super::{Endpoint, Slot};
use crate::channel::Channel;
use crate::channel::window::{OUTSTANDING, Window};
use crate::child::ChildSa;
use crate::ike_sa::state::Established;
use crate::ike_sa::{IkeSa, Peer};

/// Fields that are grouped get padding, which no other test sees before a daemon has many SAs. The ceilings may only
/// fall. `Peer` and `Channel` count together.
/// Fault: in `Lineage`, add a field `extra: [u64; 2]`.
#[test]
fn the_types_of_an_sa_are_no_larger_than_their_ceilings() {
    let ceilings = [
        ("Endpoint", size_of::<Endpoint>(), 4592),
        ("IkeSa", size_of::<IkeSa>(), 1224),
        ("Peer and Channel", size_of::<Peer>() + size_of::<Channel>(), 1192),
        ("Attempt", size_of::<Attempt>(), 1032),
        ("Established", size_of::<Established>(), 408),
        ("ChildSa", size_of::<ChildSa>(), 400),
        ("Outstanding", OUTSTANDING, 344),
        ("Window", size_of::<Window>(), 272),
        ("Slot", size_of::<Slot>(), 104),
    ];
    let sizes: Vec<_> =
        ceilings.iter().map(|(name, size, most)| format!("{name} {size} of {most}")).collect();
    let too_large = ceilings.iter().filter(|(_, size, most)| size > most).count();
    assert_eq!(too_large, 0, "{sizes:#?}");
}
