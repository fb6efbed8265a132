//! Many changes at once.

use netlink_packet_xfrm::XfrmMessage;

use super::Kernel;
use super::states::state_id;
use crate::netlink::{Error, Kind, Transport};
use crate::policy::{self, Policy, PolicyId};
use crate::state::{State, StateId};

/// A change, for [`Kernel::apply`].
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// [`Kernel::add_state`].
    AddState(&'a State),
    /// [`Kernel::update_state`].
    UpdateState(&'a State),
    /// [`Kernel::delete_state`].
    DeleteState(&'a StateId),
    /// [`Kernel::set_policy`].
    SetPolicy(&'a Policy),
    /// [`Kernel::delete_policy`].
    DeletePolicy(&'a PolicyId),
}

impl<T: Transport> Kernel<T> {
    /// Makes `changes` in order, several in one call to the kernel, and returns the result of each: true if it was
    /// made, false if the item to be deleted does not exist. A failed change does not stop the others.
    pub fn apply<'a>(
        &mut self,
        changes: impl IntoIterator<Item = Change<'a>>,
    ) -> Vec<Result<bool, Error>> {
        let mut results = Vec::new();
        let mut requests = Vec::new();
        // Where in `results` the answer to each request goes, and whether it deletes.
        let mut places = Vec::new();
        for change in changes {
            let deletes = matches!(change, Change::DeleteState(_) | Change::DeletePolicy(_));
            match self.change_message(change) {
                Ok(request) => {
                    places.push((results.len(), deletes));
                    requests.push(request);
                    results.push(Ok(true));
                }
                Err(error) => results.push(Err(error)),
            }
            if requests.len() == GROUP {
                self.send_group(&mut requests, &mut places, &mut results);
            }
        }
        self.send_group(&mut requests, &mut places, &mut results);
        results
    }

    fn send_group(
        &mut self,
        requests: &mut Vec<(XfrmMessage, Kind)>,
        places: &mut Vec<(usize, bool)>,
        results: &mut [Result<bool, Error>],
    ) {
        let answers = self.transport.batch(std::mem::take(requests));
        for ((place, deletes), answer) in places.drain(..).zip(answers) {
            if let Some(result) = results.get_mut(place) {
                *result = match answer {
                    Ok(()) => Ok(true),
                    Err(error) if deletes && error.is_absent() => Ok(false),
                    Err(error) => Err(error),
                };
            }
        }
    }

    fn change_message(&mut self, change: Change<'_>) -> Result<(XfrmMessage, Kind), Error> {
        Ok(match change {
            Change::AddState(state) => {
                (XfrmMessage::AddSa(self.state_message("add state", state)?), Kind::Create)
            }
            Change::UpdateState(state) => {
                (XfrmMessage::UpdateSa(self.state_message("update state", state)?), Kind::Replace)
            }
            Change::DeleteState(id) => (XfrmMessage::DeleteSa(state_id(id)), Kind::Ack),
            Change::SetPolicy(policy) => {
                let message = self.policy_message("set policy", policy)?;
                (XfrmMessage::UpdatePolicy(message), Kind::Replace)
            }
            Change::DeletePolicy(id) => {
                (XfrmMessage::DeletePolicy(policy::encode_id(id)), Kind::Ack)
            }
        })
    }
}

/// Changes that are encoded before they are sent, so that a long list does not lie in memory twice.
const GROUP: usize = 256;
