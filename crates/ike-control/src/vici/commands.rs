//! The commands of clients.

use std::io;
use std::time::Duration;

use ike_config::HostSpec;
use ike_tokio::{PAGE, Target};
use vici::Section;

use super::log::Log;
use super::refusal::Refusal;
use super::session::{LIST_CONN, LIST_SA, Session};
use super::{list, load, show};
use crate::error::OperatorError;
use crate::operator::{Operator, Reloaded};
use crate::program::About;

/// Answers the command `name`; `None` if there is no such command. The error ends the connection.
pub(super) async fn answer(
    session: &Session,
    name: &str,
    asked: &Section,
) -> io::Result<Option<Section>> {
    if let Some(answer) = load::answer(&session.operator, name, asked).await {
        return Ok(Some(answer));
    }
    // What was loaded is in force before anything is done with it.
    if let Err(why) = session.operator.settled().await {
        return Ok(Some(refused(why)));
    }
    if let Some(answer) = show::answer(session, name, asked).await? {
        return Ok(Some(answer));
    }
    let answer = match name {
        "version" => version(session.operator.program().about()),
        "stats" => stats(session).await,
        "reload-settings" => {
            let reloaded = session.operator.reload_file(session.file.as_deref(), false).await;
            told(reloaded.map(Reloaded::all))
        }
        "initiate" => initiate(session, asked).await?,
        "terminate" => terminate(session, asked).await?,
        "rekey" => rekey(&session.operator, asked).await,
        "redirect" => redirect(&session.operator, asked).await,
        "list-sas" => list_sas(session, asked).await?,
        "list-conns" => list_conns(session, asked).await?,
        "install" => install(&session.operator, asked).await,
        "uninstall" => uninstall(&session.operator, asked).await,
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

fn version(about: About) -> Section {
    let system = rustix::system::uname();
    Section::new()
        .text("daemon", about.name)
        .text("version", about.version)
        .text("sysname", system.sysname().to_bytes())
        .text("release", system.release().to_bytes())
        .text("machine", system.machine().to_bytes())
}

async fn stats(session: &Session) -> Section {
    let (total, half_open) = session.operator.handle().sa_counts().await.unwrap_or_default();
    let seconds = session.since.elapsed().unwrap_or_default().as_secs();
    let since = session.since.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let uptime = Section::new()
        .text("running", format!("{seconds} seconds"))
        .text("since", format!("{} seconds after 1970 began (UTC)", since.as_secs()));
    let sas =
        Section::new().text("total", total.to_string()).text("half-open", half_open.to_string());
    Section::new().section("uptime", uptime).section("ikesas", sas)
}

async fn initiate(session: &Session, asked: &Section) -> io::Result<Section> {
    let target =
        Target { ike: owned(asked, "ike"), child: owned(asked, "child"), ..Target::default() };
    let operator = session.operator.clone();
    let work = async move { operator.up(&target).await.map(|()| 1) };
    let outcome = under_way(session, asked, work).await?;
    Ok(result(outcome.map(drop)))
}

async fn terminate(session: &Session, asked: &Section) -> io::Result<Section> {
    let target = match target(asked) {
        Ok(target) => target,
        Err(why) => return Ok(refused(why)),
    };
    let matches = session.operator.matches(&target).await.unwrap_or_default();
    let operator = session.operator.clone();
    let patience = match patience(asked) {
        Ok(patience) => patience,
        Err(why) => return Ok(refused(why)),
    };
    let force = asked.str("force") == Some("yes");
    let work = async move {
        match (force, patience) {
            (false, _) => operator.down(&target).await,
            (true, Patience::For(limit)) => {
                let limit = limit.saturating_sub(MARGIN);
                match tokio::time::timeout(limit, operator.down(&target)).await {
                    Ok(outcome) => outcome,
                    Err(_) => operator.forget(&target).await,
                }
            }
            (true, _) => operator.forget(&target).await,
        }
    };
    let outcome = under_way(session, asked, work).await?;
    let terminated = outcome.as_ref().copied().unwrap_or_default();
    Ok(result(outcome.map(drop))
        .text("matches", matches.to_string())
        .text("terminated", terminated.to_string()))
}

/// Answers as soon as it is begun, as strongSwan does.
async fn rekey(operator: &Operator, asked: &Section) -> Section {
    let outcome = match target(asked) {
        Ok(target) => match operator.matches(&target).await {
            Ok(count) => Ok((target, count)),
            Err(why) => Err(Refusal::from(why)),
        },
        Err(why) => Err(why),
    };
    match outcome {
        Ok((target, count)) => {
            let (operator, reauth) = (operator.clone(), asked.str("reauth") == Some("yes"));
            tokio::spawn(async move {
                let outcome = match reauth {
                    true => operator.reauthenticate(&target).await,
                    false => operator.rekey(&target).await,
                };
                if let Err(error) = outcome {
                    tracing::warn!(%error, "rekey, as a VICI client wanted");
                }
            });
            success().text("matches", count.to_string())
        }
        Err(why) => refused(why).text("matches", "0"),
    }
}

/// Answers once the clients have heard.
async fn redirect(operator: &Operator, asked: &Section) -> Section {
    let gateway = asked.str("gateway").map(str::parse::<std::net::IpAddr>);
    // An address, a network or a range.
    let peer = asked.str("peer-ip").map(|text| match HostSpec::parse(text) {
        Some(HostSpec::Address(spec)) => Ok(spec),
        Some(HostSpec::Name(_)) | None => Err(()),
    });
    let (Some(Ok(gateway)), Ok(peer)) = (gateway, peer.transpose()) else {
        let why = Refusal::Form("gateway and peer-ip", "addresses");
        return refused(why).text("matches", "0");
    };
    let outcome = match target(asked) {
        Ok(target) => {
            let redirected = operator.redirect(&target, gateway, peer, asked.str("peer-id"));
            redirected.await.map_err(Refusal::from)
        }
        Err(why) => Err(why),
    };
    let matches = outcome.as_ref().copied().unwrap_or_default();
    result(outcome.map(drop)).text("matches", matches.to_string())
}

async fn list_sas(session: &Session, asked: &Section) -> io::Result<Section> {
    let numbers = number(asked, "ike-id").and_then(|ike| Ok((ike, number(asked, "child-id")?)));
    let (ike_id, child_id) = match numbers {
        Ok(numbers) => numbers,
        Err(why) => return Ok(refused(why)),
    };
    let (ike, child) = (asked.str("ike"), asked.str("child"));
    let handle = session.operator.handle();
    let ids = match handle.ids().await {
        Ok(ids) => ids,
        Err(why) => return Ok(refused(OperatorError::from(why))),
    };
    let ids: Vec<_> = ids.into_iter().filter(|id| ike_id.is_none_or(|ike| ike == id.0)).collect();
    // A page is asked for when the client has taken the one before, or nearly so.
    for page in ids.chunks(PAGE) {
        let views = match handle.views(page).await {
            Ok(views) => views,
            Err(why) => return Ok(refused(OperatorError::from(why))),
        };
        for view in views {
            if ike.is_some_and(|ike| ike != view.status.connection) {
                continue;
            }
            let children = list::child_sas(&view, |name, id| {
                child.is_none_or(|child| child == name)
                    && child_id.is_none_or(|wanted| wanted == id)
            });
            if children.is_empty() && (child.is_some() || child_id.is_some()) {
                continue;
            }
            let sa = list::ike_sa(&view).section("child-sas", children);
            let name = list::key(&view.status.connection);
            session.outlet.event(LIST_SA, Section::new().section(name, sa)).await?;
        }
    }
    Ok(Section::new())
}

async fn list_conns(session: &Session, asked: &Section) -> io::Result<Section> {
    let config = session.operator.config();
    let waiting = match session.operator.may_wait() {
        false => Vec::new(),
        true => {
            let views = session.operator.list().await.unwrap_or_default();
            session.operator.waiting(&views).await
        }
    };
    for connection in &config.endpoint.connections {
        if asked.str("ike").is_some_and(|ike| ike != connection.name) {
            continue;
        }
        let Some(hosts) = config.hosts.get(&connection.name) else { continue };
        let described = list::connection(connection, session.operator.program(), hosts, &waiting);
        let section = Section::new().section(list::key(&connection.name), described);
        session.outlet.event(LIST_CONN, section).await?;
    }
    Ok(Section::new())
}

async fn install(operator: &Operator, asked: &Section) -> Section {
    match asked.str("child") {
        Some(child) => result(operator.install(asked.str("ike"), child).await),
        None => refused(Refusal::Missing("child")),
    }
}

async fn uninstall(operator: &Operator, asked: &Section) -> Section {
    match asked.str("child") {
        Some(child) => result(operator.uninstall(asked.str("ike"), child).await),
        None => refused(Refusal::Missing("child")),
    }
}

/// How long a client waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    Endless,
    None,
    For(Duration),
}

/// Octets of warnings in an answer.
const WARNINGS: usize = 128 << 10;
/// Of the time that a client gives a peer to answer, this end needs so much.
const MARGIN: Duration = Duration::from_millis(50);

fn patience(asked: &Section) -> Result<Patience, Refusal> {
    match asked.str("timeout").map(str::parse::<i64>) {
        None | Some(Ok(0)) => Ok(Patience::Endless),
        Some(Ok(-1)) => Ok(Patience::None),
        Some(Ok(millis)) if millis > 0 => {
            Ok(Patience::For(Duration::from_millis(millis.unsigned_abs())))
        }
        Some(_) => Err(Refusal::Form("timeout", "a number of milliseconds, 0 or -1")),
    }
}

/// Does `work` as long as the client wants to wait, in a task of its own, and tells what happens meanwhile.
async fn under_way(
    session: &Session,
    asked: &Section,
    work: impl Future<Output = Result<usize, OperatorError>> + Send + 'static,
) -> io::Result<Result<usize, Refusal>> {
    let timeout = match patience(asked) {
        Ok(Patience::Endless) => None,
        Ok(Patience::None) => {
            tokio::spawn(work);
            return Ok(Ok(0));
        }
        Ok(Patience::For(limit)) => Some(limit),
        Err(why) => return Ok(Err(why)),
    };
    // The work goes on if the client does not listen any more.
    let task = tokio::spawn(work);
    let waiting = async {
        let outcome =
            async { task.await.unwrap_or(Err(OperatorError::Task)).map_err(Refusal::from) };
        match timeout {
            None => outcome.await,
            Some(limit) => match tokio::time::timeout(limit, outcome).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Refusal::Continues(limit)),
            },
        }
    };
    let quiet =
        asked.str("loglevel").and_then(|level| level.parse::<i64>().ok()).is_some_and(|l| l < 1);
    if quiet {
        return Ok(waiting.await);
    }
    Log { outlet: &session.outlet, operator: &session.operator }.during(waiting).await
}

