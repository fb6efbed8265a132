//! Values that the engine's types parse: proposals, identities, traffic selectors.

use ike_proto::config::{IdMatch, IdRegex, PpkId, PpkMatch, ProposalConfig, TsSpec};
use ike_proto::dataplane::TrafficSelector;
use ike_proto::wire::payload::{IdData, Transform};
use ike_proto::wire::registry::{EncrId, IdType, IntegId, ProtocolId, TransformType};

use crate::diagnostic::Report;
use crate::host::Host;
use crate::tree::{Section, Text, cannot_be, join};

/// What `id` takes, for messages.
pub const IDENTITY: &str =
    "an address, a host name, an e-mail address or \"keyid:…\", as in swanctl.conf(5)";

/// What names a PPK, for messages.
pub(crate) const PPK_ID: &str = "the identifier of a post-quantum preshared key";

/// What [`selectors`] takes, for messages.
const SELECTOR: &str =
    "a subnet, a range \"from-to\" or \"dynamic\", with \"[protocol/port]\" if wanted";

/// What a proposal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Ike,
    Esp,
}

/// A list of proposals; `default` stands for the default ones.
pub(crate) fn proposals(
    s: &mut Section<'_>,
    key: &'static str,
    protocol: Protocol,
    host: &dyn Host,
    report: &mut Report,
) -> Option<Vec<ProposalConfig>> {
    let (number, example, default) = match protocol {
        Protocol::Ike => {
            let example = "proposals such as \"aes256gcm16-prfsha384-x25519\", or \"default\"";
            (ProtocolId::IKE, example, ProposalConfig::default_ike as fn() -> _)
        }
        Protocol::Esp => {
            let example = "proposals such as \"aes256gcm16-x25519\", or \"default\"";
            (ProtocolId::ESP, example, ProposalConfig::default_esp as fn() -> _)
        }
    };
    let path = join(&s.path, key);
    let mut proposals: Vec<ProposalConfig> = Vec::new();
    for item in s.list(key, example, report)? {
        if item.text == "default" {
            proposals.extend(default());
            continue;
        }
        let proposal = match ProposalConfig::parse(number, item.text) {
            Ok(proposal) => proposal,
            Err(why) => {
                report.add(item.offset, format!("`{path}`, {:?}: {why}", item.text));
                continue;
            }
        };
        for missing in unsupported(&proposal, host) {
            let message = format!("`{path}`, {:?}: {missing} is not supported yet", item.text);
            report.add(item.offset, message);
        }
        if let Some(meant) = proposal.meant_as_hybrid() {
            let message = format!(
                "`{path}`, {:?}: peers use one of these key exchange methods, not both; write {:?} for a \
                 hybrid key exchange, or a proposal for each method",
                item.text,
                meant.to_string()
            );
            report.warn(Some(item.offset), message);
        }
        proposals.push(proposal);
    }
    if proposals.is_empty() { None } else { Some(proposals) }
}

/// What of `proposal` the engine or its cryptography cannot do: each transform that it cannot do whatever stands
/// beside it, or if there is none, those that do not go together.
fn unsupported(proposal: &ProposalConfig, host: &dyn Host) -> Vec<String> {
    let kept = |transforms: Vec<Transform>| {
        let proposal = ProposalConfig { protocol: proposal.protocol, transforms };
        host.supported(&proposal).map(|kept| kept.transforms).unwrap_or_default()
    };
    let all = kept(proposal.transforms.clone());
    let lost = || proposal.transforms.iter().filter(|transform| !all.contains(transform));
    let alone = |transform: &&Transform| {
        let partner = match transform.kind {
            TransformType::ENCR if EncrId(transform.id).is_aead() => None,
            TransformType::ENCR => Some(Transform::integ(IntegId::HMAC_SHA2_256_128)),
            TransformType::INTEG => Some(Transform::encr(EncrId::AES_CBC, 256)),
            _ => None,
        };
        let tried = std::iter::once(**transform).chain(partner).collect();
        !kept(tried).contains(transform)
    };
    let names = |found: Vec<&Transform>| found.into_iter().map(ToString::to_string).collect();
    let by_itself: Vec<_> = lost().filter(alone).collect();
    match by_itself.is_empty() {
        false => names(by_itself),
        true => {
            let cipher =
                |t: &&Transform| [TransformType::ENCR, TransformType::INTEG].contains(&t.kind);
            names(lost().filter(cipher).collect())
        }
    }
}

