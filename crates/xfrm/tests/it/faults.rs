//! Faults of the transport, over a kernel that a table in memory stands for.

use std::net::IpAddr;

use netlink_packet_xfrm::XfrmMessage;
use netlink_packet_xfrm::policy::ModifyMessage;
use xfrm::kernel::{Change, Kernel};
use xfrm::netlink::{Error, FaultyTransport, Kind, NetlinkFault, Transport};
use xfrm::policy::{Action, Policy, PolicyDirection, PolicyId};
use xfrm::selector::{Prefix, Selector};

/// A kernel with policies and nothing else.
#[derive(Default)]
struct Table(Vec<ModifyMessage>);

impl Transport for Table {
    fn request(&mut self, message: XfrmMessage, _: Kind) -> Result<Vec<XfrmMessage>, Error> {
        match message {
            XfrmMessage::UpdatePolicy(policy) => self.0.push(policy),
            XfrmMessage::DeletePolicy(id) => {
                let before = self.0.len();
                self.0.retain(|p| p.user_policy_info.selector != id.user_policy_id.selector);
                if self.0.len() == before {
                    return Err(Error {
                        request: "delete policy",
                        errno: libc::ENOENT,
                        message: None,
                    });
                }
            }
            XfrmMessage::GetPolicy(_) => {
                return Ok(self.0.iter().cloned().map(XfrmMessage::AddPolicy).collect());
            }
            _ => unreachable!("not asked"),
        }
        Ok(Vec::new())
    }
}

fn kernel() -> Kernel<FaultyTransport<Table>> {
    Kernel::new(FaultyTransport::new(Table::default()))
}

fn policy(host: u8) -> Policy {
    let host = Prefix::host(IpAddr::from([10, 0, 0, host]));
    let id = PolicyId::new(Selector::between(host, host), PolicyDirection::Out);
    Policy::new(id, u32::from(host.length), Action::Block)
}

fn installed(kernel: &mut Kernel<FaultyTransport<Table>>) -> usize {
    kernel.transport_mut().inner_mut().0.len()
}

#[test]
fn a_refused_request_changes_nothing_and_a_lost_answer_does() {
    let mut kernel = kernel();
    kernel.transport_mut().fail(NetlinkFault::NthOf("set policy", 2, libc::ENOBUFS));
    kernel.set_policy(&policy(1)).unwrap();
    let refused = kernel.set_policy(&policy(2)).unwrap_err();
    assert_eq!((refused.errno, refused.request), (libc::ENOBUFS, "set policy"));
    assert_eq!(installed(&mut kernel), 1);

    kernel.transport_mut().fail(NetlinkFault::LostAck(1));
    let lost = kernel.set_policy(&policy(2)).unwrap_err();
    assert!(lost.is_unanswered(), "{lost}");
    assert_eq!(installed(&mut kernel), 2, "the kernel did it");

    kernel.transport_mut().fail(NetlinkFault::Every("delete policy", libc::EPERM));
    for _ in 0..2 {
        assert!(kernel.delete_policy(&policy(1).id).is_err());
    }
    kernel.transport_mut().heal();
    assert_eq!(kernel.delete_policy(&policy(1).id), Ok(true));
    assert_eq!(kernel.delete_policy(&policy(1).id), Ok(false));
    assert_eq!(kernel.transport_mut().failed(), 4);
    let requests = kernel.transport_mut().take_requests();
    assert_eq!(requests.len(), 7);
    assert_eq!(requests[0], "set policy");
}

#[test]
fn an_interrupted_dump_is_made_again_and_a_truncated_one_too() {
    let mut kernel = kernel();
    for host in 0..10 {
        kernel.set_policy(&policy(host)).unwrap();
    }
    kernel.transport_mut().fail(NetlinkFault::InterruptedDumps(3));
    assert_eq!(kernel.policies().unwrap().len(), 10, "neither less nor twice");
    kernel.transport_mut().fail(NetlinkFault::TruncatedDump(1));
    assert_eq!(kernel.policies().unwrap().len(), 10);
    assert_eq!(kernel.transport_mut().failed(), 4);

    // It gives up in the end.
    kernel.transport_mut().fail(NetlinkFault::InterruptedDumps(100));
    assert_eq!(kernel.policies().unwrap_err().errno, libc::EINTR);
    kernel.transport_mut().heal();
    kernel.transport_mut().fail(NetlinkFault::All(libc::EPERM));
    kernel.transport_mut().take_requests();
    assert_eq!(kernel.policies().unwrap_err().errno, libc::EPERM);
    assert_eq!(kernel.transport_mut().take_requests(), ["read policy"], "not asked again");
}

/// Every request of a batch is one that can fail.
#[test]
fn faults_in_a_batch() {
    let policies: Vec<_> = (0..20).map(policy).collect();
    for at in 1..=20 {
        let mut kernel = kernel();
        kernel.transport_mut().fail(NetlinkFault::Nth(at, libc::ENOMEM));
        let results = kernel.apply(policies.iter().map(Change::SetPolicy));
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
        assert!(results[usize::try_from(at).unwrap() - 1].is_err());
        assert_eq!(installed(&mut kernel), 19);
    }
}

/// The text names the request and has the kernel's own words.
#[test]
fn errors_read_well() {
    let error = Error {
        request: "add state",
        errno: libc::EOPNOTSUPP,
        message: Some("Unsupported ipsec offload type".into()),
    };
    let text = error.to_string();
    assert!(text.starts_with("add state: "), "{text}");
    assert!(text.ends_with("(Unsupported ipsec offload type)"), "{text}");
}
