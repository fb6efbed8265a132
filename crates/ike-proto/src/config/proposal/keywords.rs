//! strongSwan's keywords for algorithms, and a few of our own.

use crate::wire::payload::Transform;
use crate::wire::registry::{
    EncrId as E, IntegId as I, KeMethodId as K, PrfId as P, SequenceNumbers, TransformType,
};

/// The transform that `keyword` stands for; `ke1_…` to `ke7_…` are additional key exchanges.
pub(super) fn lookup(keyword: &str) -> Option<Transform> {
    if let Some((kind, method)) = additional_ke(keyword) {
        let transform = lookup(method)?;
        return (transform.kind == TransformType::KE).then_some(Transform { kind, ..transform });
    }
    let known = KEYWORDS.iter().find(|(name, _)| *name == keyword);
    known.map(|(_, transform)| *transform).or_else(|| Some(Transform::ke(numbered(keyword)?)))
}

/// The keyword of a transform, without the `ke1_` of an additional key exchange.
pub(super) fn spell(transform: &Transform) -> Option<&'static str> {
    let kind = if transform.kind.is_ke() { TransformType::KE } else { transform.kind };
    let wanted = Transform { kind, ..*transform };
    KEYWORDS.iter().find(|(_, known)| *known == wanted).map(|(name, _)| *name)
}

/// `kem` with a transform ID, for key exchange methods without a keyword.
fn numbered(keyword: &str) -> Option<K> {
    let digits = keyword.strip_prefix("kem")?;
    let canonical = digits.bytes().all(|d| d.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| canonical).map(K)
}

/// The known keyword closest to `token` in single-character edits, if one is close.
pub(super) fn nearest(token: &str) -> Option<String> {
    let (prefix, rest) = match additional_ke(token) {
        Some((_, method)) => (token.strip_suffix(method).unwrap_or_default(), method),
        None => ("", token),
    };
    let (distance, name) = KEYWORDS
        .iter()
        .filter(|(_, t)| prefix.is_empty() || t.kind == TransformType::KE)
        .map(|(name, _)| (edits(rest, name), *name))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= rest.len().div_ceil(3)).then(|| format!("{prefix}{name}"))
}

