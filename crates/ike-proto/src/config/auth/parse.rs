//! Parses the option `auth`.

use std::fmt;

use super::{AuthConfig, PubkeyAuth, SchemeConstraints};
use crate::crypto::SchemeRegister;
use crate::crypto::SignatureScheme::{self, *};
use crate::wire::registry::HashId;

/// A value of `auth` that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthParseError {
    /// The part that is wrong.
    pub part: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl fmt::Display for AuthParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.part, self.problem)
    }
}

impl std::error::Error for AuthParseError {}

pub(super) fn parse(register: &SchemeRegister, text: &str) -> Result<AuthConfig, AuthParseError> {
    match text {
        "psk" => return Ok(AuthConfig::Psk),
        "null" => return Ok(AuthConfig::Null),
        "any" => return Ok(AuthConfig::pubkey()),
        _ => {}
    }
    let error = |part: &str, problem| AuthParseError { part: part.to_owned(), problem };
    let (chain, ike) = match text.split_once("ike:") {
        Some(("", ike)) => ("", Some(ike)),
        Some((chain, ike)) => match chain.strip_suffix('-') {
            Some(chain) => (chain, Some(ike)),
            None => return Err(error(chain, "there must be a `-` before `ike:`")),
        },
        None => (text, None),
    };
    let chain = if chain.is_empty() && ike.is_some() {
        SchemeConstraints::default()
    } else {
        constraints(register, chain)?
    };
    let ike = match ike {
        Some(ike) => constraints(register, ike)?,
        None => chain.clone(),
    };
    Ok(AuthConfig::Pubkey(PubkeyAuth { ike, chain }))
}

/// One key type with what is asked of it.
struct Rule<'a> {
    word: &'a str,
    schemes: Vec<SignatureScheme>,
    hashes: Vec<HashId>,
    bits: Option<u32>,
}

fn constraints(register: &SchemeRegister, text: &str) -> Result<SchemeConstraints, AuthParseError> {
    let error = |part: &str, problem| AuthParseError { part: part.to_owned(), problem };
    let mut rules: Vec<Rule<'_>> = Vec::new();
    for word in text.split('-') {
        if let Some(schemes) = key_type(register, word) {
            rules.push(Rule { word, schemes, hashes: Vec::new(), bits: None });
            continue;
        }
        let Some(rule) = rules.last_mut() else { return Err(error(word, "not a key type")) };
        let rsa_or_ecdsa = matches!(rule.word, "rsa" | "rsa/pss" | "rsa/pkcs1" | "ecdsa");
        if let Ok(bits) = word.parse::<u32>() {
            if !rsa_or_ecdsa || rule.bits.is_some() || !rule.hashes.is_empty() {
                return Err(error(
                    word,
                    "a size belongs right after rsa, rsa/pss, rsa/pkcs1 or ecdsa",
                ));
            }
            rule.bits = Some(bits);
        } else if let Some(hash) = hash(word) {
            if !rsa_or_ecdsa && rule.word != "pubkey" {
                return Err(error(word, "this key type has no choice of hashes"));
            }
            rule.hashes.push(hash);
        } else {
            return Err(error(word, "neither a key type nor a size nor a hash"));
        }
    }
    let unconstrained = |rule: &Rule<'_>| rule.word == "pubkey" && rule.hashes.is_empty();
    if rules.iter().any(unconstrained) {
        let added = |rule: &Rule<'_>| rule.schemes().all(|scheme| scheme.must_be_named());
        if !rules.iter().all(|rule| unconstrained(rule) || added(rule)) {
            return Err(error(
                text,
                "pubkey without hashes has all schemes but those that must be named",
            ));
        }
        if rules.iter().all(unconstrained) {
            return Ok(SchemeConstraints::default());
        }
    }
    let mut schemes = Vec::new();
    for rule in &rules {
        let before = schemes.len();
        schemes
            .extend(rule.schemes().filter(|scheme| !schemes.contains(scheme)).collect::<Vec<_>>());
        if schemes.len() == before && rule.schemes().next().is_none() {
            return Err(error(rule.word, "no signature scheme is left by size and hashes"));
        }
    }
    let rsa = rules.iter().filter(|rule| matches!(rule.word, "rsa" | "rsa/pss" | "rsa/pkcs1"));
    let rsa_bits = rsa.map(|rule| rule.bits.unwrap_or(0)).min().unwrap_or(0);
    Ok(SchemeConstraints { schemes, rsa_bits })
}

