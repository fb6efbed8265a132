//! Every way two ends' exchanges cross, as a table: what happens, in the order in which it happens,
//! and what each end decides.
//!
//! The scenarios are the 30 of child rekeying and the 18 of IKE rekeying that strongSwan's unit tests
//! go through, in our own words.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::AfterRekey as After;
use super::Answer::{Accept, ChildSaNotFound, TemporaryFailure};
use super::ChildActivity::{self as Child, Deleting, FollowUp, Gone, Rekeyed, Rekeying};
use super::DeleteAnswer::{WithDelete, WithoutDelete};
use super::IkeActivity as Ike;
use super::IkeDelete::{AdoptTheirs, CloseChildren};
use super::Meanwhile::{self, NewDeleted, Nothing, OldDeleted, RekeyedByPeer};
use super::RekeyResponse::{self as Response, Created};
use super::*;

/// Something that reaches one end, what that end was doing, and what it decides.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A request to rekey a child, or a follow-up of one.
    RekeyChild(Child, Ike, Answer),
    /// A request to delete a child.
    DeleteChild(Child, DeleteAnswer),
    /// A request to create a child.
    CreateChild(Ike, Answer),
    /// A request to rekey the IKE SA, or a follow-up of one; and whether a child exchange is under way.
    RekeyIke(Ike, bool, Answer),
    /// A request to delete the IKE SA; and whether the peer's rekey of it was accepted.
    DeleteIke(bool, IkeDelete),
    /// The response to this end's own rekey, and what happened before it came.
    Answered(Response<'static>, Meanwhile<'static>, After),
    /// A soft limit, or the time to try again: may this end begin to rekey the child?
    Due(Child, bool),
    /// The same for the IKE SA.
    DueIke(Ike, bool),
}

use Step::*;

/// Who takes a step: A began the exchange that gives the scenario its name.
#[derive(Debug, Clone, Copy)]
enum End {
    A,
    B,
}

use End::{A, B};

struct Scenario {
    name: &'static str,
    steps: &'static [(End, Step)],
}

/// Nonces of two exchanges; the lowest of the four is in `LOW`.
const LOW: Nonces<'static> = Nonces { i: &[9; 16], r: &[1; 16] };
const HIGH: Nonces<'static> = Nonces { i: &[2; 16], r: &[8; 16] };
const TEMPORARY: Response<'static> = Response::TemporaryFailure;
const NOT_FOUND: Response<'static> = Response::ChildSaNotFound;
const IDLE: Child = Child::Idle;

