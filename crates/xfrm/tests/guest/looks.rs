//! The cost of the looks at what other programs have done to ten thousand policies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ipsec_types::dataplane::{Command, DataPlane, PolicyAction, PolicyId, PolicySpec};
use rustix::time::{ClockId, clock_gettime};
use xfrm::XfrmNetlink;
use xfrm::event::Events;
use xfrm::plane::{Clock, SystemClock};

use crate::common::{apply, capabilities, ts};
use crate::support;

/// Each becomes a policy in each direction.
const SPECS: u64 = 3334;

/// The system's clock, and seconds that the test adds.
#[derive(Debug, Clone, Default)]
struct Later(Arc<AtomicU64>);

impl Clock for Later {
    fn now(&self) -> Instant {
        SystemClock.now() + Duration::from_secs(self.0.load(Ordering::Relaxed))
    }

    fn wall(&self) -> u64 {
        SystemClock.wall()
    }

    fn steady(&self) -> Duration {
        SystemClock.steady()
    }
}

fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn spec(n: u64) -> PolicySpec {
    PolicySpec {
        id: PolicyId(n + 1),
        child: "net".into(),
        owner: "site".into(),
        local_ts: vec![ts("10.1.0.0/16")],
        remote_ts: vec![ts(&format!("10.{}.{}.0/24", 100 + n / 256, n % 256))],
        action: PolicyAction::Drop,
        priority: 0,
        processing: Arc::default(),
        outer: None,
        standby: false,
    }
}

/// A minute costs at most 1 % of a core, with polls each second. The time is that of this thread, with that of the kernel for
/// it. What is missing is found: a look looks at all.
///
/// Fault: in `collect`, look at the policies each time.
pub(crate) fn a_minute_with_ten_thousand_policies_costs_little() {
    let (kernel, events) = (support::kernel(), Events::open().unwrap());
    let (clock, mut other) = (Later::default(), xfrm::kernel::Kernel::open().unwrap());
    let mut plane = XfrmNetlink::new(kernel, events, capabilities()).with_clock(clock.clone());
    let all = (0..SPECS).map(|n| Command::InstallPolicy(Box::new(spec(n))));
    apply(&mut plane, all).unwrap();
    let count = other.policies().unwrap().len();
    assert_eq!(count, 3 * SPECS as usize);
    while plane.poll_event().is_some() {}

    let begin = cpu();
    let mut longest = Duration::ZERO;
    for _ in 0..60 {
        clock.0.fetch_add(1, Ordering::Relaxed);
        let before = cpu();
        while plane.poll_event().is_some() {}
        longest = longest.max(cpu() - before);
    }
    let minute = cpu() - begin;
    println!("{count} policies: {minute:?} of CPU time a minute, {longest:?} at most at once");
    assert!(longest > Duration::from_millis(1), "there was no look: {longest:?}");
    assert!(minute <= Duration::from_millis(600), "{minute:?} a minute");

    // The look is one at all of them.
    let id = other.policies().unwrap()[count / 2].policy.id;
    other.delete_policy(&id).unwrap();
    clock.0.fetch_add(61, Ordering::Relaxed);
    while plane.poll_event().is_some() {}
    assert_eq!(other.policies().unwrap().len(), count);
}
