//! EAP-MSCHAPv2 (draft-kamath-pppext-eap-mschapv2 over RFC 2759): a password proven both ways.
//!
//! ```text
//! OpCode (1) | MS-CHAPv2-ID (1) | MS-Length (2) | data
//! ```

pub mod crypto;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{PeerMethod, PeerStep, ServerMethod, ServerStep};
use crate::conversation::{Fill, Msk, shown};
use crate::packet::EapType;

const CHALLENGE: u8 = 1;
const RESPONSE: u8 = 2;
const SUCCESS: u8 = 3;
const FAILURE: u8 = 4;

type Password = Zeroizing<Vec<u8>>;

/// A message with its header.
fn message(code: u8, id: u8, data: &[&[u8]]) -> Vec<u8> {
    let len: usize = 4 + data.iter().map(|part| part.len()).sum::<usize>();
    let [high, low] = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    let mut octets = vec![code, id, high, low];
    data.iter().for_each(|part| octets.extend(*part));
    octets
}

/// OpCode, MS-CHAPv2-ID and data of a message; the length must be right.
fn parse(octets: &[u8]) -> Option<(u8, u8, &[u8])> {
    let [code, id, high, low, ref data @ ..] = *octets else { return None };
    let len = usize::from(u16::from_be_bytes([high, low]));
    (len == octets.len()).then_some((code, id, data))
}

/// A name without its domain (RFC 2759 §4).
fn without_domain(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|octet| *octet == b'\\') {
        Some(at) => &name[at + 1..],
        None => name,
    }
}

pub(crate) struct MsChapV2Peer {
    name: Vec<u8>,
    password: Password,
    random: Fill,
    /// What the authenticator must prove, and the key that goes with it.
    expected: Option<([u8; 20], Msk)>,
    proven: bool,
    complaint: Option<String>,
}

impl MsChapV2Peer {
    pub(crate) fn new(name: Vec<u8>, password: Password, random: Fill) -> Self {
        Self { name, password, random, expected: None, proven: false, complaint: None }
    }

    fn challenge(&mut self, id: u8, data: &[u8]) -> Option<Vec<u8>> {
        let (&16, rest) = data.split_first()? else { return None };
        let authenticator: [u8; 16] = rest.get(..16)?.try_into().ok()?;
        let mut peer = [0; 16];
        (self.random)(&mut peer);
        let user = without_domain(&self.name);
        let hash = crypto::nt_password_hash(&self.password);
        let response = crypto::nt_response(&authenticator, &peer, user, &hash);
        let proof = crypto::authenticator_response(&hash, &response, &peer, &authenticator, user);
        let msk = Msk::new(crypto::msk(&hash, &response).to_vec());
        self.expected = Some((proof, msk));
        Some(message(RESPONSE, id, &[&[49], &peer, &[0; 8], &response, &[0], &self.name]))
    }
}

impl PeerMethod for MsChapV2Peer {
    fn kind(&self) -> EapType {
        EapType::MSCHAPV2
    }

    fn process(&mut self, _identifier: u8, data: &[u8]) -> PeerStep {
        let fail = |why: &str| PeerStep::Fail(why.to_owned());
        match (parse(data), &self.expected) {
            (Some((CHALLENGE, id, data)), None) => match self.challenge(id, data) {
                Some(response) => PeerStep::Respond(response),
                None => fail("malformed MSCHAPv2 challenge"),
            },
            (Some((SUCCESS, _, data)), Some((expected, _))) => {
                let proof = data.strip_prefix(b"S=").and_then(|rest| unhex(rest.get(..40)?));
                match proof {
                    Some(proof) if bool::from(expected[..].ct_eq(&proof)) => {
                        self.proven = true;
                        PeerStep::Respond(vec![SUCCESS])
                    }
                    _ => fail("the authenticator does not know the password"),
                }
            }
            (Some((FAILURE, _, data)), Some(_)) if !self.proven => {
                self.complaint = Some(complaint(data));
                PeerStep::Respond(vec![FAILURE])
            }
            _ => fail("MSCHAPv2 message out of place or malformed"),
        }
    }

    fn finish(&mut self) -> Option<Option<Msk>> {
        let (_, msk) = self.expected.as_ref().filter(|_| self.proven)?;
        Some(Some(msk.clone()))
    }

    fn complaint(&self) -> Option<String> {
        self.complaint.clone()
    }
}

/// What a failure message says (RFC 2759 §6), safe in a log line.
fn complaint(data: &[u8]) -> String {
    let code = data.strip_prefix(b"E=").unwrap_or_default();
    let code: Vec<u8> = code.iter().copied().take_while(u8::is_ascii_digit).take(5).collect();
    let meaning = match &*code {
        b"646" => "restricted logon hours",
        b"647" => "account disabled",
        b"648" => "password expired",
        b"649" => "no dial-in permission",
        b"691" => "authentication failure",
        b"709" => "changing the password failed",
        _ => "no reason given",
    };
    format!("the authenticator refuses the password: {meaning} ({})", shown(&code))
}

fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |c: &u8| char::from(*c).to_digit(16);
    let pairs = digits.as_chunks::<2>().0.iter();
    pairs.map(|[high, low]| u8::try_from(digit(high)? << 4 | digit(low)?).ok()).collect()
}

fn hex(octets: &[u8]) -> Vec<u8> {
    octets.iter().flat_map(|octet| format!("{octet:02X}").into_bytes()).collect()
}

enum Stage {
    Challenged,
    /// The peer was told that it is right.
    Proven(Msk),
    /// It was told that it is wrong, and why for the log.
    Refused(String),
}

pub(crate) struct MsChapV2Server {
    name: Vec<u8>,
    identity: Vec<u8>,
    password: Option<Password>,
    challenge: [u8; 16],
    stage: Stage,
    begun: bool,
    id: u8,
}

impl MsChapV2Server {
    pub(crate) fn new(
        name: Vec<u8>,
        identity: Vec<u8>,
        password: Option<Password>,
        random: Fill,
    ) -> Self {
        let mut challenge = [0; 16];
        random(&mut challenge);
        let stage = Stage::Challenged;
        Self { name, identity, password, challenge, stage, begun: false, id: 0 }
    }

    fn response(&mut self, id: u8, next: u8, data: &[u8]) -> Result<Vec<u8>, &'static str> {
        const MALFORMED: &str = "malformed MSCHAPv2 response";
        let (&49, rest) = data.split_first().ok_or(MALFORMED)? else { return Err(MALFORMED) };
        let (value, name) = rest.split_at_checked(49).ok_or(MALFORMED)?;
        let peer: [u8; 16] = value[..16].try_into().map_err(|_| MALFORMED)?;
        let response: [u8; 24] = value[24..48].try_into().map_err(|_| MALFORMED)?;
        if id != self.id {
            return Err("MSCHAPv2 response to another challenge");
        }
        let user = without_domain(name);
        // Who has told one identity must not prove another.
        let itself = name == self.identity || user == without_domain(&self.identity);
        // Without a password the same is done with another, so that it takes as long.
        let known = self.password.is_some();
        let password = self.password.clone().unwrap_or_else(|| Zeroizing::new(b"x".to_vec()));
        let hash = crypto::nt_password_hash(&password);
        let expected = crypto::nt_response(&self.challenge, &peer, user, &hash);
        let right = bool::from(expected.ct_eq(&response));
        if !(right && known && itself) {
            let why = match (known, itself) {
                (_, false) => "another name than the EAP identity in MSCHAPv2",
                (false, _) => "no EAP secret",
                (true, true) => "wrong password",
            };
            self.stage = Stage::Refused(why.to_owned());
            // R=0: the peer shall not try again in this conversation (RFC 2759 §6).
            let text = [b"E=691 R=0 C=", &hex(&self.challenge)[..], b" V=3 M=failed"].concat();
            return Ok(message(FAILURE, next, &[&text]));
        }
        let challenge = &self.challenge;
        let proof = crypto::authenticator_response(&hash, &response, &peer, challenge, user);
        self.stage = Stage::Proven(Msk::new(crypto::msk(&hash, &response).to_vec()));
        Ok(message(SUCCESS, next, &[b"S=", &hex(&proof), b" M=OK"]))
    }
}

impl ServerMethod for MsChapV2Server {
    fn kind(&self) -> EapType {
        EapType::MSCHAPV2
    }

    fn start(&mut self, identifier: u8) -> Vec<u8> {
        self.id = identifier;
        message(CHALLENGE, identifier, &[&[16], &self.challenge, &self.name])
    }

    fn process(&mut self, identifier: u8, data: &[u8]) -> ServerStep {
        self.begun = true;
        match (&self.stage, data.first()) {
            (Stage::Challenged, Some(&RESPONSE)) => match parse(data) {
                Some((_, id, data)) => match self.response(id, identifier, data) {
                    Ok(message) => ServerStep::Request(message),
                    Err(why) => ServerStep::Fail(why.to_owned()),
                },
                None => ServerStep::Fail("malformed MSCHAPv2 response".to_owned()),
            },
            (Stage::Proven(msk), Some(&SUCCESS)) => ServerStep::Success(Some(msk.clone())),
            (Stage::Refused(why), _) => ServerStep::Fail(why.clone()),
            _ => ServerStep::Fail("MSCHAPv2 message out of place".to_owned()),
        }
    }

    fn has_begun(&self) -> bool {
        self.begun
    }
}
