//! `[connections.<conn>.children.<name>]`.

use std::time::Duration;

use ike_proto::config::{Action, ChildConfig, FailureShunt, ShuntConfig, TsSpec};
use ike_proto::dataplane::{Mode, TrafficSelector};

use super::charon::set;
use super::{packets, values};
use crate::diagnostic::Report;
use crate::host::Host;
use crate::tree::{Section, Unsupported, join};

/// Options of swanctl.conf(5) that do nothing here yet.
const UNSUPPORTED: &[Unsupported] = &[
    ("ah_proposals", None),
    ("ipcomp", Some("no")),
    ("label", None),
    ("label_mode", Some("system")),
];

/// The kind of a child.
pub(crate) enum Child {
    /// Negotiated with a peer.
    Negotiated(Box<ChildConfig>),
    /// A policy alone; `None` if it is not to be installed.
    Shunt(Option<Box<ShuntConfig>>),
}

/// `mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Negotiated(Mode),
    Pass,
    Drop,
}

/// Reads one child of `connection`; with the defaults of this daemon's `own` format, or those of swanctl.conf(5).
pub(crate) fn read(
    connection: &str,
    name: &str,
    own: bool,
    host: &dyn Host,
    mut s: Section<'_>,
    report: &mut Report,
) -> Child {
    let mut c = ChildConfig::new(name);
    set(
        &mut c.esp_proposals,
        values::proposals(&mut s, "esp_proposals", values::Protocol::Esp, host, report),
    );
    set(&mut c.local_ts, values::selectors(&mut s, "local_ts", report));
    set(&mut c.remote_ts, values::selectors(&mut s, "remote_ts", report));
    let kind = mode(&mut s, report).unwrap_or(Kind::Negotiated(c.mode));
    if let Kind::Negotiated(mode) = kind {
        c.mode = mode;
    }
    times(&mut s, &mut c, report);
    let [soft, hard, rand] = volume(&mut s, ["rekey_bytes", "life_bytes", "rand_bytes"], report);
    (c.limits.soft_bytes, c.limits.hard_bytes, c.rand_bytes) = (soft, hard, rand);
    let [soft, hard, rand] =
        volume(&mut s, ["rekey_packets", "life_packets", "rand_packets"], report);
    (c.limits.soft_packets, c.limits.hard_packets, c.rand_packets) = (soft, hard, rand);
    set(&mut c.start_action, action(&mut s, "start_action", "none", report));
    if own {
        (c.close_action, c.dpd_action) = (c.start_action, c.start_action);
    }
    set(&mut c.close_action, action(&mut s, "close_action", "none", report));
    set(&mut c.dpd_action, action(&mut s, "dpd_action", "clear", report));
    let shunts = [
        ("passthrough", FailureShunt::Passthrough),
        ("drop", FailureShunt::Drop),
        ("reject", FailureShunt::Reject),
        ("none", FailureShunt::Passthrough),
    ];
    set(&mut c.failure_shunt, s.choice("failureshunt", &shunts, report));
    // In swanctl.conf's syntax, only traps are held: a child with `start_action = start` lets its traffic pass until it is up.
    c.hold = own || c.start_action == Action::Trap;
    set(&mut c.hold, s.switch("hold", report));
    set(&mut c.inactivity, s.duration("inactivity", report));
    c.updown =
        s.text("updown", "a program, or a line for the shell", report).map(|t| t.text.to_owned());
    set(&mut c.sha256_96, s.switch("sha256_96", report));
    set(&mut c.hostaccess, s.switch("hostaccess", report));
    set(&mut c.priority, s.number("priority", 0, u32::MAX, report));
    set(&mut c.replay_window, s.number("replay_window", 0, 4096, report));
    packets::read(&mut s, &mut c, report);
    let shunt = match kind {
        Kind::Negotiated(_) => None,
        Kind::Pass | Kind::Drop => Some(shunt(connection, &c, kind == Kind::Drop, &s, report)),
    };
    s.finish(UNSUPPORTED, report);
    match shunt {
        Some(shunt) => Child::Shunt(shunt.map(Box::new)),
        None => Child::Negotiated(Box::new(c)),
    }
}