impl Rule<'_> {
    /// The schemes that size and hashes leave.
    fn schemes(&self) -> impl Iterator<Item = SignatureScheme> {
        let fits = |scheme: &SignatureScheme| match self.hashes.as_slice() {
            [] => *scheme != RsaPkcs1Sha1,
            hashes => hashes.contains(&scheme.hash()),
        };
        let long_enough = |scheme: &SignatureScheme| {
            curve_bits(scheme).is_none_or(|bits| bits >= self.bits.unwrap_or(0))
        };
        self.schemes.iter().filter(move |&scheme| fits(scheme) && long_enough(scheme)).cloned()
    }
}

fn key_type(register: &SchemeRegister, word: &str) -> Option<Vec<SignatureScheme>> {
    let pss = [RsaPssSha256, RsaPssSha384, RsaPssSha512];
    let pkcs1 = [RsaPkcs1Sha256, RsaPkcs1Sha384, RsaPkcs1Sha512, RsaPkcs1Sha1];
    Some(match word {
        "pubkey" => SignatureScheme::BUILT_IN
            .iter()
            .filter(|scheme| **scheme != Falcon512)
            .cloned()
            .collect(),
        "rsa" => [&pss[..], &pkcs1].concat(),
        "rsa/pss" => pss.to_vec(),
        "rsa/pkcs1" => pkcs1.to_vec(),
        "ecdsa" => vec![EcdsaP256Sha256, EcdsaP384Sha384, EcdsaP521Sha512],
        "ed25519" => vec![Ed25519],
        "mldsa" => vec![MlDsa44, MlDsa65, MlDsa87],
        "mldsa44" => vec![MlDsa44],
        "mldsa65" => vec![MlDsa65],
        "mldsa87" => vec![MlDsa87],
        "falcon512" => vec![Falcon512],
        _ => {
            if let Some(outside) = register.by_name(word) {
                return Some(vec![Outside(outside.clone())]);
            }
            let rest = word.strip_prefix("slhdsa")?;
            let slh = SignatureScheme::BUILT_IN.iter().filter(|scheme| scheme.is_slh_dsa());
            let set =
                rest.strip_prefix('_').map(|set| format!("SLH-DSA-{}", set.replace('_', "-")));
            let wanted = |scheme: &SignatureScheme| match &set {
                None => rest.is_empty(),
                Some(set) => scheme.name().eq_ignore_ascii_case(set),
            };
            let schemes: Vec<_> = slh.filter(|scheme| wanted(scheme)).cloned().collect();
            return (!schemes.is_empty()).then_some(schemes);
        }
    })
}

fn hash(word: &str) -> Option<HashId> {
    Some(match word {
        "sha1" => HashId::SHA1,
        "sha256" => HashId::SHA2_256,
        "sha384" => HashId::SHA2_384,
        "sha512" => HashId::SHA2_512,
        "identity" => HashId::IDENTITY,
        _ => return None,
    })
}

