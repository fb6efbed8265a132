//! `[connections.<conn>.children.<name>]`.

use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{Action, ChildConfig, FailureShunt};
use ike_proto::dataplane::{HwOffload, Mode};

use super::charon::set;
use super::diagnostic::Report;
use super::section::{Section, Unsupported, join};
use super::values;

/// Options of swanctl.conf(5) that do nothing here yet.
const UNSUPPORTED: &[Unsupported] = &[
    ("ah_proposals", None),
    ("copy_df", None),
    ("copy_dscp", None),
    ("copy_ecn", None),
    ("hostaccess", Some("no")),
    ("icmp", Some("no")),
    ("if_id_in", Some("0")),
    ("if_id_out", Some("0")),
    ("interface", None),
    ("ipcomp", Some("no")),
    ("label", None),
    ("label_mode", None),
    ("mark_in", Some("0")),
    ("mark_in_sa", Some("no")),
    ("mark_out", Some("0")),
    ("per_cpu_sas", Some("no")),
    ("policies", Some("yes")),
    ("policies_fwd_out", Some("no")),
    ("reqid", Some("0")),
    ("set_mark_in", Some("0")),
    ("set_mark_out", Some("0")),
    ("sha256_96", Some("no")),
    ("tfc_padding", Some("0")),
    ("updown", None),
];

/// Reads one child.
pub(crate) fn read(name: &str, mut s: Section<'_>, report: &mut Report<'_>) -> ChildConfig {
    let mut c = ChildConfig::new(name);
    set(
        &mut c.esp_proposals,
        values::proposals(&mut s, "esp_proposals", values::Protocol::Esp, report),
    );
    set(&mut c.local_ts, values::selectors(&mut s, "local_ts", report));
    set(&mut c.remote_ts, values::selectors(&mut s, "remote_ts", report));
    set(&mut c.mode, mode(&mut s, report));
    times(&mut s, &mut c, report);
    let [soft, hard, rand] = volume(&mut s, ["rekey_bytes", "life_bytes", "rand_bytes"], report);
    (c.limits.soft_bytes, c.limits.hard_bytes, c.rand_bytes) = (soft, hard, rand);
    let [soft, hard, rand] =
        volume(&mut s, ["rekey_packets", "life_packets", "rand_packets"], report);
    (c.limits.soft_packets, c.limits.hard_packets, c.rand_packets) = (soft, hard, rand);
    set(&mut c.start_action, action(&mut s, "start_action", "none", report));
    set(&mut c.close_action, action(&mut s, "close_action", "none", report));
    set(&mut c.dpd_action, action(&mut s, "dpd_action", "clear", report));
    let shunts = [
        ("passthrough", FailureShunt::Passthrough),
        ("drop", FailureShunt::Drop),
        ("reject", FailureShunt::Reject),
        ("none", FailureShunt::Passthrough),
    ];
    set(&mut c.failure_shunt, s.choice("failureshunt", &shunts, report));
    set(&mut c.inactivity, s.duration("inactivity", report));
    set(&mut c.priority, s.number("priority", 0, u32::MAX, report));
    set(&mut c.replay_window, s.number("replay_window", 0, 65_536, report));
    let offload = [
        ("no", HwOffload::No),
        ("crypto", HwOffload::Crypto),
        ("packet", HwOffload::Packet),
        ("auto", HwOffload::Auto),
        ("false", HwOffload::No),
    ];
    let processing = Arc::make_mut(&mut c.processing);
    set(&mut processing.hw_offload, s.choice("hw_offload", &offload, report));
    s.finish(UNSUPPORTED, report);
    c
}

fn mode(s: &mut Section<'_>, report: &mut Report<'_>) -> Option<Mode> {
    let modes = [
        ("tunnel", Some(Mode::Tunnel)),
        ("transport", Some(Mode::Transport)),
        ("transport_proxy", None),
        ("beet", None),
        ("pass", None),
        ("drop", None),
    ];
    let word = s.text("mode", "\"tunnel\" or \"transport\"", report)?;
    if modes.iter().any(|(name, mode)| *name == word.text && mode.is_none()) {
        let message = format!("`{} = {:?}` is not supported yet", join(&s.path, "mode"), word.text);
        report.expected(word.offset, message, "\"tunnel\" or \"transport\"");
        return None;
    }
    s.choice("mode", &[("tunnel", Mode::Tunnel), ("transport", Mode::Transport)], report)
}

/// An action; `none` is spelt `nothing`, which differs between options.
fn action(
    s: &mut Section<'_>,
    key: &'static str,
    nothing: &'static str,
    report: &mut Report<'_>,
) -> Option<Action> {
    s.choice(
        key,
        &[(nothing, Action::None), ("trap", Action::Trap), ("start", Action::Start)],
        report,
    )
}

/// The times of a Child SA, which default to each other.
fn times(s: &mut Section<'_>, c: &mut ChildConfig, report: &mut Report<'_>) {
    let rekey = s.duration("rekey_time", report);
    let life = s.duration("life_time", report);
    let rand = s.duration("rand_time", report);
    let (rekey, life) = match (rekey, life) {
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
fn volume(s: &mut Section<'_>, keys: [&'static str; 3], report: &mut Report<'_>) -> [u64; 3] {
    let [soft, hard, rand] = keys.map(|key| s.size(key, report));
    let (soft, hard) = match (soft, hard) {
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