const CHILD_SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "A rekeys and deletes the old child",
        steps: &[
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (A, Answered(Created(LOW), Nothing, After::DeleteOld)),
            (B, DeleteChild(Rekeyed, WithDelete)),
        ],
    },
    Scenario {
        name: "the same with follow-up key exchanges",
        steps: &[
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (A, Answered(Created(LOW), Nothing, After::DeleteOld)),
            (B, DeleteChild(Rekeyed, WithDelete)),
        ],
    },
    Scenario {
        name: "B wants another group, and A asks again",
        steps: &[
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (A, Due(Rekeying, false)),
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (A, Answered(Created(LOW), Nothing, After::DeleteOld)),
            (B, DeleteChild(Rekeyed, WithDelete)),
        ],
    },
    Scenario {
        name: "B wants another first method, and follow-ups come after",
        steps: &[
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (A, Due(FollowUp, false)),
            (A, Answered(Created(LOW), Nothing, After::DeleteOld)),
            (B, DeleteChild(Rekeyed, WithDelete)),
        ],
    },
    Scenario {
        name: "a soft limit of the old child at B, which waits for the Delete",
        steps: &[
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (B, Due(Rekeyed, false)),
            (A, Answered(Created(LOW), Nothing, After::DeleteOld)),
            (B, DeleteChild(Rekeyed, WithDelete)),
        ],
    },
    Scenario {
        name: "a hard limit of the old child at B, whose Delete crosses A's",
        steps: &[
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (A, Answered(Created(LOW), Nothing, After::DeleteOld)),
            (A, DeleteChild(Deleting, WithoutDelete)),
            (B, DeleteChild(Deleting, WithoutDelete)),
        ],
    },
    Scenario {
        name: "the new child is deleted by hand while the old one waits for its Delete",
        steps: &[
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (A, Answered(Created(LOW), Nothing, After::DeleteOld)),
            (A, DeleteChild(IDLE, WithDelete)),
            (B, DeleteChild(Rekeyed, WithDelete)),
        ],
    },
    Scenario {
        name: "B has lost the child",
        steps: &[
            (B, RekeyChild(Gone, Ike::Idle, ChildSaNotFound)),
            (A, Answered(NOT_FOUND, Nothing, After::CreateAnew)),
            (B, CreateChild(Ike::Idle, Accept)),
        ],
    },
    Scenario {
        name: "B deletes the old child itself, before its response arrives",
        steps: &[
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (A, DeleteChild(Rekeying, WithDelete)),
            (A, Answered(Created(LOW), OldDeleted, After::DeleteOld)),
        ],
    },
    Scenario {
        name: "A's Delete of the old child is never answered",
        steps: &[
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (A, Answered(Created(LOW), Nothing, After::DeleteOld)),
            (A, Due(Deleting, false)),
            (A, DeleteChild(Deleting, WithoutDelete)),
        ],
    },
    Scenario {
        name: "both rekey; A's exchange has the lowest nonce",
        steps: &[
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (A, Answered(Created(LOW), RekeyedByPeer(HIGH), After::DeleteNew)),
            (B, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
            (B, DeleteChild(IDLE, WithDelete)),
            (A, DeleteChild(Rekeyed, WithDelete)),
        ],
    },
    Scenario {
        name: "both rekey with follow-ups; the loser begins none",
        steps: &[
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (A, Answered(Created(LOW), RekeyedByPeer(HIGH), After::DeleteNew)),
            (A, RekeyChild(IDLE, Ike::Idle, Accept)),
            (B, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
            (A, DeleteChild(Rekeyed, WithDelete)),
        ],
    },
    Scenario {
        name: "both rekey, A alone with follow-ups, and A wins",
        steps: &[
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, Answered(Created(LOW), RekeyedByPeer(HIGH), After::DeleteNew)),
            (A, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
            (A, DeleteChild(IDLE, WithDelete)),
            (B, DeleteChild(Rekeyed, WithDelete)),
        ],
    },
    Scenario {
        name: "both rekey; B wins and deletes the old child before A has its response",
        steps: &[
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
            (A, DeleteChild(Rekeying, WithDelete)),
            (A, Answered(Created(LOW), RekeyedByPeer(HIGH), After::DeleteNew)),
            (B, DeleteChild(IDLE, WithDelete)),
        ],
    },
    Scenario {
        name: "the same, and B deletes its new child as well",
        steps: &[
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
            (A, DeleteChild(Rekeying, WithDelete)),
            (A, DeleteChild(IDLE, WithDelete)),
            (A, Answered(Created(LOW), RekeyedByPeer(HIGH), After::DeleteNew)),
            (B, DeleteChild(IDLE, WithDelete)),
        ],
    },
    Scenario {
        name: "both rekey with follow-ups; B goes on before A has its response",
        steps: &[
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (A, Answered(Created(LOW), RekeyedByPeer(HIGH), After::DeleteNew)),
            (B, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
            (A, DeleteChild(Rekeyed, WithDelete)),
        ],
    },
    Scenario {
        name: "A's request arrives while B deletes the child it has rekeyed",
        steps: &[
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, Answered(Created(HIGH), Nothing, After::DeleteOld)),
            (B, RekeyChild(Deleting, Ike::Idle, TemporaryFailure)),
            (A, DeleteChild(Rekeying, WithDelete)),
            (A, Answered(TEMPORARY, RekeyedByPeer(HIGH), After::Done)),
        ],
    },
    Scenario {
        name: "A's request arrives after B's Delete is answered",
        steps: &[
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, Answered(Created(HIGH), Nothing, After::DeleteOld)),
            (A, DeleteChild(Rekeying, WithDelete)),
            (B, RekeyChild(Gone, Ike::Idle, ChildSaNotFound)),
            (A, Answered(NOT_FOUND, RekeyedByPeer(HIGH), After::Done)),
        ],
    },
    Scenario {
        name: "A's request arrives after B has deleted the old child and the new one",
        steps: &[
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, Answered(Created(HIGH), Nothing, After::DeleteOld)),
            (A, DeleteChild(Rekeying, WithDelete)),
            (A, DeleteChild(IDLE, WithDelete)),
            (B, RekeyChild(Gone, Ike::Idle, ChildSaNotFound)),
            (A, Answered(NOT_FOUND, RekeyedByPeer(HIGH), After::Done)),
        ],
    },
    Scenario {
        name: "A's request arrives while B is at its follow-ups",
        steps: &[
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, RekeyChild(FollowUp, Ike::Idle, TemporaryFailure)),
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, Answered(Created(HIGH), Nothing, After::DeleteOld)),
            (A, Answered(TEMPORARY, RekeyedByPeer(HIGH), After::Done)),
            (A, DeleteChild(Rekeyed, WithDelete)),
        ],
    },
    Scenario {
        name: "both rekey, both are told another group, both ask again",
        steps: &[
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (A, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
            (B, Answered(Created(LOW), RekeyedByPeer(HIGH), After::DeleteNew)),
        ],
    },
    Scenario {
        name: "the same, and A's second request is late",
        steps: &[
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, Answered(Created(HIGH), Nothing, After::DeleteOld)),
            (B, RekeyChild(Deleting, Ike::Idle, TemporaryFailure)),
            (A, DeleteChild(Rekeying, WithDelete)),
            (A, Answered(TEMPORARY, RekeyedByPeer(HIGH), After::Done)),
        ],
    },
    Scenario {
        name: "both rekey; B has lost, and deletes the old child all the same",
        steps: &[
            (A, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (B, RekeyChild(Rekeying, Ike::Idle, Accept)),
            (A, DeleteChild(Rekeying, WithDelete)),
            (A, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
        ],
    },
    Scenario {
        name: "A rekeys what B deletes",
        steps: &[
            (B, RekeyChild(Deleting, Ike::Idle, TemporaryFailure)),
            (A, DeleteChild(Rekeying, WithDelete)),
            (A, Answered(TEMPORARY, OldDeleted, After::Done)),
        ],
    },
    Scenario {
        name: "A is at its follow-ups when B deletes",
        steps: &[
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (A, DeleteChild(FollowUp, WithDelete)),
            (B, RekeyChild(Deleting, Ike::Idle, TemporaryFailure)),
            (A, Answered(TEMPORARY, OldDeleted, After::Done)),
        ],
    },
    Scenario {
        name: "A rekeys what B deletes, and B's Delete is late",
        steps: &[
            (B, RekeyChild(Deleting, Ike::Idle, TemporaryFailure)),
            (A, Answered(TEMPORARY, Nothing, After::RetryLater)),
            (A, DeleteChild(IDLE, WithDelete)),
            (A, Due(Gone, false)),
        ],
    },
    Scenario {
        name: "A rekeys what B deletes, and A's request is late",
        steps: &[
            (A, DeleteChild(Rekeying, WithDelete)),
            (B, RekeyChild(Gone, Ike::Idle, ChildSaNotFound)),
            (A, Answered(NOT_FOUND, OldDeleted, After::Done)),
        ],
    },
    Scenario {
        name: "B deletes the new child before A has the response that made it",
        steps: &[
            (B, RekeyChild(IDLE, Ike::Idle, Accept)),
            (A, DeleteChild(Gone, WithoutDelete)),
            (A, Answered(Created(LOW), NewDeleted(None), After::DeleteOldOnly)),
            (B, DeleteChild(Rekeyed, WithDelete)),
        ],
    },
    Scenario {
        name: "A rekeys a child while B rekeys the IKE SA",
        steps: &[
            (B, RekeyChild(IDLE, Ike::Rekeying, TemporaryFailure)),
            (A, RekeyIke(Ike::Idle, true, TemporaryFailure)),
            (A, Answered(TEMPORARY, Nothing, After::RetryLater)),
            (B, Answered(TEMPORARY, Nothing, After::RetryLater)),
        ],
    },
    Scenario {
        name: "A rekeys a child while B deletes the IKE SA",
        steps: &[
            (B, RekeyChild(IDLE, Ike::Closing, TemporaryFailure)),
            (A, DeleteIke(false, CloseChildren)),
        ],
    },
];

const IKE_SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "A rekeys the IKE SA and deletes the old one",
        steps: &[
            (B, RekeyIke(Ike::Idle, false, Accept)),
            (A, Answered(Created(LOW), Nothing, After::DeleteOld)),
            (B, DeleteIke(true, AdoptTheirs)),
        ],
    },
    Scenario {
        name: "the same with follow-up key exchanges",
        steps: &[
            (B, RekeyIke(Ike::Idle, false, Accept)),
            (B, RekeyIke(Ike::Idle, false, Accept)),
            (A, Answered(Created(LOW), Nothing, After::DeleteOld)),
            (B, DeleteIke(true, AdoptTheirs)),
        ],
    },
    Scenario {
        name: "B wants another group, and A asks again",
        steps: &[
            (B, RekeyIke(Ike::Idle, false, Accept)),
            (A, DueIke(Ike::Rekeying, false)),
            (B, RekeyIke(Ike::Idle, false, Accept)),
            (A, Answered(Created(LOW), Nothing, After::DeleteOld)),
            (B, DeleteIke(true, AdoptTheirs)),
        ],
    },
    Scenario {
        name: "B wants another first method, and follow-ups come after",
        steps: &[
            (B, RekeyIke(Ike::Idle, false, Accept)),
            (B, RekeyIke(Ike::Idle, false, Accept)),
            (A, DueIke(Ike::FollowUp, false)),
            (A, Answered(Created(LOW), Nothing, After::DeleteOld)),
            (B, DeleteIke(true, AdoptTheirs)),
        ],
    },
    Scenario {
        name: "both rekey; A's exchange has the lowest nonce",
        steps: &[
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, RekeyIke(Ike::Rekeying, false, Accept)),
            (A, Answered(Created(LOW), RekeyedByPeer(HIGH), After::DeleteNew)),
            (B, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
            (A, DeleteIke(true, AdoptTheirs)),
            // The redundant SA never had children.
            (B, DeleteIke(false, CloseChildren)),
        ],
    },
    Scenario {
        name: "both rekey with follow-ups; the loser begins none",
        steps: &[
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, RekeyIke(Ike::Rekeying, false, Accept)),
            (A, Answered(Created(LOW), RekeyedByPeer(HIGH), After::DeleteNew)),
            (A, RekeyIke(Ike::Idle, false, Accept)),
            (B, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
            (A, DeleteIke(true, AdoptTheirs)),
        ],
    },
    Scenario {
        name: "both rekey, A alone with follow-ups, and A wins",
        steps: &[
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, Answered(Created(LOW), RekeyedByPeer(HIGH), After::DeleteNew)),
            (A, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
            (B, DeleteIke(true, AdoptTheirs)),
        ],
    },
    Scenario {
        name: "both rekey, both are told another group, both ask again",
        steps: &[
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, RekeyIke(Ike::Rekeying, false, Accept)),
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, RekeyIke(Ike::Rekeying, false, Accept)),
            (A, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
            (B, Answered(Created(LOW), RekeyedByPeer(HIGH), After::DeleteNew)),
        ],
    },
    Scenario {
        name: "the same, and A's second request is late",
        steps: &[
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, RekeyIke(Ike::Rekeying, false, Accept)),
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, Answered(Created(HIGH), Nothing, After::DeleteOld)),
            (B, RekeyIke(Ike::Closing, false, TemporaryFailure)),
            (A, Answered(TEMPORARY, RekeyedByPeer(HIGH), After::Done)),
            (A, DeleteIke(true, AdoptTheirs)),
        ],
    },
    Scenario {
        name: "both rekey; B wins and deletes the old SA before A has its response",
        steps: &[
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
            // The response can no longer come: A cannot tell this from a B that noticed nothing.
            (A, DeleteIke(true, AdoptTheirs)),
        ],
    },
    Scenario {
        name: "both rekey with follow-ups; B goes on before A has its response",
        steps: &[
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, RekeyIke(Ike::Rekeying, false, Accept)),
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (A, Answered(Created(LOW), RekeyedByPeer(HIGH), After::DeleteNew)),
            (B, Answered(Created(HIGH), RekeyedByPeer(LOW), After::DeleteOld)),
            (A, DeleteIke(true, AdoptTheirs)),
        ],
    },
    Scenario {
        name: "A's request is lost, and B deletes the SA it has rekeyed",
        steps: &[
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, Answered(Created(HIGH), Nothing, After::DeleteOld)),
            (A, DeleteIke(true, AdoptTheirs)),
        ],
    },
    Scenario {
        name: "A's request arrives while B deletes the SA it has rekeyed",
        steps: &[
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, Answered(Created(HIGH), Nothing, After::DeleteOld)),
            (B, RekeyIke(Ike::Closing, false, TemporaryFailure)),
            (A, DeleteIke(true, AdoptTheirs)),
        ],
    },
    Scenario {
        name: "the same, and B's error arrives before its Delete",
        steps: &[
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, Answered(Created(HIGH), Nothing, After::DeleteOld)),
            (B, RekeyIke(Ike::Rekeyed, false, TemporaryFailure)),
            (A, Answered(TEMPORARY, RekeyedByPeer(HIGH), After::Done)),
            (A, DueIke(Ike::Rekeyed, false)),
            (A, DeleteIke(true, AdoptTheirs)),
        ],
    },
    Scenario {
        name: "A's request arrives while B is at its follow-ups",
        steps: &[
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, RekeyIke(Ike::FollowUp, false, TemporaryFailure)),
            (A, RekeyIke(Ike::Rekeying, false, Accept)),
            (B, Answered(Created(HIGH), Nothing, After::DeleteOld)),
            (A, DeleteIke(true, AdoptTheirs)),
        ],
    },
    Scenario {
        name: "A rekeys what B deletes",
        steps: &[
            (B, RekeyIke(Ike::Closing, false, TemporaryFailure)),
            (A, DeleteIke(false, CloseChildren)),
        ],
    },
    Scenario {
        name: "A is at its follow-ups when B deletes",
        steps: &[
            (B, RekeyIke(Ike::Idle, false, Accept)),
            (B, RekeyIke(Ike::Closing, false, TemporaryFailure)),
            (A, DeleteIke(false, CloseChildren)),
        ],
    },
    Scenario {
        name: "A rekeys what B deletes, and B's Delete is late",
        steps: &[
            (B, RekeyIke(Ike::Closing, false, TemporaryFailure)),
            (A, Answered(TEMPORARY, Nothing, After::RetryLater)),
            (A, DeleteIke(false, CloseChildren)),
        ],
    },
];

