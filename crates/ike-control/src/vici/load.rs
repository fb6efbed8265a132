//! Loading and unloading by clients: connections, authorities, pools, keys, secrets and certificates.

use std::fmt::Write;

use ike_config::Kind;
use vici::{Section, Value};
use zeroize::Zeroizing;

use super::commands::{refused, result, success, told};
use super::convert;
use super::refusal::Refusal;
use crate::error::OperatorError;
use crate::operator::Operator;
use crate::program::Program;
use crate::views::Lease;

/// Answers the command `name`; `None` if it is none of these.
pub(super) async fn answer(operator: &Operator, name: &str, asked: &Section) -> Option<Section> {
    let answer = match name {
        "load-conn" => told(load(operator, Kind::Connection, asked).await),
        "unload-conn" => result(unload(operator, Kind::Connection, asked).await),
        "get-conns" => named(operator, Kind::Connection, "conns").await,
        "load-authority" => told(load(operator, Kind::Authority, asked).await),
        "unload-authority" => result(unload(operator, Kind::Authority, asked).await),
        "get-authorities" => named(operator, Kind::Authority, "authorities").await,
        "load-pool" => told(load(operator, Kind::Pool, asked).await),
        "unload-pool" => result(unload(operator, Kind::Pool, asked).await),
        "get-pools" => match operator.settled().await {
            Ok(()) => pools(operator, asked).await,
            Err(why) => refused(why),
        },
        "load-cert" => result(load_cert(operator, asked).await),
        "load-key" => load_key(operator, asked).await,
        "unload-key" => result(unload_key(operator, asked).await),
        "get-keys" => Section::new().list("keys", operator.loaded_keys().await),
        "load-token" => load_token(operator, asked).await,
        "load-shared" => result(load_shared(operator, asked).await),
        "unload-shared" => result(unload_shared(operator, asked).await),
        "get-shared" => Section::new().list("keys", operator.loaded_shared().await),
        "clear-creds" => {
            let cleared = operator.clear_credentials().await;
            operator.program().flush(true, true);
            result(cleared)
        }
        "flush-certs" => result(flush(operator.program(), asked)),
        _ => return None,
    };
    Some(answer)
}

/// The one section of a message, and its name.
fn only(asked: &Section) -> Result<(&str, &Section), Refusal> {
    let mut all = asked.iter();
    match (all.next(), all.next()) {
        (Some((name, Value::Section(section))), None) => Ok((name, section)),
        _ => Err(Refusal::NotOneSection),
    }
}

async fn load(operator: &Operator, kind: Kind, asked: &Section) -> Result<Vec<String>, Refusal> {
    let (name, section) = only(asked)?;
    let loader = operator.program().loader().ok_or(OperatorError::NoLoader)?;
    if kind == Kind::Connection && !loader.allows_updown() {
        refuse_updown(section)?;
    }
    let (table, blobs) = convert::table(kind, section, loader)?;
    Ok(operator.load_section(kind, name, table, blobs).await?)
}

/// Refuses a connection with an `updown`: whoever may use the socket could run any program as this process's user.
fn refuse_updown(connection: &Section) -> Result<(), Refusal> {
    let Some(Value::Section(children)) = connection.get("children") else { return Ok(()) };
    for (child, options) in children.iter() {
        if let Value::Section(options) = options
            && options.get("updown").is_some()
        {
            return Err(Refusal::Updown(child.to_owned()));
        }
    }
    Ok(())
}

async fn unload(operator: &Operator, kind: Kind, asked: &Section) -> Result<(), Refusal> {
    let name = asked.str("name").ok_or(Refusal::Missing("name"))?;
    Ok(operator.unload_section(kind, name).await?)
}

async fn named(operator: &Operator, kind: Kind, list: &str) -> Section {
    Section::new().list(list, operator.loaded_sections(kind).await)
}

/// The pools that clients have loaded, for what swanctl finds here it unloads unless it has just loaded it;
/// all of them if leases or one pool are asked for.
async fn pools(operator: &Operator, asked: &Section) -> Section {
    let leases = asked.str("leases") == Some("yes");
    let one = asked.str("name");
    let names = operator.loaded_sections(Kind::Pool).await;
    let all = operator.program().pools(one, leases);
    let shown =
        all.into_iter().filter(|pool| leases || one.is_some() || names.contains(&pool.name));
    shown.fold(Section::new(), |answer, pool| {
        let mut section = Section::new()
            .text("base", pool.base)
            .text("size", pool.size)
            .text("online", pool.online.to_string())
            .text("offline", pool.offline.to_string());
        if leases {
            let each = pool.leases.into_iter().enumerate();
            let list = each.fold(Section::new(), |list, (index, lease)| {
                let Lease { address, identity, status } = lease;
                let entry = Section::new()
                    .text("address", address)
                    .text("identity", identity.unwrap_or_else(|| "%any".to_owned()))
                    .text("status", status);
                list.section(index.to_string(), entry)
            });
            section = section.section("leases", list);
        }
        answer.section(pool.name, section)
    })
}

