//! The exchanges, one file each, initiator and responder side by side.

pub(crate) mod auth;
pub(crate) mod auth_lifetime;
pub(crate) mod child_sa;
pub(crate) mod config;
pub(crate) mod create_child;
pub(crate) mod detail;
pub(crate) mod esp_in_udp;
pub(crate) mod followup;
pub(crate) mod informational;
pub(crate) mod intermediate;
pub(crate) mod invalid_spi;
pub(crate) mod key_exchange;
pub(crate) mod mobike;
pub(crate) mod mode;
pub(crate) mod parts;
pub(crate) mod ppk;
pub(crate) mod qcd;
pub(crate) mod redirect;
pub(crate) mod rekey_ike;
pub(crate) mod requested_child;
pub(crate) mod resource;
pub(crate) mod resume;
pub(crate) mod sa_init;
pub(crate) mod sent;
pub(crate) mod tfc;

pub(crate) use crate::reason::Refusal;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::NotifyType;

/// Notifies of a message that is encoded later.
pub(crate) type OwnedNotifies = Vec<(NotifyType, Vec<u8>)>;

/// Their payloads.
pub(crate) fn payloads_of(notifies: &OwnedNotifies) -> impl Iterator<Item = Payload<'_>> {
    notifies.iter().map(|(kind, data)| Payload::Notify(Notify::new(*kind, data)))
}

/// Looks payloads up in a decoded chain.
pub(crate) struct Payloads<'a, 'b>(pub(crate) &'b [Payload<'a>]);

/// Defines a getter for the only payload of a kind; a second one is INVALID_SYNTAX.
macro_rules! single {
    ($(#[$doc:meta])* $name:ident, $variant:ident, $type:ty) => {
        $(#[$doc])*
        pub(crate) fn $name(&self) -> Result<Option<&'b $type>, Refusal> {
            let mut found = self.0.iter().filter_map(|payload| match payload {
                Payload::$variant(body) => Some(body),
                _ => None,
            });
            let first = found.next();
            match found.next() {
                None => Ok(first),
                Some(_) => Err(NotifyType::INVALID_SYNTAX.into()),
            }
        }
    };
}

impl<'a, 'b> Payloads<'a, 'b> {
    single!(sa, Sa, crate::wire::payload::Sa);
    single!(ke, Ke, crate::wire::payload::Ke<'a>);
    single!(nonce, Nonce, &'a [u8]);
    single!(id_i, IdI, crate::wire::payload::Id<'a>);
    single!(id_r, IdR, crate::wire::payload::Id<'a>);
    single!(eap, Eap, &'a [u8]);
    single!(auth, Auth, crate::wire::payload::Auth<'a>);
    single!(ts_i, TsI, Vec<crate::wire::payload::TrafficSelector>);
    single!(ts_r, TsR, Vec<crate::wire::payload::TrafficSelector>);

    /// Every notify.
    pub(crate) fn notifies(&self) -> impl Iterator<Item = &'b Notify<'a>> + use<'a, 'b> {
        self.0.iter().filter_map(|payload| match payload {
            Payload::Notify(notify) => Some(notify),
            _ => None,
        })
    }

    /// The first notify of `kind`.
    pub(crate) fn notify(&self, kind: NotifyType) -> Option<&'b Notify<'a>> {
        self.notifies().find(|notify| notify.kind == kind)
    }

    /// True if a payload is this Vendor ID.
    pub(crate) fn is_by(&self, vendor: &[u8]) -> bool {
        self.0.iter().any(|payload| matches!(payload, Payload::Vendor(id) if *id == vendor))
    }

    /// The notify, if any, that ends an IKE SA in IKE_AUTH or in the INFORMATIONAL exchange after it.
    pub(crate) fn fatal_in_auth(&self) -> Option<NotifyType> {
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.21.2
        //# In an IKE_AUTH exchange, or in the INFORMATIONAL exchange immediately
        //# following it (in case an error happened when processing a response to
        //# IKE_AUTH), the UNSUPPORTED_CRITICAL_PAYLOAD, INVALID_SYNTAX, and
        //# AUTHENTICATION_FAILED notifications are the only ones to cause the
        //# IKE SA to be deleted or not created, without a Delete payload.
        self.notifies().map(|notify| notify.kind).find(|kind| {
            matches!(
                *kind,
                NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD
                    | NotifyType::INVALID_SYNTAX
                    | NotifyType::AUTHENTICATION_FAILED
            )
        })
    }

    //= https://www.rfc-editor.org/rfc/rfc7296#section-3.10.1
    //# An
    //# implementation receiving a Notify payload with one of these types
    //# that it does not recognize in a response MUST assume that the
    //# corresponding request has failed entirely.
    /// The first error notify without a meaning here. For responses.
    pub(crate) fn unrecognized_error(&self) -> Option<NotifyType> {
        self.notifies().map(|notify| notify.kind).find(|kind| kind.is_unrecognized_error())
    }

    /// The first error notify.
    pub(crate) fn error(&self) -> Option<&'b Notify<'a>> {
        self.notifies().find(|notify| notify.kind.is_error())
    }
}

/// Unwraps a mandatory payload; its absence is INVALID_SYNTAX (RFC 7296 §3.10.1).
pub(crate) fn required<T>(payload: Option<T>) -> Result<T, Refusal> {
    payload.ok_or_else(|| NotifyType::INVALID_SYNTAX.into())
}