fn check(scenario: &Scenario) {
    for (n, (end, step)) in scenario.steps.iter().enumerate() {
        let at = format!("{:?}, step {}, {end:?}: {step:?}", scenario.name, n + 1);
        match *step {
            RekeyChild(child, ike, expected) => {
                assert_eq!(on_child_rekey_request(child, ike), expected, "{at}");
            }
            DeleteChild(child, expected) => {
                assert_eq!(on_child_delete_request(child), expected, "{at}");
            }
            CreateChild(ike, expected) => {
                assert_eq!(on_create_child_request(ike), expected, "{at}");
            }
            RekeyIke(ike, child, expected) => {
                assert_eq!(on_ike_rekey_request(ike, child), expected, "{at}");
            }
            DeleteIke(rekeyed, expected) => {
                assert_eq!(on_ike_delete_request(rekeyed), expected, "{at}");
            }
            Answered(response, meanwhile, expected) => {
                assert_eq!(after_rekey(response, meanwhile), expected, "{at}");
            }
            Due(child, expected) => assert_eq!(may_rekey_child(child, Ike::Idle), expected, "{at}"),
            DueIke(ike, expected) => assert_eq!(may_rekey_ike(ike, false), expected, "{at}"),
        }
    }
}

#[test]
fn every_scenario_is_decided_as_the_rfc_says() {
    assert_eq!((CHILD_SCENARIOS.len(), IKE_SCENARIOS.len()), (30, 18));
    for table in [CHILD_SCENARIOS, IKE_SCENARIOS] {
        let names: BTreeSet<_> = table.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), table.len());
        table.iter().for_each(check);
    }
}

