//! What follows where a server refuses EAP: it may count that, and lock the account.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ike_proto::config::Action;
use ike_proto::{Command, EapAnswer, EapState, Event};
use ike_tests::eap::End;
use ike_tests::{A, B, Pair};

use super::eap::{gateway, short_peer, short_server};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Counts what it refuses.
fn refusing(count: &Rc<Cell<u32>>) -> End {
    let count = Rc::clone(count);
    Box::new(move |message| match message.packet {
        None => EapAnswer::Send(vec![1, 0, 0, 5, 99], EapState::default()),
        Some(_) => {
            count.set(count.get() + 1);
            EapAnswer::Failure { packet: Some(vec![4, 0, 0, 4]), why: "password".to_owned() }
        }
    })
}

fn wanting(seed: u64, reauth: Duration) -> Pair {
    let mut setup = gateway(seed);
    setup.a.connection.keyingtries = 0;
    setup.a.net().start_action = Action::Start;
    if !reauth.is_zero() {
        setup.a.connection.rekey_time = Duration::ZERO;
        setup.a.connection.rand_time = Duration::ZERO;
        setup.a.connection.reauth_time = reauth;
        setup.a.connection.over_time = 60 * MINUTE;
    }
    let mut pair = setup.build();
    pair.hosts[A].eap = Some(short_peer(Some(7)));
    pair.hosts[B].eap = Some(short_server(Some(7)));
    let (connection, child) = ("ab".to_owned(), "net".to_owned());
    pair.command(A, Command::Want { connection, child });
    pair
}

/// Fault: in `may_lock_account`, say no. In `start_on_network`, look at no `careful`.
#[test]
fn a_refused_password_is_not_tried_each_minute() {
    let count = Rc::new(Cell::new(0));
    let mut pair = wanting(81, Duration::ZERO);
    pair.hosts[B].eap = Some(refusing(&count));
    for _ in 0..30 {
        pair.run_for(MINUTE);
        pair.tell_network(A);
    }
    let tried = count.get();
    assert!((2..=4).contains(&tried), "{tried} in half an hour\n{}", pair.story());
    pair.run_for(24 * 60 * MINUTE);
    let tried = count.get() - tried;
    assert!((18..=33).contains(&tried), "{tried} in a day\n{}", pair.story());
    assert_eq!(pair.a().endpoint.neglected(), []);
    let careful = pair.a().events(|event| match event {
        Event::StartsAgain { careful, .. } => Some(*careful),
        _ => None,
    });
    assert!(careful.iter().all(|careful| *careful), "{}", pair.story());
    // Somebody has corrected it, and says so.
    pair.hosts[B].eap = Some(short_server(Some(7)));
    let request = pair.initiate(A, Some("net"));
    pair.run_for(5 * SECOND);
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    pair.run_for(2 * 60 * MINUTE);
    assert_eq!(pair.a().children_up().len(), 1, "{}", pair.story());
}

/// The password was changed while the IKE SA is up.
///
/// Fault: in `on_series_failed`, wait for nothing.
#[test]
fn a_reauthentication_with_a_refused_password_is_not_tried_each_minute() {
    let count = Rc::new(Cell::new(0));
    let mut pair = wanting(82, 10 * MINUTE);
    pair.run_for(5 * MINUTE);
    assert_eq!(pair.a().children_up().len(), 1, "{}", pair.story());
    pair.hosts[B].eap = Some(refusing(&count));
    pair.run_for(35 * MINUTE);
    let tried = count.get();
    assert!((3..=7).contains(&tried), "{tried} in half an hour\n{}", pair.story());
    assert_eq!(pair.a().children_up().len(), 1, "{}", pair.story());
}