fn mode(s: &mut Section<'_>, report: &mut Report) -> Option<Kind> {
    const KNOWN: &str = "\"tunnel\", \"transport\", \"iptfs\", \"pass\" or \"drop\"";
    let word = s.text("mode", KNOWN, report)?;
    let why = match word.text {
        "beet" => "no notify is registered to agree on it with a peer",
        "transport_proxy" => "Mobile IPv6 is not supported",
        _ => "",
    };
    if !why.is_empty() {
        let message = format!("`{} = {:?}`: {why}", join(&s.path, "mode"), word.text);
        report.expected(word.offset, message, KNOWN);
        return None;
    }
    let modes = [
        ("tunnel", Kind::Negotiated(Mode::Tunnel)),
        ("transport", Kind::Negotiated(Mode::Transport)),
        ("iptfs", Kind::Negotiated(Mode::Iptfs)),
        ("pass", Kind::Pass),
        ("drop", Kind::Drop),
    ];
    s.choice("mode", &modes, report)
}

/// The policy of a child with `mode = pass` or `drop`, if `start_action` says that it is to be installed.
fn shunt(
    connection: &str,
    c: &ChildConfig,
    drop: bool,
    s: &Section<'_>,
    report: &mut Report,
) -> Option<ShuntConfig> {
    let mode = if drop { "drop" } else { "pass" };
    let mut wrong = |key: &'static str, what: &str, expected: &str| {
        let message = format!("`{}` {what} with `mode = {mode:?}`", join(&s.path, key));
        report.expected(s.place(key), message, expected);
    };
    if c.start_action == Action::Start {
        wrong("start_action", "cannot be \"start\"", "\"trap\" or \"none\"");
    }
    // There is no peer whose address would stand for it.
    let addresses = "subnets or ranges of addresses";
    let mut fixed = |key: &'static str, specs: &[TsSpec]| -> Vec<TrafficSelector> {
        let all: Vec<_> = specs.iter().filter_map(|spec| fixed(*spec)).collect();
        if all.len() < specs.len() {
            wrong(key, "cannot be \"dynamic\"", addresses);
        }
        all
    };
    let local_ts = fixed("local_ts", &c.local_ts);
    let remote_ts = fixed("remote_ts", &c.remote_ts);
    let chosen = c.unique;
    for (key, scope) in [
        ("mark_in", chosen.mark_in),
        ("mark_out", chosen.mark_out),
        ("if_id_in", chosen.if_id_in),
        ("if_id_out", chosen.if_id_out),
    ] {
        if scope.is_some() {
            wrong(key, "cannot be chosen", "a number");
        }
    }
    (c.start_action == Action::Trap).then(|| ShuntConfig {
        connection: connection.to_owned(),
        child: c.name.clone(),
        drop,
        local_ts,
        remote_ts,
        priority: c.priority,
        processing: c.processing.clone(),
    })
}

fn fixed(spec: TsSpec) -> Option<TrafficSelector> {
    match spec {
        TsSpec::Fixed(ts) => Some(ts),
        TsSpec::Dynamic { .. } => None,
    }
}

/// An action; `none` is spelt `nothing`, which differs between options. As in strongSwan each option takes the words of
/// the others as well: `restart` is what swanctl.conf(5) has for `dpd_action`.
fn action(
    s: &mut Section<'_>,
    key: &'static str,
    nothing: &'static str,
    report: &mut Report,
) -> Option<Action> {
    s.choice(
        key,
        &[
            (nothing, Action::None),
            ("trap", Action::Trap),
            ("start", Action::Start),
            ("restart", Action::Start),
            ("none", Action::None),
            ("clear", Action::None),
        ],
        report,
    )
}

/// The times of a Child SA, which default to each other.
fn times(s: &mut Section<'_>, c: &mut ChildConfig, report: &mut Report) {
    let rekey = s.duration("rekey_time", report);
    let life = s.duration("life_time", report);
    let rand = s.duration("rand_time", report);
    let (rekey, life) = match (rekey, life) {
        (Some(rekey), Some(life)) if rekey == life && !life.is_zero() => {
            let sooner = rekey - rekey / 10;
            let message = format!(
                "`{}` leaves no time after `rekey_time`, so that the child is rekeyed after {} s: make it longer",
                join(&s.path, "life_time"),
                sooner.as_secs_f64()
            );
            report.warn(Some(s.place("life_time")), message);
            (sooner, life)
        }
        (Some(rekey), Some(life)) => (rekey, life),
        (Some(rekey), None) => (rekey, rekey + rekey / 10),
        (None, Some(life)) => (life - life / 10, life),
        (None, None) => (c.rekey_time, c.life_time),
    };
    if !life.is_zero() && life < rekey {
        let message = format!("`{}` is shorter than `rekey_time`", join(&s.path, "life_time"));
        report.expected(
            s.place("life_time"),
            message,
            format!("at least {} s", rekey.as_secs_f64()),
        );
    }
    (c.rekey_time, c.life_time) = (rekey, life);
    c.rand_time = rand.unwrap_or(life.saturating_sub(rekey));
    if c.rand_time >= rekey && !rekey.is_zero() {
        if rand.is_some() {
            let message =
                format!("`{}` leaves no time before the rekeying", join(&s.path, "rand_time"));
            report.expected(
                s.place("rand_time"),
                message,
                format!("less than {} s", rekey.as_secs_f64()),
            );
        }
        c.rand_time = Duration::min(c.rand_time, rekey / 2);
    }
}