fn additional_ke(keyword: &str) -> Option<(TransformType, &str)> {
    let (number, method) = keyword.strip_prefix("ke")?.split_once('_')?;
    let slot = number.parse::<usize>().ok()?.checked_sub(1)?;
    Some((TransformType::from_additional_ke(slot)?, method))
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (y, above) in b.bytes().zip(row.iter_mut().skip(1)) {
            let cost = diagonal + usize::from(x != y);
            diagonal = *above;
            left = cost.min(*above + 1).min(left + 1);
            *above = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

const fn encr(id: E, key_bits: u16) -> Transform {
    Transform::encr(id, key_bits)
}

const fn sn(id: SequenceNumbers) -> Transform {
    Transform::new(TransformType::SN, id.0)
}

/// Every keyword; where several mean the same, the first is the one that is printed.
const KEYWORDS: &[(&str, Transform)] = &[
    ("null", encr(E::NULL, 0)),
    ("3des", encr(E::DES3, 0)),
    ("aes128", encr(E::AES_CBC, 128)),
    ("aes", encr(E::AES_CBC, 128)),
    ("aes192", encr(E::AES_CBC, 192)),
    ("aes256", encr(E::AES_CBC, 256)),
    ("aes128ctr", encr(E::AES_CTR, 128)),
    ("aes192ctr", encr(E::AES_CTR, 192)),
    ("aes256ctr", encr(E::AES_CTR, 256)),
    ("aes128ccm8", encr(E::AES_CCM_8, 128)),
    ("aes128ccm64", encr(E::AES_CCM_8, 128)),
    ("aes128ccm12", encr(E::AES_CCM_12, 128)),
    ("aes128ccm96", encr(E::AES_CCM_12, 128)),
    ("aes128ccm16", encr(E::AES_CCM_16, 128)),
    ("aes128ccm128", encr(E::AES_CCM_16, 128)),
    ("aes192ccm8", encr(E::AES_CCM_8, 192)),
    ("aes192ccm64", encr(E::AES_CCM_8, 192)),
    ("aes192ccm12", encr(E::AES_CCM_12, 192)),
    ("aes192ccm96", encr(E::AES_CCM_12, 192)),
    ("aes192ccm16", encr(E::AES_CCM_16, 192)),
    ("aes192ccm128", encr(E::AES_CCM_16, 192)),
    ("aes256ccm8", encr(E::AES_CCM_8, 256)),
    ("aes256ccm64", encr(E::AES_CCM_8, 256)),
    ("aes256ccm12", encr(E::AES_CCM_12, 256)),
    ("aes256ccm96", encr(E::AES_CCM_12, 256)),
    ("aes256ccm16", encr(E::AES_CCM_16, 256)),
    ("aes256ccm128", encr(E::AES_CCM_16, 256)),
    ("aes128gcm8", encr(E::AES_GCM_8, 128)),
    ("aes128gcm64", encr(E::AES_GCM_8, 128)),
    ("aes128gcm12", encr(E::AES_GCM_12, 128)),
    ("aes128gcm96", encr(E::AES_GCM_12, 128)),
    ("aes128gcm16", encr(E::AES_GCM_16, 128)),
    ("aes128gcm", encr(E::AES_GCM_16, 128)),
    ("aes128gcm128", encr(E::AES_GCM_16, 128)),
    ("aes192gcm8", encr(E::AES_GCM_8, 192)),
    ("aes192gcm64", encr(E::AES_GCM_8, 192)),
    ("aes192gcm12", encr(E::AES_GCM_12, 192)),
    ("aes192gcm96", encr(E::AES_GCM_12, 192)),
    ("aes192gcm16", encr(E::AES_GCM_16, 192)),
    ("aes192gcm", encr(E::AES_GCM_16, 192)),
    ("aes192gcm128", encr(E::AES_GCM_16, 192)),
    ("aes256gcm8", encr(E::AES_GCM_8, 256)),
    ("aes256gcm64", encr(E::AES_GCM_8, 256)),
    ("aes256gcm12", encr(E::AES_GCM_12, 256)),
    ("aes256gcm96", encr(E::AES_GCM_12, 256)),
    ("aes256gcm16", encr(E::AES_GCM_16, 256)),
    ("aes256gcm", encr(E::AES_GCM_16, 256)),
    ("aes256gcm128", encr(E::AES_GCM_16, 256)),
    ("aes128gmac", encr(E::NULL_AES_GMAC, 128)),
    ("aes192gmac", encr(E::NULL_AES_GMAC, 192)),
    ("aes256gmac", encr(E::NULL_AES_GMAC, 256)),
    ("camellia128", encr(E::CAMELLIA_CBC, 128)),
    ("camellia", encr(E::CAMELLIA_CBC, 128)),
    ("camellia192", encr(E::CAMELLIA_CBC, 192)),
    ("camellia256", encr(E::CAMELLIA_CBC, 256)),
    ("chacha20poly1305", encr(E::CHACHA20_POLY1305, 0)),
    ("sha1", Transform::integ(I::HMAC_SHA1_96)),
    ("sha", Transform::integ(I::HMAC_SHA1_96)),
    ("sha1_160", Transform::integ(I::HMAC_SHA1_160)),
    ("sha256", Transform::integ(I::HMAC_SHA2_256_128)),
    ("sha2_256", Transform::integ(I::HMAC_SHA2_256_128)),
    ("sha384", Transform::integ(I::HMAC_SHA2_384_192)),
    ("sha2_384", Transform::integ(I::HMAC_SHA2_384_192)),
    ("sha512", Transform::integ(I::HMAC_SHA2_512_256)),
    ("sha2_512", Transform::integ(I::HMAC_SHA2_512_256)),
    ("aesxcbc", Transform::integ(I::AES_XCBC_96)),
    ("aescmac", Transform::integ(I::AES_CMAC_96)),
    ("prfsha1", Transform::prf(P::HMAC_SHA1)),
    ("prfsha256", Transform::prf(P::HMAC_SHA2_256)),
    ("prfsha384", Transform::prf(P::HMAC_SHA2_384)),
    ("prfsha512", Transform::prf(P::HMAC_SHA2_512)),
    ("prfaesxcbc", Transform::prf(P::AES128_XCBC)),
    ("prfaescmac", Transform::prf(P::AES128_CMAC)),
    ("none", Transform::ke(K::NONE)),
    ("modpnone", Transform::ke(K::NONE)),
    ("modp1024", Transform::ke(K::MODP_1024)),
    ("modp1536", Transform::ke(K::MODP_1536)),
    ("modp2048", Transform::ke(K::MODP_2048)),
    ("modp3072", Transform::ke(K::MODP_3072)),
    ("modp4096", Transform::ke(K::MODP_4096)),
    ("modp6144", Transform::ke(K::MODP_6144)),
    ("modp8192", Transform::ke(K::MODP_8192)),
    ("modp1024s160", Transform::ke(K::MODP_1024_160)),
    ("modp2048s224", Transform::ke(K::MODP_2048_224)),
    ("modp2048s256", Transform::ke(K::MODP_2048_256)),
    ("ecp192", Transform::ke(K::ECP_192)),
    ("ecp224", Transform::ke(K::ECP_224)),
    ("ecp256", Transform::ke(K::ECP_256)),
    ("ecp384", Transform::ke(K::ECP_384)),
    ("ecp521", Transform::ke(K::ECP_521)),
    ("ecp224bp", Transform::ke(K::ECP_224_BP)),
    ("ecp256bp", Transform::ke(K::ECP_256_BP)),
    ("ecp384bp", Transform::ke(K::ECP_384_BP)),
    ("ecp512bp", Transform::ke(K::ECP_512_BP)),
    ("x25519", Transform::ke(K::CURVE_25519)),
    ("curve25519", Transform::ke(K::CURVE_25519)),
    ("x448", Transform::ke(K::CURVE_448)),
    ("curve448", Transform::ke(K::CURVE_448)),
    ("mlkem512", Transform::ke(K::ML_KEM_512)),
    ("mlkem768", Transform::ke(K::ML_KEM_768)),
    ("mlkem1024", Transform::ke(K::ML_KEM_1024)),
    ("frodoa1", Transform::ke(K::FRODOKEM_640_AES)),
    ("frodoa3", Transform::ke(K::FRODOKEM_976_AES)),
    ("frodoa5", Transform::ke(K::FRODOKEM_1344_AES)),
    ("frodos1", Transform::ke(K::FRODOKEM_640_SHAKE)),
    ("frodos3", Transform::ke(K::FRODOKEM_976_SHAKE)),
    ("frodos5", Transform::ke(K::FRODOKEM_1344_SHAKE)),
    // The unsalted scheme.
    ("efrodoa1", Transform::ke(K::EFRODOKEM_640_AES)),
    ("efrodoa3", Transform::ke(K::EFRODOKEM_976_AES)),
    ("efrodoa5", Transform::ke(K::EFRODOKEM_1344_AES)),
    ("efrodos1", Transform::ke(K::EFRODOKEM_640_SHAKE)),
    ("efrodos3", Transform::ke(K::EFRODOKEM_976_SHAKE)),
    ("efrodos5", Transform::ke(K::EFRODOKEM_1344_SHAKE)),
    ("esn", sn(SequenceNumbers::EXT_SEQ)),
    ("noesn", sn(SequenceNumbers::NO_EXT_SEQ)),
];
