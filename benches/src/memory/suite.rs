//! What the measured SAs negotiate.

/// How both ends authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// By one pre-shared key for all.
    Psk,
    /// By certificates of ECDSA P-256 keys, a subject of its own in each.
    Certificates,
}

/// A set of algorithms.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// Name.
    pub name: &'static str,
    /// `proposals`.
    pub ike: &'static str,
    /// `esp_proposals`.
    pub esp: &'static str,
    /// Authentication.
    pub auth: Auth,
}

const GCM: &str = "aes256gcm16-prfsha384-x25519";
const HYBRID: &str = "aes256gcm16-prfsha384-x25519-ke1_mlkem768";
const CBC: &str = "aes256-sha256-modp2048";

/// All of them.
pub const SUITES: &[Suite] = &[
    Suite { name: "psk-x25519", ike: GCM, esp: "aes256gcm16", auth: Auth::Psk },
    Suite { name: "psk-mlkem768", ike: HYBRID, esp: "aes256gcm16", auth: Auth::Psk },
    Suite { name: "psk-modp2048", ike: CBC, esp: "aes256-sha256", auth: Auth::Psk },
    Suite { name: "ecdsa-x25519", ike: GCM, esp: "aes256gcm16", auth: Auth::Certificates },
    Suite { name: "ecdsa-mlkem768", ike: HYBRID, esp: "aes256gcm16", auth: Auth::Certificates },
];

/// The suite with this name.
///
/// # Errors
///
/// If there is none; the error names those there are.
pub fn named(name: &str) -> Result<Suite, String> {
    let names: Vec<_> = SUITES.iter().map(|suite| suite.name).collect();
    let found = SUITES.iter().find(|suite| suite.name == name).copied();
    found.ok_or_else(|| format!("no suite {name:?}; there are {}", names.join(", ")))
}
