//! Loading and unloading by clients: connections, authorities, pools, keys, secrets and certificates.

use std::fmt::Write;

use vici::{Section, Value};
use zeroize::Zeroizing;

use super::commands::result;
use super::convert;
use crate::config::loaded::Kind;
use crate::operator::Operator;

/// Answers the command `name`; `None` if it is none of these.
pub(super) async fn answer(operator: &Operator, name: &str, asked: &Section) -> Option<Section> {
    let answer = match name {
        "load-conn" => result(load(operator, Kind::Connection, asked).await),
        "unload-conn" => result(unload(operator, Kind::Connection, asked).await),
        "get-conns" => named(operator, Kind::Connection, "conns").await,
        "load-authority" => result(load(operator, Kind::Authority, asked).await),
        "unload-authority" => result(unload(operator, Kind::Authority, asked).await),
        "get-authorities" => named(operator, Kind::Authority, "authorities").await,
        "load-pool" => result(load(operator, Kind::Pool, asked).await),
        "unload-pool" => result(unload(operator, Kind::Pool, asked).await),
        "get-pools" => pools(operator, asked).await,
        "load-cert" => result(load_cert(operator, asked).await),
        "load-key" => load_key(operator, asked).await,
        "unload-key" => result(unload_key(operator, asked).await),
        "get-keys" => operator.loaded(|loaded| Section::new().list("keys", loaded.key_ids())).await,
        "load-token" => load_token(operator, asked).await,
        "load-shared" => result(load_shared(operator, asked).await),
        "unload-shared" => result(unload_shared(operator, asked).await),
        "get-shared" => {
            operator.loaded(|loaded| Section::new().list("keys", loaded.overlay.shared_ids())).await
        }
        "clear-creds" => {
            let cleared = operator
                .load_credential(
                    |loaded, _| {
                        loaded.clear_credentials();
                        Ok(())
                    },
                    |_, ()| (),
                )
                .await;
            operator.flush_fetched(true, true);
            result(cleared)
        }
        "flush-certs" => result(flush(operator, asked)),
        _ => return None,
    };
    Some(answer)
}

/// The one section of a message, and its name.
fn only(asked: &Section) -> Result<(&str, &Section), String> {
    let mut all = asked.iter();
    match (all.next(), all.next()) {
        (Some((name, Value::Section(section))), None) => Ok((name, section)),
        _ => Err("expected one section, with the name of what is to be loaded".to_owned()),
    }
}

async fn load(operator: &Operator, kind: Kind, asked: &Section) -> Result<(), String> {
    let (name, section) = only(asked)?;
    if kind == Kind::Connection && !operator.config().vici_updown {
        refuse_updown(section)?;
    }
    let (table, blobs) = convert::table(kind, section)?;
    operator.load_section(kind, name, table, blobs).await
}

/// Refuses a connection with an `updown`: whoever may use the socket could run any program as this process's user.
fn refuse_updown(connection: &Section) -> Result<(), String> {
    let Some(Value::Section(children)) = connection.get("children") else { return Ok(()) };
    for (child, options) in children.iter() {
        if let Value::Section(options) = options
            && options.get("updown").is_some()
        {
            return Err(format!(
                "`children.{child}.updown` is not accepted from VICI clients, because it runs a program: \
                 set `allow_updown = true` in [charon.plugins.vici] and restart the daemon, or put the connection into the file"
            ));
        }
    }
    Ok(())
}

async fn unload(operator: &Operator, kind: Kind, asked: &Section) -> Result<(), String> {
    let name = asked.str("name").ok_or("`name` is missing")?;
    operator.unload_section(kind, name).await
}

async fn named(operator: &Operator, kind: Kind, list: &str) -> Section {
    operator.loaded(|loaded| Section::new().list(list, loaded.overlay.names(kind))).await
}

/// The pools that clients have loaded, for what swanctl finds here it unloads unless it has just loaded it;
/// all of them if leases or one pool are asked for.
async fn pools(operator: &Operator, asked: &Section) -> Section {
    let leases = asked.str("leases") == Some("yes");
    let one = asked.str("name");
    let names: Vec<String> = operator
        .loaded(|loaded| loaded.overlay.names(Kind::Pool).map(str::to_owned).collect())
        .await;
    let all = operator.pools().list(one, leases);
    let shown =
        all.into_iter().filter(|pool| leases || one.is_some() || names.contains(&pool.name));
    shown.fold(Section::new(), |answer, pool| {
        let mut section = Section::new()
            .text("base", pool.base.to_string())
            .text("size", pool.size.to_string())
            .text("online", pool.online.to_string())
            .text("offline", pool.offline.to_string());
        if leases {
            let each = pool.leases.iter().enumerate();
            let list = each.fold(Section::new(), |list, (index, lease)| {
                let who = lease.identity.as_ref().map_or("%any".to_owned(), ToString::to_string);
                let status = if lease.online { "online" } else { "offline" };
                let entry = Section::new()
                    .text("address", lease.address.to_string())
                    .text("identity", who)
                    .text("status", status);
                list.section(index.to_string(), entry)
            });
            section = section.section("leases", list);
        }
        answer.section(pool.name, section)
    })
}

fn octets<'a>(asked: &'a Section, name: &str) -> Result<&'a [u8], String> {
    match asked.get(name) {
        Some(Value::Text(octets)) if !octets.is_empty() => Ok(octets),
        _ => Err(format!("`{name}` is missing")),
    }
}

