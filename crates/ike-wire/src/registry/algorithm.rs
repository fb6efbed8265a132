//! Algorithm numbers (transform types 1 to 12). They print as strongSwan's `list-sas` spells them.

use std::fmt;

use super::registry;

registry! {
    /// Encryption algorithm (transform type 1).
    EncrId(u16) {
        DES_IV64 = 1, "DES_IV64";
        DES = 2, "DES";
        DES3 = 3, "3DES";
        RC5 = 4, "RC5";
        IDEA = 5, "IDEA";
        CAST = 6, "CAST";
        BLOWFISH = 7, "BLOWFISH";
        IDEA3 = 8, "3IDEA";
        DES_IV32 = 9, "DES_IV32";
        NULL = 11, "NULL";
        AES_CBC = 12, "AES_CBC";
        AES_CTR = 13, "AES_CTR";
        AES_CCM_8 = 14, "AES_CCM_8";
        AES_CCM_12 = 15, "AES_CCM_12";
        AES_CCM_16 = 16, "AES_CCM_16";
        AES_GCM_8 = 18, "AES_GCM_8";
        AES_GCM_12 = 19, "AES_GCM_12";
        AES_GCM_16 = 20, "AES_GCM_16";
        NULL_AES_GMAC = 21, "NULL_AES_GMAC";
        CAMELLIA_CBC = 23, "CAMELLIA_CBC";
        CAMELLIA_CTR = 24, "CAMELLIA_CTR";
        CAMELLIA_CCM_8 = 25, "CAMELLIA_CCM_8";
        CAMELLIA_CCM_12 = 26, "CAMELLIA_CCM_12";
        CAMELLIA_CCM_16 = 27, "CAMELLIA_CCM_16";
        CHACHA20_POLY1305 = 28, "CHACHA20_POLY1305";
        AES_CCM_8_IIV = 29, "AES_CCM_8_IIV";
        AES_GCM_16_IIV = 30, "AES_GCM_16_IIV";
        CHACHA20_POLY1305_IIV = 31, "CHACHA20_POLY1305_IIV";
        KUZNYECHIK_MGM_KTREE = 32, "KUZNYECHIK_MGM_KTREE";
        MAGMA_MGM_KTREE = 33, "MAGMA_MGM_KTREE";
        KUZNYECHIK_MGM_MAC_KTREE = 34, "KUZNYECHIK_MGM_MAC_KTREE";
        MAGMA_MGM_MAC_KTREE = 35, "MAGMA_MGM_MAC_KTREE";
    }
}

registry! {
    /// Pseudorandom function (transform type 2).
    PrfId(u16) {
        HMAC_MD5 = 1, "PRF_HMAC_MD5";
        HMAC_SHA1 = 2, "PRF_HMAC_SHA1";
        HMAC_TIGER = 3, "PRF_HMAC_TIGER";
        AES128_XCBC = 4, "PRF_AES128_XCBC";
        HMAC_SHA2_256 = 5, "PRF_HMAC_SHA2_256";
        HMAC_SHA2_384 = 6, "PRF_HMAC_SHA2_384";
        HMAC_SHA2_512 = 7, "PRF_HMAC_SHA2_512";
        AES128_CMAC = 8, "PRF_AES128_CMAC";
        HMAC_STREEBOG_512 = 9, "PRF_HMAC_STREEBOG_512";
    }
}

registry! {
    /// Integrity algorithm (transform type 3).
    IntegId(u16) {
        NONE = 0, "NONE";
        HMAC_MD5_96 = 1, "HMAC_MD5_96";
        HMAC_SHA1_96 = 2, "HMAC_SHA1_96";
        DES_MAC = 3, "DES_MAC";
        KPDK_MD5 = 4, "KPDK_MD5";
        AES_XCBC_96 = 5, "AES_XCBC_96";
        HMAC_MD5_128 = 6, "HMAC_MD5_128";
        HMAC_SHA1_160 = 7, "HMAC_SHA1_160";
        AES_CMAC_96 = 8, "AES_CMAC_96";
        AES_128_GMAC = 9, "AES_128_GMAC";
        AES_192_GMAC = 10, "AES_192_GMAC";
        AES_256_GMAC = 11, "AES_256_GMAC";
        HMAC_SHA2_256_128 = 12, "HMAC_SHA2_256_128";
        HMAC_SHA2_384_192 = 13, "HMAC_SHA2_384_192";
        HMAC_SHA2_512_256 = 14, "HMAC_SHA2_512_256";
    }
}

impl IntegId {
    /// HMAC-SHA-256 cut to 96 bits, as a draft before RFC 4868 had it, by a number for private use. It is for data
    /// planes: no proposal names it.
    pub const HMAC_SHA2_256_96: Self = Self(1027);
}

