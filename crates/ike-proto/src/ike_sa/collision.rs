//! What to do when exchanges of both ends cross (RFC 7296 §2.8.1, §2.8.2, §2.25; RFC 9370 §2.2.4).
//!
//! Pure functions of what this end is doing: nothing here sends, waits or keeps state.
//!
//! ```text
//!   A                                  B
//!   CREATE_CHILD_SA(N(REKEY_SA)) ─╮ ╭─ CREATE_CHILD_SA(N(REKEY_SA))
//!                                  ╳
//!   on_child_rekey_request  ◂─────╯ ╰─▸ on_child_rekey_request      both Accept
//!   after_rekey             ◂─────────▸ after_rekey                 the four nonces decide
//! ```

use crate::keys::Nonces;

/// What this end is doing with one child when a request about it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildActivity {
    /// Nothing.
    Idle,
    /// Our CREATE_CHILD_SA to rekey it is not answered yet, or is about to be sent again with another key exchange
    /// method.
    Rekeying,
    /// Our rekey of it has reached its IKE_FOLLOWUP_KE exchanges.
    FollowUp,
    /// The peer's rekey has replaced it. The peer's Delete is still to come.
    Rekeyed,
    /// Our Delete for it is in flight or next in the queue.
    Deleting,
    /// There is no such child.
    Gone,
    /// It does not exist here. The peer may have made it in answer to a request of ours: the response is still to
    /// come, or our Delete for it.
    Unborn,
}

/// What this end is doing with the IKE SA when a request arrives on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IkeActivity {
    /// Nothing.
    Idle,
    /// Our CREATE_CHILD_SA to rekey it is not answered yet.
    Rekeying,
    /// Our rekey of it has reached its IKE_FOLLOWUP_KE exchanges.
    FollowUp,
    /// A rekey by either end has replaced it. A Delete is still to come.
    Rekeyed,
    /// Our Delete for it is in flight or next in the queue.
    Closing,
}

/// Answer to a request that makes or replaces an SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// As usual.
    Accept,
    /// TEMPORARY_FAILURE.
    TemporaryFailure,
    /// CHILD_SA_NOT_FOUND.
    ChildSaNotFound,
}

/// Answer to a request to delete a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeleteAnswer {
    /// Delete it and answer with a Delete payload for the paired SA.
    WithDelete,
    /// Answer without a Delete payload: the requests crossed, or there is nothing to delete.
    WithoutDelete,
}

/// What a Delete for the IKE SA means for the children. The Delete itself is always answered as usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IkeDelete {
    /// The children end with it.
    CloseChildren,
    /// The IKE SA of the peer's rekey inherits them. Our own rekey is dropped.
    AdoptTheirs,
}

/// True if this end may begin to rekey the child now.
pub(crate) fn may_rekey_child(child: ChildActivity, ike: IkeActivity) -> bool {
    child == ChildActivity::Idle && ike == IkeActivity::Idle
}

/// True if this end may begin to rekey the IKE SA now. `child_exchange` is as for [`on_ike_rekey_request`].
pub(crate) fn may_rekey_ike(ike: IkeActivity, child_exchange: bool) -> bool {
    ike == IkeActivity::Idle && !child_exchange
}

/// Answer to a request to rekey a child, and to the IKE_FOLLOWUP_KE requests of such a rekey.
pub(crate) fn on_child_rekey_request(child: ChildActivity, ike: IkeActivity) -> Answer {
    // The IKE SA is checked first: the children of a rekeyed IKE SA are not gone, they have moved.
    if ike != IkeActivity::Idle {
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25.2
        //# If a peer receives a request to create or rekey a Child SA when it is
        //# currently rekeying the IKE SA, it SHOULD reply with TEMPORARY_FAILURE.
        return Answer::TemporaryFailure;
    }
    match child {
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25.1
        //# If a peer receives a request to rekey a Child SA that it is currently rekeying,
        //# it SHOULD reply as usual, and SHOULD prepare to close redundant SAs
        //# later based on the nonces (see Section 2.8.1).
        ChildActivity::Idle | ChildActivity::Rekeying => Answer::Accept,
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25.1
        //# If a peer receives a request to rekey a Child SA that it is currently
        //# trying to close, it SHOULD reply with TEMPORARY_FAILURE.
        ChildActivity::FollowUp | ChildActivity::Rekeyed | ChildActivity::Deleting => {
            Answer::TemporaryFailure
        }
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25.1
        //# If a peer receives a request to rekey a Child SA that does not exist, it SHOULD
        //# reply with CHILD_SA_NOT_FOUND.
        ChildActivity::Gone => Answer::ChildSaNotFound,
        ChildActivity::Unborn => Answer::TemporaryFailure,
    }
}

