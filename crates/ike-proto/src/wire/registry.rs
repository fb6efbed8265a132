//! IANA IKEv2 numbers as open newtypes: unknown values survive and print as numbers.

use std::fmt;

/// Defines a newtype over a wire number with named constants and a `Display` of those names.
macro_rules! registry {
    ($(#[$doc:meta])* $name:ident($repr:ty) { $($(#[$cdoc:meta])* $const:ident = $value:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $repr);

        #[allow(missing_docs, reason = "the constant's text is its documentation")]
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

registry! {
    /// Exchange type (RFC 7296 §3.1).
    ExchangeType(u8) {
        IKE_SA_INIT = 34, "IKE_SA_INIT";
        IKE_AUTH = 35, "IKE_AUTH";
        CREATE_CHILD_SA = 36, "CREATE_CHILD_SA";
        INFORMATIONAL = 37, "INFORMATIONAL";
        IKE_SESSION_RESUME = 38, "IKE_SESSION_RESUME";
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
        SKF = 53, "SKF";
    }
}

registry! {
    /// Security protocol identifier (RFC 7296 §3.3.1).
    ProtocolId(u8) {
        NONE = 0, "NONE";
        IKE = 1, "IKE";
        AH = 2, "AH";
        ESP = 3, "ESP";
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
    }
}

// The algorithm registries print as strongSwan's list-sas spells them.
registry! {
    /// Encryption algorithm (transform type 1).
    EncrId(u16) {
        DES3 = 3, "3DES";
        NULL = 11, "NULL";
        AES_CBC = 12, "AES_CBC";
        AES_CTR = 13, "AES_CTR";
        AES_CCM_8 = 14, "AES_CCM_8";
        AES_CCM_12 = 15, "AES_CCM_12";
        AES_CCM_16 = 16, "AES_CCM_16";
        AES_GCM_8 = 18, "AES_GCM_8";
        AES_GCM_12 = 19, "AES_GCM_12";
        AES_GCM_16 = 20, "AES_GCM_16";
        CHACHA20_POLY1305 = 28, "CHACHA20_POLY1305";
    }
}

registry! {
    /// Pseudorandom function (transform type 2).
    PrfId(u16) {
        HMAC_SHA1 = 2, "HMAC_SHA1";
        HMAC_SHA2_256 = 5, "HMAC_SHA2_256";
        HMAC_SHA2_384 = 6, "HMAC_SHA2_384";
        HMAC_SHA2_512 = 7, "HMAC_SHA2_512";
    }
}

registry! {
    /// Integrity algorithm (transform type 3).
    IntegId(u16) {
        NONE = 0, "NONE";
        HMAC_SHA1_96 = 2, "HMAC_SHA1_96";
        HMAC_SHA2_256_128 = 12, "HMAC_SHA2_256_128";
        HMAC_SHA2_384_192 = 13, "HMAC_SHA2_384_192";
        HMAC_SHA2_512_256 = 14, "HMAC_SHA2_512_256";
    }
}

registry! {
    /// Key exchange method (transform type 4, and types 6 to 12 of RFC 9370).
    KeMethodId(u16) {
        NONE = 0, "NONE";
        MODP_2048 = 14, "MODP_2048";
        MODP_3072 = 15, "MODP_3072";
        MODP_4096 = 16, "MODP_4096";
        ECP_256 = 19, "ECP_256";
        ECP_384 = 20, "ECP_384";
        ECP_521 = 21, "ECP_521";
        CURVE_25519 = 31, "CURVE_25519";
        ML_KEM_512 = 35, "ML_KEM_512";
        ML_KEM_768 = 36, "ML_KEM_768";
        ML_KEM_1024 = 37, "ML_KEM_1024";
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
        NULL = 13, "NULL Authentication";
        DIGITAL_SIGNATURE = 14, "Digital Signature";
    }
}

registry! {
    /// Notify message type (RFC 7296 §3.10.1): errors below 16384, status from there.
    NotifyType(u16) {
        UNSUPPORTED_CRITICAL_PAYLOAD = 1, "UNSUPPORTED_CRITICAL_PAYLOAD";
        INVALID_IKE_SPI = 4, "INVALID_IKE_SPI";
        INVALID_MAJOR_VERSION = 5, "INVALID_MAJOR_VERSION";
        INVALID_SYNTAX = 7, "INVALID_SYNTAX";
        INVALID_MESSAGE_ID = 9, "INVALID_MESSAGE_ID";
        INVALID_SPI = 11, "INVALID_SPI";
        NO_PROPOSAL_CHOSEN = 14, "NO_PROPOSAL_CHOSEN";
        INVALID_KE_PAYLOAD = 17, "INVALID_KE_PAYLOAD";
        AUTHENTICATION_FAILED = 24, "AUTHENTICATION_FAILED";
        SINGLE_PAIR_REQUIRED = 34, "SINGLE_PAIR_REQUIRED";
        NO_ADDITIONAL_SAS = 35, "NO_ADDITIONAL_SAS";
        INTERNAL_ADDRESS_FAILURE = 36, "INTERNAL_ADDRESS_FAILURE";
        FAILED_CP_REQUIRED = 37, "FAILED_CP_REQUIRED";
        TS_UNACCEPTABLE = 38, "TS_UNACCEPTABLE";
        INVALID_SELECTORS = 39, "INVALID_SELECTORS";
        TEMPORARY_FAILURE = 43, "TEMPORARY_FAILURE";
        CHILD_SA_NOT_FOUND = 44, "CHILD_SA_NOT_FOUND";
        STATE_NOT_FOUND = 47, "STATE_NOT_FOUND";
        INITIAL_CONTACT = 16384, "INITIAL_CONTACT";
        SET_WINDOW_SIZE = 16385, "SET_WINDOW_SIZE";
        ADDITIONAL_TS_POSSIBLE = 16386, "ADDITIONAL_TS_POSSIBLE";
        IPCOMP_SUPPORTED = 16387, "IPCOMP_SUPPORTED";
        NAT_DETECTION_SOURCE_IP = 16388, "NAT_DETECTION_SOURCE_IP";
        NAT_DETECTION_DESTINATION_IP = 16389, "NAT_DETECTION_DESTINATION_IP";
        COOKIE = 16390, "COOKIE";
        USE_TRANSPORT_MODE = 16391, "USE_TRANSPORT_MODE";
        HTTP_CERT_LOOKUP_SUPPORTED = 16392, "HTTP_CERT_LOOKUP_SUPPORTED";
        REKEY_SA = 16393, "REKEY_SA";
        ESP_TFC_PADDING_NOT_SUPPORTED = 16394, "ESP_TFC_PADDING_NOT_SUPPORTED";
        NON_FIRST_FRAGMENTS_ALSO = 16395, "NON_FIRST_FRAGMENTS_ALSO";
        CHILDLESS_IKEV2_SUPPORTED = 16418, "CHILDLESS_IKEV2_SUPPORTED";
        IKEV2_FRAGMENTATION_SUPPORTED = 16430, "IKEV2_FRAGMENTATION_SUPPORTED";
        SIGNATURE_HASH_ALGORITHMS = 16431, "SIGNATURE_HASH_ALGORITHMS";
        USE_PPK = 16435, "USE_PPK";
        PPK_IDENTITY = 16436, "PPK_IDENTITY";
        NO_PPK_AUTH = 16437, "NO_PPK_AUTH";
        INTERMEDIATE_EXCHANGE_SUPPORTED = 16438, "INTERMEDIATE_EXCHANGE_SUPPORTED";
        ADDITIONAL_KEY_EXCHANGE = 16441, "ADDITIONAL_KEY_EXCHANGE";
    }
}

impl NotifyType {
    /// True for an error type (RFC 7296 §3.10.1).
    pub fn is_error(self) -> bool {
        self.0 < 16384
    }
}
