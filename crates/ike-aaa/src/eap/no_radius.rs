//! Conversations with RADIUS servers in a build without the feature `radius`: none can begin, because there is no
//! [`RadiusClient`].

use std::sync::Arc;

use ike_proto::Path;

use super::Turn;
use super::conversation::Setup;
use crate::radius::RadiusClient;

/// Why nobody is asked.
pub(super) const NONE: &str = "ike-aaa was built without RADIUS (feature `radius`)";

pub(super) fn begin(
    client: Arc<RadiusClient>,
    _: &Setup<'_>,
    _: (Path, Vec<(String, String)>),
    _: Option<Vec<u8>>,
) -> Turn {
    match *client {}
}
