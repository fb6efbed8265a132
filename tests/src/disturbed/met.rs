//! What can happen in a life, so that the lives that have met it can be counted.

use super::Life;
use crate::pair::{A, B};

macro_rules! met {
    ($($(#[doc = $doc:literal])* $name:ident => $words:literal,)*) => {
        /// Something that a life has met.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Met {
            $($(#[doc = $doc])* $name,)*
        }

        impl Met {
            /// All there is.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// In words.
            pub fn words(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }
        }
    };
}

met! {
    /// Datagrams lost, 5 % at least.
    Loss => "loss of datagrams",
    /// Datagrams twice, 5 % at least.
    Duplication => "duplicates",
    /// Datagrams out of order.
    Reordering => "reordering",
    /// No datagram came through for a while.
    Outage => "outage of the network",
    /// A suspend; the monotonic clock counted it.
    SuspendCounted => "suspend, clock goes on",
    /// A suspend; the monotonic clock stood still.
    SuspendStood => "suspend, clock stands still",
    /// A suspend past the hard lifetime of a child.
    SuspendPastLife => "suspend past hard lifetimes",
    /// Datagrams waited in the sockets of a suspended host.
    SuspendQueued => "suspend, datagrams queued",
    /// Datagrams to a suspended host were lost.
    SuspendLost => "suspend, datagrams lost",
    /// Another address with MOBIKE.
    RoamMobike => "roaming with MOBIKE",
    /// Another address without MOBIKE.
    RoamPlain => "roaming without MOBIKE",
    /// No address for a while.
    Offline => "no address for a while",
    /// The address changed while an attempt was in flight.
    RoamAttempt => "roaming with an attempt in flight",
    /// The address changed, and the engine was not told.
    RoamUntold => "roaming, engine not told",
    /// A NAT forgot its mappings.
    Rebinding => "NAT forgets its mappings",
    /// Several shards.
    Shards => "several shards",
    /// One shard had something to say to another.
    Notices => "notices between shards",
    /// A crash that left nothing.
    CrashMachine => "crash, data plane gone",
    /// A crash that left the states of the kernel.
    CrashProgram => "crash, kernel states kept",
    /// The initiator crashed.
    CrashInitiator => "crash of the initiator",
    /// The responder crashed.
    CrashResponder => "crash of the responder",
    /// The wall clock stepped forwards, by up to 30 years.
    ClockForwards => "wall clock steps forwards",
    /// The wall clock stepped backwards, by up to 30 years.
    ClockBackwards => "wall clock steps backwards",
    /// The clock was wrong for certificates.
    ClockCertificates => "wall clock wrong for certificates",
    /// A command of the data plane failed.
    PlaneFault => "data plane fails",
    /// A command of the data plane was done, and reported as failed.
    PlaneAnswerLost => "data plane's answer lost",
    /// A data plane that takes its time.
    PlaneSlow => "slow data plane",
    /// A reauthentication was lost to an outage.
    ReauthenticationLost => "reauthentication lost",
    /// A reauthentication.
    Reauthentication => "reauthentication",
    /// A hard limit was reached.
    HardLimit => "hard limit of the kernel",
    /// A hard limit was reached while the child was being rekeyed.
    HardInFlight => "hard limit while a rekey is in flight",
    /// Hard lifetimes close to soft ones.
    HardTime => "hard lifetimes close to soft ones",
    /// A limit of octets or packets was reached by traffic.
    Limits => "limits reached by traffic",
    /// Seven additional key exchanges.
    SevenAdditional => "seven additional key exchanges",
    /// Key exchanges that take their time.
    SlowExchanges => "slow key exchanges",
    /// Both ends rekeyed the same at once.
    Collision => "simultaneous rekeys",
    /// Both ends want the children up.
    BothWant => "both ends want the children",
    /// Children that wait for packets.
    Traps => "traps",
    /// `dpd_action = none`.
    NoDpdAction => "children wanted without a dpd_action",
    /// A child was deleted by the peer.
    DeletedChild => "child deleted by the peer",
    /// An IKE SA was deleted by the peer.
    DeletedIke => "IKE SA deleted by the peer",
    /// SAs per CPU.
    PerCpu => "SAs per CPU",
    /// Certificates.
    Certificates => "certificates",
    /// A post-quantum preshared key.
    Ppk => "post-quantum preshared key",
    /// Tickets.
    Resumption => "session resumption",
    /// Tokens of RFC 6290.
    Tokens => "tokens of crash detection",
    /// The path was probed.
    Probe => "probes of the path",
    /// The path loses what is larger than it says, fragments too.
    Narrow => "a narrow path",
}

impl Life {
    /// Notes that `what` has happened.
    pub(super) fn meet(&mut self, what: Met) {
        if !self.met.contains(&what) {
            self.met.push(what);
        }
    }

    /// Notes what the plan alone brings about.
    pub(super) fn meet_plan(&mut self) {
        let plan = self.plan;
        let conditions = self.world.net.conditions;
        let slow = [A, B].iter().any(|host| !self.world.hosts[*host].plane.delay.is_zero());
        let all = [
            (conditions.loss >= 50, Met::Loss),
            (conditions.duplication >= 50, Met::Duplication),
            (!conditions.jitter.is_zero(), Met::Reordering),
            (plan.shards != [1, 1], Met::Shards),
            (self.world.net.narrow.is_some(), Met::Narrow),
            (slow, Met::PlaneSlow),
            (plan.tight, Met::HardTime),
            (plan.seven, Met::SevenAdditional),
            (plan.slow, Met::SlowExchanges),
            (plan.both_want, Met::BothWant),
            (plan.traps, Met::Traps),
            (plan.no_dpd_action && !plan.traps, Met::NoDpdAction),
            (plan.per_cpu, Met::PerCpu),
            (plan.certificates, Met::Certificates),
            (plan.ppk, Met::Ppk),
            (plan.resumption, Met::Resumption),
            (plan.tokens, Met::Tokens),
        ];
        for (is, what) in all {
            if is {
                self.meet(what);
            }
        }
    }
}
