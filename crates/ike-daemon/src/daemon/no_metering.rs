//! A build without metrics counts nothing.

use std::sync::Arc;

use ike_tokio::{Answerer, Observer, Plane};

use crate::config::Config;

/// Counts nothing.
#[derive(Clone)]
pub(super) struct Metering;

impl Metering {
    pub(super) fn of(_: &Config) -> Self {
        Self
    }

    pub(super) fn watch(&self, _: &mut Plane) {}

    pub(super) fn counted(&self, answerer: Arc<dyn Answerer>) -> Arc<dyn Answerer> {
        answerer
    }
}

impl Observer for Metering {}
