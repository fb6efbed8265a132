//! Why a message is dropped.

use std::fmt;

/// Defines [`DropReason`]: for each variant its class, and its text, which is its documentation too.
macro_rules! reasons {
    ($($variant:ident: $class:ident => $text:literal,)+) => {
        /// Why a message was dropped. The text of a reason is a label of metrics, too.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DropReason {
            $(#[doc = concat!("\"", $text, "\"")] $variant,)+
        }

        impl DropReason {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The reason in a few fixed words.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// The kind of this reason.
            pub fn class(self) -> DropClass {
                match self {
                    $(Self::$variant => DropClass::$class,)+
                }
            }
        }
    };
}

reasons! {
    Malformed: Other => "malformed message",
    SpiOfNoSa: Spi => "SPI of no IKE SA",
    SpisOfNoSa: Spi => "SPIs of no IKE SA",
    Closed: Other => "IKE SA is closed",
    EspOfNoSa: Other => "ESP packet of no SA",
    InvalidSpiOutside: Spi => "INVALID_SPI outside of an IKE SA",
    WrongInitiatorFlag: Other => "initiator flag of the wrong end",
    WrongTransport: Other => "not the transport of the IKE SA",
    Unprotected: Other => "unprotected message for an IKE SA",
    BadIntegrity: Other => "integrity check failed",
    UsedMessageId: Other => "message ID already used",
    MessageIdOutOfWindow: Other => "message ID out of window",
    RequestBeforeAuth: Other => "request before the IKE_AUTH response",
    SentElsewhereTooOften: Other => "response sent elsewhere too often",
    NoMemory: Other => "no memory for a message that has to wait",
    KnownFragment: Other => "fragment already received",
    RefusedFragment: Other => "fragment refused",
    FragmentsGaveWay: Other => "fragments gave way to those of others",
    AckNotAgreed: Other => "fragment acknowledgement that was not agreed upon",
    AckWithPayloads: Other => "fragment acknowledgement with other payloads",
    AckOfNothing: Other => "fragment acknowledgement of nothing in flight",
    AckContradiction: Other => "fragment acknowledgement that contradicts itself",
    AckTooOften: Other => "fragment acknowledgement once too often",
    NotInitRequest: Other => "not an IKE_SA_INIT request",
    InitRequestTooLong: Other => "IKE_SA_INIT request too long",
    OwnInitRequest: Other => "own IKE_SA_INIT request",
    InitNotAnswered: Other => "IKE_SA_INIT is not answered yet",
    InitRefused: Other => "IKE_SA_INIT refused",
    ShuttingDown: Other => "shutting down",
    TakenConnection: Other => "TCP connection of another IKE SA",
    TooManyHalfOpen: Other => "too many half-open IKE SAs",
    TooManyHalfOpenThere: Other => "too many half-open IKE SAs with this address",
    NoKeys: Other => "no keys",
    NotInitResponse: Other => "not an IKE_SA_INIT response",
    OtherExchange: Other => "response to another exchange",
    InitResponseTransport: Other => "IKE_SA_INIT response by another transport",
    InitResponseWithoutSpi: Spi => "IKE_SA_INIT response without responder SPI",
    ResumeResponseWithoutSpi: Spi => "IKE_SESSION_RESUME response without responder SPI",
    MethodNeverSent: Other => "IKE_SA_INIT response with a method never sent",
    TooManyInitResponses: Other => "too many IKE_SA_INIT responses",
    CookieLength: Other => "cookie of wrong length",
    TooManyCookies: Other => "one cookie too many",
    InvalidKeLength: Other => "INVALID_KE_PAYLOAD of wrong length",
    UselessMethod: Other => "INVALID_KE_PAYLOAD for a method of no use",
    RepeatedPayload: Other => "payload repeated",
    NoSaPayload: Other => "no SA payload",
    NoKePayload: Other => "no KE payload",
    NoNonce: Other => "no nonce",
    ProposalNeverOffered: Other => "proposal never offered",
    KeMethodDiffers: Other => "key exchange method differs from the proposal",
    KeMethodUnknown: Other => "key exchange method not supported",
    KeLength: Other => "key exchange data of wrong length",
    KeValueRefused: Other => "public value refused",
    KeysNotDerived: Other => "keys cannot be derived",
    AdditionalKeAlone: Other => "additional key exchanges without IKE_INTERMEDIATE",
    BothPpkNotifies: Other => "both USE_PPK and USE_PPK_INT in a response",
    AlgorithmsGone: Other => "its algorithms are not configured",
    TicketRefused: Other => "ticket refused",
    TicketRefusedAndTaken: Other => "the ticket is refused and taken",
    RedirectTooShort: Other => "REDIRECT too short",
    RedirectLength: Other => "REDIRECT of wrong length",
    RedirectByName: Other => "redirected to a gateway by a name",
    RedirectToNoGateway: Other => "redirected to no gateway",
    RedirectNotAskedFor: Other => "REDIRECT not asked for",
    RedirectNonce: Other => "REDIRECT with another nonce",
    RedirectNotFollowed: Other => "redirect not followed",
    RedirectedAway: Other => "redirected to another gateway",
    WrongToken: Other => "QCD token that is not the peer's",
    TooManyTokens: Other => "too many QCD tokens",
}

/// The kind of a reason, as strongSwan's counters distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropClass {
    /// The SPI is missing or names no SA: `invalid-spi`.
    Spi,
    /// Anything else: `invalid`.
    Other,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write;

    use super::*;

    /// Texts are labels of metrics and parts of log lines. So a change is seen here, and those who read them are told.
    ///
    /// Fault: in the table, change a word of a text, or a class.
    #[test]
    fn texts_and_classes_are_those_on_record() {
        let mut found = String::new();
        for reason in DropReason::ALL {
            writeln!(found, "{:?} {reason}", reason.class()).unwrap();
        }
        let recorded = include_str!("dropped.txt");
        assert!(found == recorded, "dropped.txt is not this:\n{found}");
    }

    /// Fault: in the table, give two reasons one text.
    #[test]
    fn no_two_reasons_share_a_text() {
        let texts: BTreeSet<_> = DropReason::ALL.iter().map(|reason| reason.text()).collect();
        assert_eq!(texts.len(), DropReason::ALL.len());
    }
}