/// RFC 7296 §2.25 once for every activity, so that a new activity must be placed here too.
#[test]
fn every_activity_has_its_answers() {
    let children = [
        (IDLE, Accept, WithDelete),
        (Rekeying, Accept, WithDelete),
        (FollowUp, TemporaryFailure, WithDelete),
        (Rekeyed, TemporaryFailure, WithDelete),
        (Deleting, TemporaryFailure, WithoutDelete),
        (Gone, ChildSaNotFound, WithoutDelete),
        (Child::Unborn, TemporaryFailure, WithoutDelete),
    ];
    let busy = [Ike::Rekeying, Ike::FollowUp, Ike::Rekeyed, Ike::Closing];
    for (child, rekey, delete) in children {
        assert_eq!(on_child_rekey_request(child, Ike::Idle), rekey, "{child:?}");
        assert_eq!(on_child_delete_request(child), delete, "{child:?}");
        for ike in busy {
            assert_eq!(on_child_rekey_request(child, ike), TemporaryFailure, "{child:?} {ike:?}");
            assert!(!may_rekey_child(child, ike), "{child:?} {ike:?}");
        }
    }
    for ike in busy {
        assert_eq!(on_create_child_request(ike), TemporaryFailure, "{ike:?}");
        assert_eq!(on_ike_rekey_request(ike, true), TemporaryFailure, "{ike:?}");
        assert!(!may_rekey_ike(ike, false), "{ike:?}");
    }
    assert!(may_rekey_child(IDLE, Ike::Idle));
    assert!(may_rekey_ike(Ike::Idle, false));
    assert!(!may_rekey_ike(Ike::Idle, true));
    assert_eq!(after_rekey(Response::Refused, Nothing), After::KeepOld);
}