/// Soft limit, hard limit and randomization of bytes or packets, which default to each other.
fn volume(s: &mut Section<'_>, keys: [&'static str; 3], report: &mut Report) -> [u64; 3] {
    let [soft, hard, rand] = keys.map(|key| s.size(key, report));
    let (soft, hard) = match (soft, hard) {
        (Some(soft), Some(hard)) if soft == hard && hard != 0 => {
            let sooner = (soft - soft.div_ceil(10)).max(1);
            let message = format!(
                "`{}` leaves nothing after `{}`, so that the child is rekeyed after {sooner}: make it more",
                join(&s.path, keys[1]),
                keys[0]
            );
            report.warn(Some(s.place(keys[1])), message);
            (sooner, hard)
        }
        (Some(soft), Some(hard)) => (soft, hard),
        (Some(soft), None) => (soft, soft.saturating_add(soft / 10)),
        (None, Some(hard)) => (hard - hard / 10, hard),
        (None, None) => (0, 0),
    };
    if hard != 0 && hard < soft {
        let message = format!("`{}` is less than `{}`", join(&s.path, keys[1]), keys[0]);
        report.expected(s.place(keys[1]), message, format!("at least {soft}"));
    }
    let given = rand.is_some();
    let rand = rand.unwrap_or(hard.saturating_sub(soft));
    if soft != 0 && rand >= soft {
        if given {
            let message = format!("`{}` leaves nothing of `{}`", join(&s.path, keys[2]), keys[0]);
            report.expected(s.place(keys[2]), message, format!("less than {soft}"));
        }
        return [soft, hard, soft / 2];
    }
    [soft, hard, rand]
}

#[cfg(test)]
mod tests {
    use ike_proto::config::Action;
    use ike_proto::dataplane::HwOffload;

    /// A configuration whose one child has `words`.
    fn with(words: &str) -> String {
        format!(
            "[connections.c]\nchildren.net = {{ {words} }}\n[secrets.ike]\nsecret = 'x'\n\
             [connections.c.local]\nauth = 'psk'\n[connections.c.remote]\nauth = 'psk'\n"
        )
    }

    /// Fault: in [`super::UNSUPPORTED`], leave out a value, or give `label` one.
    #[test]
    fn an_unsupported_option_may_have_strongswans_default() {
        for words in ["ipcomp = 'no'", "label_mode = 'system'"] {
            assert!(crate::parse(&with(words)).is_ok(), "{words}");
        }
        for words in
            ["ipcomp = 'yes'", "label_mode = 'simple'", "label = 'system'", "ah_proposals = 'no'"]
        {
            let mistakes = crate::parse(&with(words)).expect_err(words);
            assert!(mistakes[0].message.contains("is not supported yet"), "{words}: {mistakes:?}");
        }
    }

    /// Fault: in `action`, leave out `restart`; in packets.rs, leave out `yes`.
    #[test]
    fn words_of_swanctl_conf_are_taken() {
        for (words, dpd, offload) in [
            ("dpd_action = 'restart'", Action::Start, HwOffload::No),
            ("dpd_action = 'none'", Action::None, HwOffload::No),
            ("dpd_action = 'clear'", Action::None, HwOffload::No),
            ("hw_offload = 'yes'", Action::None, HwOffload::Crypto),
        ] {
            let config = crate::parse(&with(words));
            let config = config.unwrap_or_else(|wrong| panic!("{words}: {wrong:?}"));
            let child = &config.connections[0].config.children[0];
            assert_eq!((child.dpd_action, child.processing.hw_offload), (dpd, offload), "{words}");
        }
    }
}