registry! {
    /// Key exchange method (transform type 4, and types 6 to 12 of RFC 9370).
    ///
    /// IANA has assigned nothing to FrodoKEM: all of its numbers are of the private range. Those of `FRODOKEM_*`, the
    /// salted scheme of ISO/IEC 18033-2, are the ones that strongSwan's public branch uses for it; those of
    /// `EFRODOKEM_*`, the unsalted scheme, are this project's choice. A backend can be given others, which a proposal
    /// then names as `kem` with the number.
    KeMethodId(u16) {
        NONE = 0, "NONE";
        MODP_768 = 1, "MODP_768";
        MODP_1024 = 2, "MODP_1024";
        MODP_1536 = 5, "MODP_1536";
        MODP_2048 = 14, "MODP_2048";
        MODP_3072 = 15, "MODP_3072";
        MODP_4096 = 16, "MODP_4096";
        MODP_6144 = 17, "MODP_6144";
        MODP_8192 = 18, "MODP_8192";
        ECP_256 = 19, "ECP_256";
        ECP_384 = 20, "ECP_384";
        ECP_521 = 21, "ECP_521";
        MODP_1024_160 = 22, "MODP_1024_160";
        MODP_2048_224 = 23, "MODP_2048_224";
        MODP_2048_256 = 24, "MODP_2048_256";
        ECP_192 = 25, "ECP_192";
        ECP_224 = 26, "ECP_224";
        ECP_224_BP = 27, "ECP_224_BP";
        ECP_256_BP = 28, "ECP_256_BP";
        ECP_384_BP = 29, "ECP_384_BP";
        ECP_512_BP = 30, "ECP_512_BP";
        CURVE_25519 = 31, "CURVE_25519";
        CURVE_448 = 32, "CURVE_448";
        GOST3410_2012_256 = 33, "GOST3410_2012_256";
        GOST3410_2012_512 = 34, "GOST3410_2012_512";
        ML_KEM_512 = 35, "ML_KEM_512";
        ML_KEM_768 = 36, "ML_KEM_768";
        ML_KEM_1024 = 37, "ML_KEM_1024";
        EFRODOKEM_640_AES = 1183, "EFRODOKEM_640_AES";
        EFRODOKEM_976_AES = 1184, "EFRODOKEM_976_AES";
        EFRODOKEM_1344_AES = 1185, "EFRODOKEM_1344_AES";
        EFRODOKEM_640_SHAKE = 1186, "EFRODOKEM_640_SHAKE";
        EFRODOKEM_976_SHAKE = 1187, "EFRODOKEM_976_SHAKE";
        EFRODOKEM_1344_SHAKE = 1188, "EFRODOKEM_1344_SHAKE";
        FRODOKEM_640_AES = 1083, "FRODOKEM_640_AES";
        FRODOKEM_976_AES = 1084, "FRODOKEM_976_AES";
        FRODOKEM_1344_AES = 1085, "FRODOKEM_1344_AES";
        FRODOKEM_640_SHAKE = 1086, "FRODOKEM_640_SHAKE";
        FRODOKEM_976_SHAKE = 1087, "FRODOKEM_976_SHAKE";
        FRODOKEM_1344_SHAKE = 1088, "FRODOKEM_1344_SHAKE";
    }
}

registry! {
    /// Sequence numbers (transform type 5), formerly ESN.
    SequenceNumbers(u16) {
        NO_EXT_SEQ = 0, "NO_EXT_SEQ";
        EXT_SEQ = 1, "EXT_SEQ";
        UNSPECIFIED_32 = 2, "UNSPECIFIED_32";
    }
}

registry! {
    /// Hash algorithm of SIGNATURE_HASH_ALGORITHMS (RFC 7427 §4).
    HashId(u16) {
        SHA1 = 1, "SHA1";
        SHA2_256 = 2, "SHA2-256";
        SHA2_384 = 3, "SHA2-384";
        SHA2_512 = 4, "SHA2-512";
        IDENTITY = 5, "Identity";
        STREEBOG_256 = 6, "STREEBOG_256";
        STREEBOG_512 = 7, "STREEBOG_512";
    }
}

impl KeMethodId {
    /// True for a key encapsulation mechanism: ML-KEM and every number after it, those for private use
    /// included. The numbers before it are Diffie-Hellman groups, which a quantum computer breaks.
    pub fn is_kem(self) -> bool {
        self.0 >= Self::ML_KEM_512.0
    }
}

impl EncrId {
    /// True if the algorithm protects integrity by itself, so that no integrity algorithm but NONE
    /// may go with it (RFC 5282 §8, RFC 4543 §5, RFC 7634).
    #[inline]
    pub fn is_aead(self) -> bool {
        matches!(self.0, 14..=16 | 18..=21 | 25..=35)
    }
}