async fn load_cert(operator: &Operator, asked: &Section) -> Result<(), String> {
    let kind = asked.str("type").ok_or("`type` is missing")?.to_ascii_uppercase();
    let flag = asked.str("flag").unwrap_or("NONE").to_ascii_uppercase();
    let data = octets(asked, "data")?;
    // Names that older clients have for both.
    let ca = match (kind.as_str(), flag.as_str()) {
        ("X509", "NONE" | "ANY") => Some(false),
        ("X509", "CA") | ("X509CA", _) => Some(true),
        ("X509_CRL" | "X509CRL", _) => None,
        ("X509", _) => return Err(format!("certificates with the flag {flag} are not supported")),
        _ => return Err(format!("certificates of type {kind} are not supported")),
    };
    operator
        .load_credential(
            |loaded, _| match ca {
                Some(ca) => loaded.add_certificates(data, ca),
                None => loaded.add_crl(data),
            },
            |_, ()| (),
        )
        .await
}

async fn load_key(operator: &Operator, asked: &Section) -> Section {
    let kind = asked.str("type").unwrap_or("any");
    let mut id = String::new();
    let loaded = match octets(asked, "data") {
        Ok(data) => {
            operator
                .load_credential(
                    |loaded, base| {
                        let keys = &*base.credentials.keys_from;
                        id = loaded.add_key(keys, data, kind)?;
                        Ok(id.clone())
                    },
                    |loaded, id| _ = loaded.remove_key(&id),
                )
                .await
        }
        Err(why) => Err(why),
    };
    match loaded {
        Ok(()) => result(Ok(())).text("id", id),
        Err(why) => result(Err(why)),
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
                    return result(Err(format!("`{name}` is not UTF-8 text")));
                }
            },
            _ => return result(Err(format!("`{name}` is a text"))),
        }
    }
    let texts = texts.iter_mut().map(|(name, text)| (*name, std::mem::take(&mut **text)));
    let table = convert::of_texts(texts, []);
    let mut id = String::new();
    let loaded = operator
        .load_credential(
            |loaded, base| {
                id = loaded.add_token(base, table)?;
                Ok(id.clone())
            },
            |loaded, id| _ = loaded.remove_key(&id),
        )
        .await;
    match loaded {
        Ok(()) => result(Ok(())).text("id", id),
        Err(why) => result(Err(why)),
    }
}

async fn unload_key(operator: &Operator, asked: &Section) -> Result<(), String> {
    let id = asked.str("id").ok_or("`id` is missing")?.to_ascii_lowercase();
    let remove = |loaded: &mut crate::config::loaded::Loaded, _: &_| match loaded.remove_key(&id) {
        true => Ok(()),
        false => Err(format!("no private key with the id {id} is loaded")),
    };
    operator.load_credential(remove, |_, ()| ()).await
}

/// A section of `[secrets]`, as the file has it.
async fn load_shared(operator: &Operator, asked: &Section) -> Result<(), String> {
    let kind = asked.str("type").ok_or("`type` is missing")?;
    let kind = match kind.to_ascii_uppercase().as_str() {
        "IKE" => "ike",
        "PPK" => "ppk",
        // A secret of one is that of the other.
        "EAP" | "XAUTH" => "eap",
        "NTLM" => "ntlm",
        _ => return Err(format!("secrets of type {kind} are not supported")),
    };
    let id = asked.str("id");
    if id.is_some_and(|id| !id.chars().all(|c| c.is_ascii_graphic() || c == ' ')) {
        return Err("`id` is not of printable characters".to_owned());
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
            .map_err(|_| "`owners` are not UTF-8 texts".to_owned())?,
        Some(_) => return Err("`owners` is a list".to_owned()),
    };
    let owners = (!owners.is_empty()).then_some(("id", owners));
    let table = convert::of_texts([("secret", std::mem::take(&mut *secret))], owners);
    operator
        .load_credential(
            |loaded, base| {
                let (key, before) = loaded.overlay.put_shared(id, kind, table);
                match loaded.check_shared(base, &key) {
                    Ok(()) => Ok((key, before)),
                    Err(why) => {
                        undo_shared(loaded, key, before);
                        Err(why)
                    }
                }
            },
            |loaded, (key, before)| undo_shared(loaded, key, before),
        )
        .await
}

fn undo_shared(
    loaded: &mut crate::config::loaded::Loaded,
    key: String,
    before: Option<crate::config::loaded::LoadedSecret>,
) {
    match before {
        Some(before) => loaded.overlay.restore_shared(key, before),
        None => _ = loaded.overlay.remove_shared(&key),
    }
}

async fn unload_shared(operator: &Operator, asked: &Section) -> Result<(), String> {
    let id = asked.str("id").ok_or("`id` is missing")?;
    let remove = |loaded: &mut crate::config::loaded::Loaded, _: &_| match loaded
        .overlay
        .remove_shared(id)
    {
        Some(secret) => Ok(secret),
        None => Err(format!("no secret with the id {id:?} is loaded")),
    };
    let undo = |loaded: &mut crate::config::loaded::Loaded, secret| {
        loaded.overlay.restore_shared(id.to_owned(), secret);
    };
    operator.load_credential(remove, undo).await
}

/// Only what was fetched is in a cache; what was loaded stays.
fn flush(operator: &Operator, asked: &Section) -> Result<(), String> {
    let (lists, responses) = match asked.str("type").unwrap_or("ANY").to_ascii_uppercase().as_str()
    {
        "ANY" => (true, true),
        "X509_CRL" | "X509CRL" => (true, false),
        "OCSP_RESPONSE" | "X509OCSP" => (false, true),
        // Of these nothing is fetched.
        "X509" | "X509CA" | "X509_AC" | "PUBKEY" => (false, false),
        other => return Err(format!("certificates of type {other} are not supported")),
    };
    operator.flush_fetched(lists, responses);
    Ok(())
}