/// An identity.
pub(crate) fn identity(text: Text<'_>, path: &str, report: &mut Report) -> Option<IdData> {
    if IdRegex::is_meant_by(text.text) {
        let message = format!("{}: a regular expression", cannot_be(path, text.text));
        report.expected(text.offset, message, IDENTITY);
        return None;
    }
    match IdData::parse(text.text) {
        Ok(id) => Some(id),
        Err(why) => {
            let message = format!("{}: {why}", cannot_be(path, text.text));
            report.expected(text.offset, message, IDENTITY);
            None
        }
    }
}

/// `remote.id`: an identity, `%any`, a name that begins with `*`, a distinguished name with `*` for a value, or a
/// regular expression.
pub(crate) fn id_match(text: Text<'_>, path: &str, report: &mut Report) -> Option<IdMatch> {
    if text.text == "%any" {
        return Some(IdMatch::Any);
    }
    if IdRegex::is_meant_by(text.text) {
        return match IdRegex::parse(text.text) {
            Ok(regex) => Some(IdMatch::Regex(regex)),
            Err(why) => {
                let message = format!("`{path}` cannot be {:?}: {why}", text.text);
                report.expected(text.offset, message, REGEX);
                None
            }
        };
    }
    if !text.text.contains('*') {
        return identity(text, path, report).map(IdMatch::Exact);
    }
    let id = identity(text, path, report)?;
    if id.is_dn_pattern() {
        return Some(IdMatch::DnPattern(id));
    }
    let named = matches!(id.kind, IdType::FQDN | IdType::RFC822_ADDR);
    if named && id.data.starts_with(b"*") && id.data.iter().filter(|c| **c == b'*').count() == 1 {
        return Some(IdMatch::Suffix(id));
    }
    let message = format!("`{path}` cannot be {:?}", text.text);
    report.expected(text.offset, message, PATTERN);
    None
}

/// `ppk_id`: identifiers, `%any`, or names that begin with `*`.
pub(crate) fn ppk_ids(s: &mut Section<'_>, report: &mut Report) -> Vec<PpkMatch> {
    let path = join(&s.path, "ppk_id");
    let items = s.list("ppk_id", PPK_ID, report).unwrap_or_default();
    let patterns = items.into_iter().filter_map(|item| match id_match(item, &path, report)? {
        IdMatch::Any => Some(PpkMatch::Any),
        IdMatch::Exact(id) => Some(PpkMatch::Exact(PpkId::new(id.data))),
        IdMatch::Suffix(id) => {
            let suffix = id.data.strip_prefix(b"*").unwrap_or(&id.data);
            Some(PpkMatch::Suffix(PpkId::new(suffix)))
        }
        IdMatch::DnPattern(_) | IdMatch::Regex(_) => {
            let message =
                format!("`{path}` cannot be a distinguished name with `*` or a regular expression");
            report.expected(item.offset, message, PPK_ID);
            None
        }
    });
    patterns.collect()
}

/// What a regular expression looks like.
const REGEX: &str = "one such as \"fqdn:^vpn[0-9]+[.]example[.]org$\"";

/// Where a `*` may stand in an identity.
const PATTERN: &str = "one `*` at the beginning of a name or e-mail address, or as a value of a DN";

/// A list of traffic selectors.
pub(crate) fn selectors(
    s: &mut Section<'_>,
    key: &'static str,
    report: &mut Report,
) -> Option<Vec<TsSpec>> {
    let path = join(&s.path, key);
    let mut selectors = Vec::new();
    for item in s.list(key, SELECTOR, report)? {
        match selector(item.text) {
            Ok(selector) => selectors.push(selector),
            Err(why) => {
                report.expected(
                    item.offset,
                    format!("`{path}` cannot be {:?}: {why}", item.text),
                    SELECTOR,
                );
            }
        }
    }
    if selectors.is_empty() { None } else { Some(selectors) }
}

fn selector(text: &str) -> Result<TsSpec, String> {
    let Some(rest) = text.strip_prefix("dynamic") else {
        let fixed = text.parse::<TrafficSelector>();
        return fixed.map(TsSpec::Fixed).map_err(|error| error.to_string());
    };
    if rest.is_empty() {
        return Ok(TsSpec::DYNAMIC);
    }
    let inner = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.ok_or_else(|| format!("{rest:?} is not in square brackets"))?;
    let (protocol, start_port, end_port) =
        TrafficSelector::parse_proto_port(inner).map_err(|error| error.to_string())?;
    Ok(TsSpec::Dynamic { protocol, start_port, end_port })
}