/// Answer to a request to create a child.
pub(crate) fn on_create_child_request(ike: IkeActivity) -> Answer {
    if ike == IkeActivity::Idle { Answer::Accept } else { Answer::TemporaryFailure }
}

/// Answer to a request to delete a child. It ends everything that this end was doing with the child, except
/// deleting it. The activity of the IKE SA does not matter (RFC 7296 §2.25.2).
pub(crate) fn on_child_delete_request(child: ChildActivity) -> DeleteAnswer {
    match child {
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25.1
        //# If a peer receives a request to close a Child SA that it is currently rekeying, it
        //# SHOULD reply as usual, with a Delete payload.
        ChildActivity::Idle
        | ChildActivity::Rekeying
        | ChildActivity::FollowUp
        | ChildActivity::Rekeyed => DeleteAnswer::WithDelete,
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25.1
        //# If a peer receives a request to close a Child SA that it is currently
        //# trying to close, it SHOULD reply without a Delete payload (see
        //# Section 1.4.1).
        ChildActivity::Deleting | ChildActivity::Gone | ChildActivity::Unborn => {
            DeleteAnswer::WithoutDelete
        }
    }
}

/// Answer to a request to rekey the IKE SA. `child_exchange` is true while this end is creating, rekeying or
/// closing a child, including follow-ups that are expected from the peer.
pub(crate) fn on_ike_rekey_request(ike: IkeActivity, child_exchange: bool) -> Answer {
    match ike {
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25.1
        //# If a peer receives a request to rekey the IKE SA, and it is currently
        //# creating, rekeying, or closing a Child SA of that IKE SA, it SHOULD
        //# reply with TEMPORARY_FAILURE.
        IkeActivity::Idle | IkeActivity::Rekeying if child_exchange => Answer::TemporaryFailure,
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25.2
        //# If a peer receives a request to rekey an IKE SA that it is currently
        //# rekeying, it SHOULD reply as usual, and SHOULD prepare to close
        //# redundant SAs and move inherited Child SAs later based on the nonces
        //# (see Section 2.8.2).
        IkeActivity::Idle | IkeActivity::Rekeying => Answer::Accept,
        IkeActivity::FollowUp | IkeActivity::Rekeyed | IkeActivity::Closing => {
            Answer::TemporaryFailure
        }
    }
}

/// What a request to delete the IKE SA means. `rekeyed_by_peer` is true if the peer's rekey of this SA was
/// answered and its new SA is ready.
pub(crate) fn on_ike_delete_request(rekeyed_by_peer: bool) -> IkeDelete {
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.8.2
    //# If the peer that did notice the simultaneous rekey gets
    //# the delete request from the other peer for the old IKE SA, it knows
    //# that the other peer did not detect the simultaneous rekey, and the
    //# first peer can forget its own rekey attempt.
    if rekeyed_by_peer { IkeDelete::AdoptTheirs } else { IkeDelete::CloseChildren }
}

/// Which of two SAs made at the same time is redundant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The SA of the exchange that this end initiated. This end deletes it.
    DeleteOurs,
    /// The SA of the exchange that the peer initiated. The peer deletes it.
    DeleteTheirs,
}

/// Compares the nonces of the exchange that this end initiated with those of the exchange that the peer initiated.
pub(crate) fn redundant([ours, theirs]: [Nonces<'_>; 2]) -> Verdict {
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.8.1
    //# If redundant SAs are created through such a collision, the SA
    //# created with the lowest of the four nonces used in the two exchanges
    //# SHOULD be closed by the endpoint that created it.
    // A shorter nonce is lower than a longer one that begins with it; so are slices. If the lowest nonce is in
    // both exchanges, the other two decide, so that both ends still agree.
    let key = |nonces: Nonces<'_>| {
        let Nonces { i, r } = nonces;
        if i <= r { (i.to_vec(), r.to_vec()) } else { (r.to_vec(), i.to_vec()) }
    };
    if key(ours) <= key(theirs) { Verdict::DeleteOurs } else { Verdict::DeleteTheirs }
}