fn octets<'a>(asked: &'a Section, name: &'static str) -> Result<&'a [u8], Refusal> {
    match asked.get(name) {
        Some(Value::Text(octets)) if !octets.is_empty() => Ok(octets),
        _ => Err(Refusal::Missing(name)),
    }
}

async fn load_cert(operator: &Operator, asked: &Section) -> Result<(), Refusal> {
    let kind = asked.str("type").ok_or(Refusal::Missing("type"))?.to_ascii_uppercase();
    let flag = asked.str("flag").unwrap_or("NONE").to_ascii_uppercase();
    let data = octets(asked, "data")?;
    // Names that older clients have for both.
    let ca = match (kind.as_str(), flag.as_str()) {
        ("X509", "NONE" | "ANY") => Some(false),
        ("X509", "CA") | ("X509CA", _) => Some(true),
        ("X509_CRL" | "X509CRL", _) => None,
        ("X509", _) => return Err(Refusal::CertificateFlag(flag)),
        _ => return Err(Refusal::CertificateType(kind)),
    };
    match ca {
        Some(ca) => operator.load_certificates(data, ca).await?,
        None => operator.load_crl(data).await?,
    }
    Ok(())
}

async fn load_key(operator: &Operator, asked: &Section) -> Section {
    let data = match octets(asked, "data") {
        Ok(data) => data,
        Err(why) => return refused(why),
    };
    with_id(operator.load_key(data, asked.str("type").unwrap_or("any")).await)
}

/// The answer with the identifier of a key that has been loaded.
fn with_id(loaded: Result<String, OperatorError>) -> Section {
    match loaded {
        Ok(id) => success().text("id", id),
        Err(why) => refused(why),
    }
}

/// A section `token` of `[secrets]`, as the file has it.
async fn load_token(operator: &Operator, asked: &Section) -> Section {
    let mut texts = Vec::new();
    for (name, value) in asked.iter() {
        match value {
            Value::Text(octets) => match String::from_utf8(octets.clone()) {
                Ok(text) => texts.push((name, Zeroizing::new(text))),
                Err(why) => {
                    drop(Zeroizing::new(why.into_bytes()));
                    return refused(Refusal::NotUtf8(name.to_owned()));
                }
            },
            _ => return refused(Refusal::NotText(name.to_owned())),
        }
    }
    let texts = texts.iter_mut().map(|(name, text)| (*name, std::mem::take(&mut **text)));
    let table = convert::of_texts(texts, []);
    with_id(operator.load_token(table).await)
}

async fn unload_key(operator: &Operator, asked: &Section) -> Result<(), Refusal> {
    let id = asked.str("id").ok_or(Refusal::Missing("id"))?.to_ascii_lowercase();
    Ok(operator.unload_key(&id).await?)
}

/// A section of `[secrets]`, as the file has it.
async fn load_shared(operator: &Operator, asked: &Section) -> Result<(), Refusal> {
    let kind = asked.str("type").ok_or(Refusal::Missing("type"))?;
    let kind = match kind.to_ascii_uppercase().as_str() {
        "IKE" => "ike",
        "PPK" => "ppk",
        // A secret of one is that of the other.
        "EAP" | "XAUTH" => "eap",
        "NTLM" => "ntlm",
        _ => return Err(Refusal::SecretType(kind.to_owned())),
    };
    let id = asked.str("id");
    if id.is_some_and(|id| !id.chars().all(|c| c.is_ascii_graphic() || c == ' ')) {
        return Err(Refusal::Form("`id`", "printable characters"));
    }
    let mut secret = Zeroizing::new(String::with_capacity(2 + 2 * octets(asked, "data")?.len()));
    secret.push_str("0x");
    for octet in octets(asked, "data")? {
        let _ = write!(secret, "{octet:02x}");
    }
    let owners = match asked.get("owners") {
        None => Vec::new(),
        Some(Value::List(owners)) => owners
            .iter()
            .map(|owner| String::from_utf8(owner.clone()))
            .collect::<Result<_, _>>()
            .map_err(|_| Refusal::NotUtf8("owners".to_owned()))?,
        Some(_) => return Err(Refusal::Form("`owners`", "a list")),
    };
    let owners = (!owners.is_empty()).then_some(("id", owners));
    let table = convert::of_texts([("secret", std::mem::take(&mut *secret))], owners);
    Ok(operator.load_shared(id, kind, table).await?)
}

async fn unload_shared(operator: &Operator, asked: &Section) -> Result<(), Refusal> {
    let id = asked.str("id").ok_or(Refusal::Missing("id"))?;
    Ok(operator.unload_shared(id).await?)
}

/// Only what was fetched is in a cache; what was loaded stays.
fn flush(program: &dyn Program, asked: &Section) -> Result<(), Refusal> {
    let (lists, responses) = match asked.str("type").unwrap_or("ANY").to_ascii_uppercase().as_str()
    {
        "ANY" => (true, true),
        "X509_CRL" | "X509CRL" => (true, false),
        "OCSP_RESPONSE" | "X509OCSP" => (false, true),
        // Of these nothing is fetched.
        "X509" | "X509CA" | "X509_AC" | "PUBKEY" => (false, false),
        other => return Err(Refusal::CertificateType(other.to_owned())),
    };
    program.flush(lists, responses);
    Ok(())
}