/// The SAs that `terminate` and `rekey` are about.
fn target(asked: &Section) -> Result<Target, Refusal> {
    Ok(Target {
        name: None,
        ike: owned(asked, "ike"),
        child: owned(asked, "child"),
        ike_id: number(asked, "ike-id")?,
        child_id: number(asked, "child-id")?,
    })
}

fn owned(asked: &Section, name: &str) -> Option<String> {
    asked.str(name).map(str::to_owned)
}

fn number(asked: &Section, name: &'static str) -> Result<Option<u64>, Refusal> {
    let text = asked.str(name).map(str::parse);
    text.transpose().map_err(|_| Refusal::Form(name, "a number"))
}

/// The answer of a command without other values.
pub(super) fn result(outcome: Result<(), impl Into<Refusal>>) -> Section {
    match outcome {
        Ok(()) => success(),
        Err(why) => refused(why),
    }
}

/// The answer of a command that may have warnings: a list of sentences beside what charon answers. A message holds so
/// many; the log has all of them.
pub(super) fn told(outcome: Result<Vec<String>, impl Into<Refusal>>) -> Section {
    let mut room = WARNINGS;
    let fits = |warning: &String| {
        let fits = warning.len() < room;
        room = room.saturating_sub(warning.len());
        fits
    };
    match outcome {
        Ok(none) if none.is_empty() => success(),
        Ok(warnings) => success().list("warnings", warnings.into_iter().take_while(fits)),
        Err(why) => refused(why),
    }
}

/// The answer of a command that has succeeded.
pub(super) fn success() -> Section {
    Section::new().text("success", "yes")
}

/// The answer of a command that is refused or has failed.
pub(super) fn refused(why: impl Into<Refusal>) -> Section {
    failed(&why.into().to_string())
}

fn failed(why: &str) -> Section {
    Section::new().text("success", "no").text("errmsg", ascii(why))
}

/// `text` in printable ASCII: swanctl shows no other text, and an error message that is not shown helps nobody.
fn ascii(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' '..='~' => shown.push(c),
            '\u{2026}' => shown.push_str("..."),
            '\u{2018}' | '\u{2019}' => shown.push('\''),
            '\u{201c}' | '\u{201d}' => shown.push('"'),
            '\u{2013}' | '\u{2014}' => shown.push('-'),
            c if c.is_whitespace() => shown.push(' '),
            _ => shown.push('?'),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    /// Fault: give `why` to `errmsg` as it is.
    #[test]
    fn error_messages_are_what_swanctl_shows() {
        let section = super::failed("expected \u{2018}keyid:\u{2026}\u{2019}\nM\u{fc}ller");
        assert_eq!(section.str("errmsg"), Some("expected 'keyid:...' M?ller"));
    }
}