/// Both rekey, and the peer deletes what it has made in answer before this end knows of it: nothing is used that the
/// peer does not have.
#[test]
fn a_deleted_answer_is_not_used_after_a_collision() {
    let ours_wins = after_rekey(Created(HIGH), NewDeleted(Some(LOW)));
    let theirs_wins = after_rekey(Created(LOW), NewDeleted(Some(HIGH)));
    assert_eq!((ours_wins, theirs_wins), (After::DeleteOldOnly, After::Done));
}

#[test]
fn the_lowest_of_the_four_nonces_loses_wherever_it_is() {
    for lowest in 0..4 {
        let nonce = |n: usize| if n == lowest { vec![0; 16] } else { vec![1 + n as u8; 16] };
        let (ai, ar, bi, br) = (nonce(0), nonce(1), nonce(2), nonce(3));
        let (a, b) = (Nonces { i: &ai, r: &ar }, Nonces { i: &bi, r: &br });
        let (at_a, at_b) = (redundant([a, b]), redundant([b, a]));
        let expected = if lowest < 2 {
            (Verdict::DeleteOurs, Verdict::DeleteTheirs)
        } else {
            (Verdict::DeleteTheirs, Verdict::DeleteOurs)
        };
        assert_eq!((at_a, at_b), expected, "nonce {lowest}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc7296#section-2.8.1
//= type=test
//# If you reach the end of one nonce, that nonce is the lower one.
#[test]
fn a_nonce_that_ends_first_is_lower() {
    let (short, long) = ([7; 16], [7; 17]);
    let ours = Nonces { i: &short, r: &[9; 16] };
    let theirs = Nonces { i: &long, r: &[9; 16] };
    assert_eq!(redundant([ours, theirs]), Verdict::DeleteOurs);
    // Octet by octet, not as numbers: the longer number is the lower nonce here.
    let ours = Nonces { i: &[6; 32], r: &[9; 16] };
    assert_eq!(redundant([ours, theirs]), Verdict::DeleteOurs);
}

proptest! {
    /// Whatever the nonces, one end deletes what it made and the other keeps what it made.
    #[test]
    fn both_ends_agree_on_the_redundant_sa(
        nonces in proptest::array::uniform4(proptest::collection::vec(0..3u8, 0..4)),
    ) {
        let [ai, ar, bi, br] = &nonces;
        let (a, b) = (Nonces { i: ai, r: ar }, Nonces { i: bi, r: br });
        let sets = [BTreeSet::from([ai, ar]), BTreeSet::from([bi, br])];
        prop_assume!(sets[0] != sets[1]);
        let at_a = after_rekey(Created(a), RekeyedByPeer(b));
        let at_b = after_rekey(Created(b), RekeyedByPeer(a));
        prop_assert!(matches!(
            (at_a, at_b),
            (After::DeleteNew, After::DeleteOld) | (After::DeleteOld, After::DeleteNew)
        ));
    }
}
