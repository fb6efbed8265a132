//! IANA IKEv2 numbers as open newtypes: unknown values survive and print as numbers.

use std::fmt;

mod algorithm;
mod frodokem;
mod notify;

pub use algorithm::{EncrId, HashId, IntegId, KeMethodId, PrfId, SequenceNumbers};
pub use frodokem::FrodoNumbers;
pub use notify::NotifyType;

/// Defines a newtype over a wire number with named constants and a `Display` of those names.
macro_rules! registry {
    ($(#[$doc:meta])* $name:ident($repr:ty) { $($(#[$cdoc:meta])* $const:ident = $value:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $repr);

        impl $name {
            $($(#[$cdoc])* #[doc = $text] pub const $const: Self = Self($value);)*

            /// The registered name, if this value has one here.
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some($text),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(text) => f.write_str(text),
                    None => write!(f, "{}", self.0),
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(text) => f.write_str(text),
                    None => write!(f, concat!(stringify!($name), "({})"), self.0),
                }
            }
        }
    };
}

use registry;

registry! {
    /// Exchange type (RFC 7296 §3.1).
    ExchangeType(u8) {
        IKE_SA_INIT = 34, "IKE_SA_INIT";
        IKE_AUTH = 35, "IKE_AUTH";
        CREATE_CHILD_SA = 36, "CREATE_CHILD_SA";
        INFORMATIONAL = 37, "INFORMATIONAL";
        IKE_SESSION_RESUME = 38, "IKE_SESSION_RESUME";
        GSA_AUTH = 39, "GSA_AUTH";
        GSA_REGISTRATION = 40, "GSA_REGISTRATION";
        GSA_REKEY = 41, "GSA_REKEY";
        GSA_INBAND_REKEY = 42, "GSA_INBAND_REKEY";
        IKE_INTERMEDIATE = 43, "IKE_INTERMEDIATE";
        IKE_FOLLOWUP_KE = 44, "IKE_FOLLOWUP_KE";
    }
}

registry! {
    /// Payload type (RFC 7296 §3.2).
    PayloadType(u8) {
        NONE = 0, "NONE";
        SA = 33, "SA";
        KE = 34, "KE";
        ID_I = 35, "IDi";
        ID_R = 36, "IDr";
        CERT = 37, "CERT";
        CERTREQ = 38, "CERTREQ";
        AUTH = 39, "AUTH";
        NONCE = 40, "Nonce";
        NOTIFY = 41, "N";
        DELETE = 42, "D";
        VENDOR = 43, "V";
        TS_I = 44, "TSi";
        TS_R = 45, "TSr";
        SK = 46, "SK";
        CP = 47, "CP";
        EAP = 48, "EAP";
        GSPM = 49, "GSPM";
        ID_G = 50, "IDg";
        GSA = 51, "GSA";
        KD = 52, "KD";
        SKF = 53, "SKF";
        PS = 54, "PS";
    }
}

registry! {
    /// Security protocol identifier (RFC 7296 §3.3.1).
    ProtocolId(u8) {
        NONE = 0, "NONE";
        IKE = 1, "IKE";
        AH = 2, "AH";
        ESP = 3, "ESP";
        FC_ESP_HEADER = 4, "FC_ESP_HEADER";
        FC_CT_AUTHENTICATION = 5, "FC_CT_AUTHENTICATION";
        GIKE_UPDATE = 6, "GIKE_UPDATE";
    }
}

registry! {
    /// Transform type (RFC 7296 §3.3.2).
    TransformType(u8) {
        ENCR = 1, "ENCR";
        PRF = 2, "PRF";
        INTEG = 3, "INTEG";
        KE = 4, "KE";
        SN = 5, "SN";
        ADDKE1 = 6, "ADDKE1";
        ADDKE2 = 7, "ADDKE2";
        ADDKE3 = 8, "ADDKE3";
        ADDKE4 = 9, "ADDKE4";
        ADDKE5 = 10, "ADDKE5";
        ADDKE6 = 11, "ADDKE6";
        ADDKE7 = 12, "ADDKE7";
        KWA = 13, "KWA";
        GCAUTH = 14, "GCAUTH";
    }
}

registry! {
    /// Identification type (RFC 7296 §3.5).
    IdType(u8) {
        IPV4_ADDR = 1, "ID_IPV4_ADDR";
        FQDN = 2, "ID_FQDN";
        RFC822_ADDR = 3, "ID_RFC822_ADDR";
        IPV6_ADDR = 5, "ID_IPV6_ADDR";
        DER_ASN1_DN = 9, "ID_DER_ASN1_DN";
        DER_ASN1_GN = 10, "ID_DER_ASN1_GN";
        KEY_ID = 11, "ID_KEY_ID";
        FC_NAME = 12, "ID_FC_NAME";
        NULL = 13, "ID_NULL";
    }
}

registry! {
    /// Authentication method (RFC 7296 §3.8).
    AuthMethod(u8) {
        RSA = 1, "RSA Digital Signature";
        PSK = 2, "Shared Key Message Integrity Code";
        DSS = 3, "DSS Digital Signature";
        ECDSA_256 = 9, "ECDSA with SHA-256 on the P-256 curve";
        ECDSA_384 = 10, "ECDSA with SHA-384 on the P-384 curve";
        ECDSA_521 = 11, "ECDSA with SHA-512 on the P-521 curve";
        GSPM = 12, "Generic Secure Password Authentication Method";
        NULL = 13, "NULL Authentication";
        DIGITAL_SIGNATURE = 14, "Digital Signature";
    }
}

registry! {
    /// Certificate encoding (RFC 7296 §3.6).
    CertEncoding(u8) {
        PKCS7 = 1, "PKCS #7 wrapped X.509 certificate";
        PGP = 2, "PGP Certificate";
        DNS_SIGNED_KEY = 3, "DNS Signed Key";
        X509_SIGNATURE = 4, "X.509 Certificate - Signature";
        KERBEROS = 6, "Kerberos Token";
        CRL = 7, "Certificate Revocation List";
        ARL = 8, "Authority Revocation List";
        SPKI = 9, "SPKI Certificate";
        X509_ATTRIBUTE = 10, "X.509 Certificate - Attribute";
        RAW_RSA = 11, "Raw RSA Key";
        HASH_AND_URL_X509 = 12, "Hash and URL of X.509 certificate";
        HASH_AND_URL_BUNDLE = 13, "Hash and URL of X.509 bundle";
        OCSP = 14, "OCSP Content";
        RAW_PUBLIC_KEY = 15, "Raw Public Key";
    }
}

registry! {
    /// Traffic selector type (RFC 7296 §3.13.1).
    TsType(u8) {
        IPV4_ADDR_RANGE = 7, "TS_IPV4_ADDR_RANGE";
        IPV6_ADDR_RANGE = 8, "TS_IPV6_ADDR_RANGE";
        FC_ADDR_RANGE = 9, "TS_FC_ADDR_RANGE";
        SECLABEL = 10, "TS_SECLABEL";
    }
}

registry! {
    /// Configuration payload type (RFC 7296 §3.15).
    CfgType(u8) {
        REQUEST = 1, "CFG_REQUEST";
        REPLY = 2, "CFG_REPLY";
        SET = 3, "CFG_SET";
        ACK = 4, "CFG_ACK";
    }
}

registry! {
    /// Configuration attribute type (RFC 7296 §3.15.1).
    CfgAttribute(u16) {
        INTERNAL_IP4_ADDRESS = 1, "INTERNAL_IP4_ADDRESS";
        INTERNAL_IP4_NETMASK = 2, "INTERNAL_IP4_NETMASK";
        INTERNAL_IP4_DNS = 3, "INTERNAL_IP4_DNS";
        INTERNAL_IP4_NBNS = 4, "INTERNAL_IP4_NBNS";
        INTERNAL_IP4_DHCP = 6, "INTERNAL_IP4_DHCP";
        APPLICATION_VERSION = 7, "APPLICATION_VERSION";
        INTERNAL_IP6_ADDRESS = 8, "INTERNAL_IP6_ADDRESS";
        INTERNAL_IP6_DNS = 10, "INTERNAL_IP6_DNS";
        INTERNAL_IP6_DHCP = 12, "INTERNAL_IP6_DHCP";
        INTERNAL_IP4_SUBNET = 13, "INTERNAL_IP4_SUBNET";
        SUPPORTED_ATTRIBUTES = 14, "SUPPORTED_ATTRIBUTES";
        INTERNAL_IP6_SUBNET = 15, "INTERNAL_IP6_SUBNET";
        MIP6_HOME_PREFIX = 16, "MIP6_HOME_PREFIX";
        INTERNAL_IP6_LINK = 17, "INTERNAL_IP6_LINK";
        INTERNAL_IP6_PREFIX = 18, "INTERNAL_IP6_PREFIX";
        HOME_AGENT_ADDRESS = 19, "HOME_AGENT_ADDRESS";
        P_CSCF_IP4_ADDRESS = 20, "P_CSCF_IP4_ADDRESS";
        P_CSCF_IP6_ADDRESS = 21, "P_CSCF_IP6_ADDRESS";
        FTT_KAT = 22, "FTT_KAT";
        EXTERNAL_SOURCE_IP4_NAT_INFO = 23, "EXTERNAL_SOURCE_IP4_NAT_INFO";
        TIMEOUT_PERIOD_FOR_LIVENESS_CHECK = 24, "TIMEOUT_PERIOD_FOR_LIVENESS_CHECK";
        INTERNAL_DNS_DOMAIN = 25, "INTERNAL_DNS_DOMAIN";
        INTERNAL_DNSSEC_TA = 26, "INTERNAL_DNSSEC_TA";
        ENCDNS_IP4 = 27, "ENCDNS_IP4";
        ENCDNS_IP6 = 28, "ENCDNS_IP6";
        ENCDNS_DIGEST_INFO = 29, "ENCDNS_DIGEST_INFO";
    }
}

registry! {
    /// Transform attribute type (RFC 7296 §3.3.5), without the format bit.
    AttributeType(u16) {
        KEY_LENGTH = 14, "KEY_LENGTH";
        SIGNATURE_ALGORITHM_ID = 18, "SIGNATURE_ALGORITHM_ID";
    }
}

impl TransformType {
    /// The slot, 0 to 6, of an additional key exchange (RFC 9370), `None` for any other type.
    #[inline]
    pub fn additional_ke(self) -> Option<usize> {
        (6..=12).contains(&self.0).then(|| usize::from(self.0) - 6)
    }

    /// The additional key exchange in `slot`, 0 to 6.
    #[inline]
    pub fn from_additional_ke(slot: usize) -> Option<Self> {
        u8::try_from(slot).ok().filter(|slot| *slot < 7).map(|slot| Self(slot + 6))
    }

    /// True for key exchange methods: type 4 and the additional ones.
    #[inline]
    pub fn is_ke(self) -> bool {
        self == Self::KE || self.additional_ke().is_some()
    }

    /// Place in the order strongSwan prints transforms in: integrity before PRF, sequence numbers
    /// last.
    pub fn display_rank(self) -> u16 {
        match self {
            Self::ENCR => 0,
            Self::INTEG => 1,
            Self::PRF => 2,
            Self::SN => u16::MAX,
            Self(other) => u16::from(other),
        }
    }
}
