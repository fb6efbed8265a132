//! What can be done to an unprotected message.

use ike_proto::wire::payload::{Notify, Payload, Sa};
use ike_proto::wire::registry::{KeMethodId, NotifyType};
use ike_proto::wire::{HEADER_LEN, Message, encode_message};

/// One change, by a name for a failing test.
pub struct Change {
    pub name: String,
    pub octets: Vec<u8>,
}

/// Every change to `message` that is worth trying: every bit; every payload left out, doubled, or
/// exchanged with the next; every notify that IKE_SA_INIT may carry put in; proposals and transforms
/// left out, doubled, exchanged; another method for the KE payload.
pub fn all(octets: &[u8]) -> Vec<Change> {
    let mut changes = bits(octets);
    changes.extend(structural(octets));
    changes
}

/// Every bit turned over.
pub fn bits(octets: &[u8]) -> Vec<Change> {
    let flipped = (0..octets.len() * 8).map(|bit| {
        let mut octets = octets.to_vec();
        octets[bit / 8] ^= 0x80 >> (bit % 8);
        Change { name: format!("bit {bit}"), octets }
    });
    flipped.collect()
}

/// Everything but bits.
pub fn structural(octets: &[u8]) -> Vec<Change> {
    let message = Message::decode(octets).expect("a message of the engine");
    let mut changes = Vec::new();
    let mut add = |name: String, payloads: &[Payload<'_>]| {
        let octets = encode_message(&message.header, payloads);
        changes.push(Change { name, octets });
    };
    let payloads = &message.payloads;
    for (name, payloads) in rearranged(payloads, |payload| match payload {
        Payload::Notify(notify) => notify.kind.to_string(),
        other => other.kind().to_string(),
    }) {
        add(name, &payloads);
    }
    for kind in INIT_NOTIFIES {
        for at in [0, payloads.len()] {
            let mut payloads = payloads.clone();
            payloads.insert(at, Payload::Notify(Notify::new(kind, &[])));
            add(format!("{kind} put in at {at}"), &payloads);
        }
    }
    for (index, payload) in payloads.iter().enumerate() {
        match payload {
            Payload::Sa(sa) => {
                for (name, sa) in changed_sa(sa) {
                    let mut payloads = payloads.clone();
                    payloads[index] = Payload::Sa(sa);
                    add(name, &payloads);
                }
            }
            Payload::Ke(ke) => {
                for method in [14, 19, 31, 36] {
                    let mut payloads = payloads.clone();
                    let other = ike_proto::wire::payload::Ke { method: KeMethodId(method), ..*ke };
                    payloads[index] = Payload::Ke(other);
                    add(format!("KE as method {method}"), &payloads);
                }
                let mut payloads = payloads.clone();
                let swapped: Vec<u8> = ke.data.iter().map(|octet| !octet).collect();
                let other = ike_proto::wire::payload::Ke { data: &swapped, ..*ke };
                payloads[index] = Payload::Ke(other);
                add("another public value".to_owned(), &payloads);
            }
            _ => {}
        }
    }
    let header = octets[..HEADER_LEN].to_vec();
    changes.retain(|change| change.octets != octets && change.octets[..HEADER_LEN - 12] != [0; 16]);
    changes.push(Change { name: "nothing but the header".to_owned(), octets: header });
    changes
}

/// Proposals and transforms left out, doubled, exchanged.
fn changed_sa(sa: &Sa) -> Vec<(String, Sa)> {
    let mut changed = Vec::new();
    for (name, proposals) in
        rearranged(&sa.proposals, |proposal| format!("proposal {}", proposal.number))
    {
        // Numbered as a genuine one would be, and as they were.
        let mut renumbered = proposals.clone();
        for (number, proposal) in (1..).zip(&mut renumbered) {
            proposal.number = number;
        }
        changed.push((format!("{name}, renumbered"), Sa { proposals: renumbered }));
        changed.push((name, Sa { proposals }));
    }
    for (index, proposal) in sa.proposals.iter().enumerate() {
        let number = proposal.number;
        for (name, transforms) in rearranged(&proposal.transforms, |transform| {
            format!("{transform} of proposal {number}")
        }) {
            let mut sa = sa.clone();
            sa.proposals[index].transforms = transforms;
            changed.push((name, sa));
        }
    }
    changed
}

/// `items` with one of them left out, doubled, or exchanged with the next.
fn rearranged<T: Clone>(items: &[T], name: impl Fn(&T) -> String) -> Vec<(String, Vec<T>)> {
    let mut all = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let name = name(item);
        let mut without = items.to_vec();
        without.remove(index);
        all.push((format!("{name} left out"), without));
        let mut doubled = items.to_vec();
        doubled.insert(index, item.clone());
        all.push((format!("{name} doubled"), doubled));
        if index + 1 < items.len() {
            let mut exchanged = items.to_vec();
            exchanged.swap(index, index + 1);
            all.push((format!("{name} exchanged with the next"), exchanged));
        }
    }
    if items.len() > 2 {
        let reversed: Vec<T> = items.iter().rev().cloned().collect();
        all.push(("all in reverse".to_owned(), reversed));
    }
    all
}

/// Notifies that mean something in IKE_SA_INIT, and some that must not.
const INIT_NOTIFIES: [NotifyType; 14] = [
    NotifyType::IKEV2_FRAGMENTATION_SUPPORTED,
    NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED,
    NotifyType::CHILDLESS_IKEV2_SUPPORTED,
    NotifyType::USE_PPK,
    NotifyType::USE_PPK_INT,
    NotifyType::PPK_IDENTITY,
    NotifyType::NO_PPK_AUTH,
    NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH,
    NotifyType::SIGNATURE_HASH_ALGORITHMS,
    NotifyType::SUPPORTED_AUTH_METHODS,
    NotifyType::MOBIKE_SUPPORTED,
    NotifyType::NAT_DETECTION_SOURCE_IP,
    NotifyType::NAT_DETECTION_DESTINATION_IP,
    NotifyType(40_960),
];