fn curve_bits(scheme: &SignatureScheme) -> Option<u32> {
    match scheme {
        EcdsaP256Sha256 => Some(256),
        EcdsaP384Sha384 => Some(384),
        EcdsaP521Sha512 => Some(521),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pubkey(text: &str) -> PubkeyAuth {
        match AuthConfig::parse(text) {
            Ok(AuthConfig::Pubkey(pubkey)) => pubkey,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn words_without_constraints() {
        assert_eq!(AuthConfig::parse("psk"), Ok(AuthConfig::Psk));
        assert_eq!(AuthConfig::parse("null"), Ok(AuthConfig::Null));
        assert_eq!(AuthConfig::parse("pubkey"), Ok(AuthConfig::pubkey()));
        assert_eq!(AuthConfig::parse("ike:pubkey"), Ok(AuthConfig::pubkey()));
        let any = pubkey("pubkey").ike;
        assert!(any.allows(&MlDsa65) && any.allows(&RsaPkcs1Sha256));
        assert!(!any.allows(&RsaPkcs1Sha1) && !any.allows(&Falcon512));
    }

    #[test]
    fn sizes_and_hashes_belong_to_their_key_type() {
        let both = pubkey("rsa-3072-sha256-ecdsa-384").ike;
        let expected = [RsaPssSha256, RsaPkcs1Sha256, EcdsaP384Sha384, EcdsaP521Sha512];
        assert_eq!(both.schemes, expected);
        assert_eq!(both.rsa_bits, 3072);
        let hashes = pubkey("pubkey-sha384-sha512").ike;
        assert!(hashes.allows(&EcdsaP384Sha384) && hashes.allows(&RsaPssSha512));
        assert!(!hashes.allows(&EcdsaP256Sha256) && !hashes.allows(&Ed25519));
        assert!(pubkey("pubkey-sha384-identity").ike.allows(&Ed25519));
        assert_eq!(pubkey("rsa/pss-sha512").ike.schemes, [RsaPssSha512]);
        assert_eq!(pubkey("rsa/pkcs1-sha256").ike.schemes, [RsaPkcs1Sha256]);
        assert!(!pubkey("rsa/pkcs1").ike.allows(&RsaPkcs1Sha1));
        assert!(pubkey("rsa-sha1").ike.allows(&RsaPkcs1Sha1));
        assert!(!pubkey("rsa").ike.allows(&RsaPkcs1Sha1));
        let added = pubkey("pubkey-falcon512").ike;
        assert!(added.allows(&MlDsa65) && added.allows(&Falcon512) && !added.allows(&RsaPkcs1Sha1));
        assert!(pubkey("pubkey-rsa-sha1").ike.allows(&RsaPkcs1Sha1));
    }

    #[test]
    fn post_quantum_alone() {
        assert_eq!(pubkey("ike:mldsa87").ike.schemes, [MlDsa87]);
        assert_eq!(pubkey("ike:mldsa87").chain, SchemeConstraints::default());
        let all = pubkey("mldsa-slhdsa");
        assert_eq!(all.ike.schemes.len(), 15);
        assert!(all.ike.schemes.iter().all(|scheme| scheme.is_post_quantum()));
        assert_eq!(all.chain, all.ike);
        assert_eq!(pubkey("slhdsa_shake_192f").ike.schemes, [SlhDsaShake192f]);
        let mixed = pubkey("ecdsa-256-ike:mldsa");
        assert_eq!(mixed.ike.schemes, [MlDsa44, MlDsa65, MlDsa87]);
        assert!(mixed.chain.allows(&EcdsaP256Sha256));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, part) in [
            ("", ""),
            ("eap", "eap"),
            ("sha256", "sha256"),
            ("rsa-md5", "md5"),
            ("rsa-sha256-2048", "2048"),
            ("pubkey-2048", "2048"),
            ("ed25519-sha256", "sha256"),
            ("mldsa88", "mldsa88"),
            ("slhdsa_sha2_128x", "slhdsa_sha2_128x"),
            ("ecdsa-1024", "ecdsa"),
            ("ecdsa-sha1", "ecdsa"),
            ("pubkey-rsa", "pubkey-rsa"),
            ("rsaike:rsa", "rsa"),
            ("ike:", ""),
        ] {
            assert_eq!(
                AuthConfig::parse(text).map_err(|error| error.part),
                Err(part.to_owned()),
                "{text}"
            );
        }
    }
}