/// How the peer answered our request to rekey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RekeyResponse<'a> {
    /// There is a new SA.
    Created(Nonces<'a>),
    /// TEMPORARY_FAILURE.
    TemporaryFailure,
    /// CHILD_SA_NOT_FOUND.
    ChildSaNotFound,
    /// Another error.
    Refused,
}

/// What happened between our request to rekey and its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meanwhile<'a> {
    /// Nothing.
    Nothing,
    /// The peer's own rekey of the same SA was accepted. It does not matter whether the peer has deleted the old
    /// SA, or the new one of its own exchange, since.
    RekeyedByPeer(Nonces<'a>),
    /// The peer deleted the old SA, with no rekey of its own.
    OldDeleted,
    /// The peer deleted the SA that it had made in answer, before the answer arrived. The nonces are those of its own
    /// rekey of the same SA, if that was accepted.
    NewDeleted(Option<Nonces<'a>>),
}

/// What to do when the answer to our request to rekey arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterRekey {
    /// Use the new SA and delete the old one, if it is still there.
    DeleteOld,
    /// Delete the new SA of our own exchange; the peer deletes the old one. An exchange that has
    /// follow-ups to come made no SA yet: it just ends here (RFC 9370 §2.2.4).
    DeleteNew,
    /// Drop what the exchange made, without a message, and delete the old SA: the peer wants none.
    DeleteOldOnly,
    /// Keep the old SA and try again after a while (RFC 7296 §2.25).
    RetryLater,
    /// Keep the old SA; rekeying failed for a reason that stays.
    KeepOld,
    /// Drop the old SA without a message and create a new one from scratch.
    CreateAnew,
    /// Nothing: the peer's exchange has done the work.
    Done,
}

/// Decides on the answer to our request to rekey a child or an IKE SA.
pub(crate) fn after_rekey(response: RekeyResponse<'_>, meanwhile: Meanwhile<'_>) -> AfterRekey {
    match (response, meanwhile) {
        (RekeyResponse::Created(ours), Meanwhile::RekeyedByPeer(theirs)) => {
            match redundant([ours, theirs]) {
                Verdict::DeleteOurs => AfterRekey::DeleteNew,
                //= https://www.rfc-editor.org/rfc/rfc7296#section-2.8.1
                //# The node that initiated the surviving rekeyed SA should delete the
                //# replaced SA after the new one is established.
                Verdict::DeleteTheirs => AfterRekey::DeleteOld,
            }
        }
        (RekeyResponse::Created(ours), Meanwhile::NewDeleted(theirs)) => match theirs {
            // It was redundant anyway.
            Some(theirs) if redundant([ours, theirs]) == Verdict::DeleteOurs => AfterRekey::Done,
            _ => AfterRekey::DeleteOldOnly,
        },
        // A peer may delete the old SA by itself. The new one was still agreed upon.
        (RekeyResponse::Created(_), Meanwhile::Nothing | Meanwhile::OldDeleted) => {
            AfterRekey::DeleteOld
        }
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.8.1
        //# When A receives this error, it already knows there was simultaneous
        //# rekeying, so it can ignore the error message.
        (_, Meanwhile::RekeyedByPeer(_) | Meanwhile::OldDeleted) => AfterRekey::Done,
        (RekeyResponse::TemporaryFailure, _) => AfterRekey::RetryLater,
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25
        //# A peer that receives a CHILD_SA_NOT_FOUND notification
        //# SHOULD silently delete the Child SA (if it still exists) and send a
        //# request to create a new Child SA from scratch (if the Child SA does
        //# not yet exist).
        (RekeyResponse::ChildSaNotFound, _) => AfterRekey::CreateAnew,
        (RekeyResponse::Refused, _) => AfterRekey::KeepOld,
    }
}

#[cfg(test)]
mod table;
