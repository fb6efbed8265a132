//! Security Association payload (RFC 7296 §3.3).

use std::borrow::Cow;
use std::fmt;

use crate::codec::{DecodeError, Reader, patch_length};
use crate::registry::{
    AttributeType, EncrId, IntegId, KeMethodId, PrfId, ProtocolId, SequenceNumbers, TransformType,
};

/// SPI of a proposal: 0 octets (a first IKE SA), 4 (AH, ESP) or 8 (IKE rekey).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Spi {
    /// No SPI.
    #[default]
    None,
    /// SPI of AH or ESP.
    Esp(u32),
    /// SPI of an IKE SA.
    Ike(u64),
}

/// The body of an SA payload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sa {
    /// Proposals in the sender's order of preference.
    pub proposals: Vec<Proposal>,
}

/// One proposal substructure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Proposal number, from 1.
    pub number: u8,
    /// Protocol.
    pub protocol: ProtocolId,
    /// SPI.
    pub spi: Spi,
    /// Transforms.
    pub transforms: Vec<Transform>,
}

/// One transform substructure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transform {
    /// Transform type.
    pub kind: TransformType,
    /// Transform ID in the registry of its type.
    pub id: u16,
    /// Key Length attribute in bits.
    pub key_bits: Option<u16>,
    /// True if an attribute not known here is present; such a transform must not be chosen
    /// (RFC 7296 §3.3.6).
    pub unknown_attribute: bool,
}

/// The most proposals that are read from one SA payload.
const MAX_PROPOSALS: usize = 255;
/// "Last Substruc" of a proposal that is followed by another.
const MORE_PROPOSALS: u8 = 2;
/// "Last Substruc" of a transform that is followed by another.
const MORE_TRANSFORMS: u8 = 3;
/// Octets of a proposal in front of its SPI.
const PROPOSAL_HEADER_LEN: usize = 8;
/// Octets of a transform in front of its attributes.
const TRANSFORM_HEADER_LEN: usize = 8;
/// Format bit of an attribute: set for type/value, clear for type/length/value.
const ATTRIBUTE_TV: u16 = 0x8000;

impl Spi {
    /// Octets on the wire.
    #[inline]
    pub fn len(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Esp(_) => 4,
            Self::Ike(_) => 8,
        }
    }

    /// True for an SPI of 8 octets that a rekeyed IKE SA can have (RFC 7296 §3.1), and one of 4 octets
    /// that an ESP SA can have.
    #[inline]
    pub fn is_usable(self) -> bool {
        //= https://www.rfc-editor.org/rfc/rfc4303#section-2.1
        //# The set of SPI values in the range 1 through 255 are reserved by the
        //# Internet Assigned Numbers Authority (IANA) for future use
        // And zero is never sent.
        match self {
            Self::None => false,
            Self::Esp(spi) => spi > 255,
            Self::Ike(spi) => spi != 0,
        }
    }

    /// True without an SPI.
    #[inline]
    pub fn is_empty(self) -> bool {
        self == Self::None
    }

    /// Appends the octets.
    pub fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::None => {}
            Self::Esp(spi) => out.extend_from_slice(&spi.to_be_bytes()),
            Self::Ike(spi) => out.extend_from_slice(&spi.to_be_bytes()),
        }
    }
}

impl Sa {
    /// Decodes the body of an SA payload.
    ///
    /// Counts, lengths and "Last Substruc" fields must agree. Proposal numbers are left alone: an
    /// answer repeats the number of the proposal it accepts.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let mut proposals = Vec::new();
        loop {
            if proposals.len() == MAX_PROPOSALS {
                return Err(DecodeError::TooMany("proposals"));
            }
            let more = more(&mut r, MORE_PROPOSALS, "proposal")?;
            proposals.push(Proposal::decode(&mut substructure(&mut r, "proposal")?)?);
            if !more {
                break;
            }
        }
        r.all("the last proposal")?;
        Ok(Self { proposals })
    }

    /// The proposals whose SPI is as it must be.
    pub fn with_spi(&self, must: impl Fn(Spi) -> bool) -> Cow<'_, Self> {
        if self.proposals.iter().all(|proposal| must(proposal.spi)) {
            return Cow::Borrowed(self);
        }
        let proposals = self.proposals.iter().filter(|proposal| must(proposal.spi));
        Cow::Owned(Self { proposals: proposals.cloned().collect() })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for (i, proposal) in self.proposals.iter().enumerate() {
            let more = i + 1 < self.proposals.len();
            proposal.encode(if more { MORE_PROPOSALS } else { 0 }, out);
        }
    }
}

impl Proposal {
    /// The transforms of type `kind`, in order.
    #[inline]
    pub fn of_type(&self, kind: TransformType) -> impl Iterator<Item = &Transform> {
        self.transforms.iter().filter(move |t| t.kind == kind)
    }

    /// `r` holds the substructure after its length field.
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let number = r.u8("proposal")?;
        let protocol = ProtocolId(r.u8("proposal")?);
        let spi_size = r.u8("proposal")?;
        let count = r.u8("proposal")?;
        let spi = match (protocol, spi_size) {
            (ProtocolId::IKE, 0) => Spi::None,
            (ProtocolId::IKE, 8) => Spi::Ike(r.u64("proposal SPI")?),
            (ProtocolId::AH | ProtocolId::ESP, 4) => Spi::Esp(r.u32("proposal SPI")?),
            (ProtocolId::IKE | ProtocolId::AH | ProtocolId::ESP, _) => {
                return Err(DecodeError::Invalid("proposal SPI size"));
            }
            // Not chosen in any case, so its SPI is not kept.
            _ => {
                r.take(usize::from(spi_size), "proposal SPI")?;
                Spi::None
            }
        };
        let most = r.rest().len() / TRANSFORM_HEADER_LEN;
        let mut transforms = Vec::with_capacity(usize::from(count).min(most));
        for i in 1..=count {
            let more = more(r, MORE_TRANSFORMS, "transform")?;
            if more != (i < count) {
                return Err(DecodeError::Invalid("number of transforms"));
            }
            transforms.push(Transform::decode(substructure(r, "transform")?)?);
        }
        r.clone().all("the last transform")?;
        Ok(Self { number, protocol, spi, transforms })
    }

    fn encode(&self, last_substruc: u8, out: &mut Vec<u8>) {
        let Self { number, protocol, spi, transforms } = self;
        let start = out.len();
        let count = u8::try_from(transforms.len()).unwrap_or(u8::MAX);
        out.extend_from_slice(&[last_substruc, 0, 0, 0]);
        out.extend_from_slice(&[*number, protocol.0, spi.len(), count]);
        spi.encode(out);
        for (i, transform) in transforms.iter().take(usize::from(count)).enumerate() {
            let more = i + 1 < usize::from(count);
            transform.encode(if more { MORE_TRANSFORMS } else { 0 }, out);
        }
        patch_length(out, start, start + 2);
    }
}

impl Transform {
    /// A transform without attributes.
    #[inline]
    pub const fn new(kind: TransformType, id: u16) -> Self {
        Self { kind, id, key_bits: None, unknown_attribute: false }
    }

    /// A transform with a Key Length attribute.
    pub const fn with_key(kind: TransformType, id: u16, key_bits: u16) -> Self {
        Self { kind, id, key_bits: Some(key_bits), unknown_attribute: false }
    }

    /// An encryption algorithm; `key_bits` 0 leaves the Key Length attribute out.
    pub const fn encr(id: EncrId, key_bits: u16) -> Self {
        let transform = Self::new(TransformType::ENCR, id.0);
        Self { key_bits: if key_bits == 0 { None } else { Some(key_bits) }, ..transform }
    }

    /// A pseudorandom function.
    pub const fn prf(id: PrfId) -> Self {
        Self::new(TransformType::PRF, id.0)
    }

    /// An integrity algorithm.
    pub const fn integ(id: IntegId) -> Self {
        Self::new(TransformType::INTEG, id.0)
    }

    /// A key exchange method.
    pub const fn ke(id: KeMethodId) -> Self {
        Self::new(TransformType::KE, id.0)
    }

    /// Extended sequence numbers or not.
    pub const fn esn(esn: bool) -> Self {
        let id = if esn { SequenceNumbers::EXT_SEQ } else { SequenceNumbers::NO_EXT_SEQ };
        Self::new(TransformType::SN, id.0)
    }

    /// `r` holds the substructure after its length field.
    fn decode(mut r: Reader<'_>) -> Result<Self, DecodeError> {
        let kind = TransformType(r.u8("transform")?);
        r.u8("transform")?; // RESERVED
        let mut transform = Self::new(kind, r.u16("transform")?);
        while !r.is_empty() {
            let tag = r.u16("transform attribute")?;
            let value = r.u16("transform attribute")?;
            let key_length = ATTRIBUTE_TV | AttributeType::KEY_LENGTH.0;
            if tag == key_length && transform.key_bits.is_none() {
                transform.key_bits = Some(value);
                continue;
            }
            //= https://www.rfc-editor.org/rfc/rfc7296#section-3.3.6
            //# if the responder receives a transform that it does not understand, or one that
            //# contains a Transform Attribute it does not understand, it MUST consider this
            //# transform unacceptable
            transform.unknown_attribute = true;
            if tag & ATTRIBUTE_TV == 0 {
                r.take(usize::from(value), "transform attribute")?;
            }
        }
        Ok(transform)
    }

    /// Attributes that were not known are not kept, so they are not written either.
    fn encode(&self, last_substruc: u8, out: &mut Vec<u8>) {
        let Self { kind, id, key_bits, unknown_attribute: _ } = self;
        let start = out.len();
        out.extend_from_slice(&[last_substruc, 0, 0, 0, kind.0, 0]);
        out.extend_from_slice(&id.to_be_bytes());
        if let Some(bits) = key_bits {
            let tag = ATTRIBUTE_TV | AttributeType::KEY_LENGTH.0;
            out.extend_from_slice(&tag.to_be_bytes());
            out.extend_from_slice(&bits.to_be_bytes());
        }
        patch_length(out, start, start + 2);
    }
}

/// Reads a "Last Substruc" field: 0 for the last substructure, `more` for any other.
fn more(r: &mut Reader<'_>, more: u8, what: &'static str) -> Result<bool, DecodeError> {
    match r.u8(what)? {
        0 => Ok(false),
        value if value == more => Ok(true),
        _ => Err(DecodeError::Invalid("last substruc")),
    }
}

/// Reads RESERVED and the length of a substructure, and takes the rest of it. Its first octet has
/// been read.
fn substructure<'a>(r: &mut Reader<'a>, what: &'static str) -> Result<Reader<'a>, DecodeError> {
    const READ: usize = 4;
    const { assert!(PROPOSAL_HEADER_LEN == TRANSFORM_HEADER_LEN) };
    r.u8(what)?; // RESERVED
    let length = usize::from(r.u16(what)?);
    if length < PROPOSAL_HEADER_LEN {
        return Err(DecodeError::Invalid("substructure length"));
    }
    Ok(Reader::new(r.take(length - READ, what)?))
}

impl fmt::Display for Sa {
    /// All proposals as strongSwan logs them: `IKE:AES_GCM_16_256/…, IKE:…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, proposal) in self.proposals.iter().enumerate() {
            write!(f, "{}{proposal}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Proposal {
    /// As strongSwan logs it: protocol and transforms, integrity before PRF.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.protocol)?;
        let mut transforms: Vec<&Transform> = self.transforms.iter().collect();
        transforms.sort_by_key(|t| t.kind.display_rank());
        for (i, transform) in transforms.iter().enumerate() {
            write!(f, "{}{transform}", if i == 0 { "" } else { "/" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Transform {
    /// As strongSwan logs it: `AES_CBC_128`, `PRF_HMAC_SHA2_256`, `KE1_ML_KEM_768`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TransformType::ENCR => write!(f, "{}", EncrId(self.id))?,
            TransformType::PRF => write!(f, "{}", PrfId(self.id))?,
            TransformType::INTEG => write!(f, "{}", IntegId(self.id))?,
            TransformType::KE => write!(f, "{}", KeMethodId(self.id))?,
            TransformType::SN => write!(f, "{}", SequenceNumbers(self.id))?,
            kind => match kind.additional_ke() {
                Some(slot) => write!(f, "KE{}_{}", slot + 1, KeMethodId(self.id))?,
                None => write!(f, "{kind}:{}", self.id)?,
            },
        }
        if let Some(bits) = self.key_bits {
            write!(f, "_{bits}")?;
        }
        if self.unknown_attribute { f.write_str("+?") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Payload, assert_round_trip};

    /// Two proposals, the first with two transforms, one of which has a key length.
    const BODY: [u8; 48] = [
        2, 0, 0, 28, 1, 1, 0, 2, // proposal 1: IKE, no SPI
        3, 0, 0, 12, 1, 0, 0, 20, 0x80, 14, 1, 0, // AES-GCM-16, 256 bits
        0, 0, 0, 8, 4, 0, 0, 31, // Curve25519
        0, 0, 0, 20, 2, 3, 4, 1, 1, 2, 3, 4, // proposal 2: ESP, SPI
        0, 0, 0, 8, 5, 0, 0, 1, // ESN
    ];

    fn example() -> Sa {
        let gcm = Transform::encr(EncrId::AES_GCM_16, 256);
        let ke = Transform::ke(KeMethodId::CURVE_25519);
        let (protocol, spi) = (ProtocolId::IKE, Spi::None);
        let ike = Proposal { number: 1, protocol, spi, transforms: vec![gcm, ke] };
        let (protocol, spi) = (ProtocolId::ESP, Spi::Esp(0x0102_0304));
        let esp = Proposal { number: 2, protocol, spi, transforms: vec![Transform::esn(true)] };
        Sa { proposals: vec![ike, esp] }
    }

    #[test]
    fn round_trip() {
        assert_round_trip(&Payload::Sa(example()), &BODY);
        assert_eq!(example().to_string(), "IKE:AES_GCM_16_256/CURVE_25519, ESP:EXT_SEQ");
    }

    #[test]
    fn counts_and_lengths_must_agree() {
        let with = |at: usize, octet: u8| {
            let mut body = BODY;
            body[at] = octet;
            Sa::decode(&body)
        };
        let substruc = Err(DecodeError::Invalid("last substruc"));
        let count = Err(DecodeError::Invalid("number of transforms"));
        assert_eq!(with(0, 0), Err(DecodeError::Trailing("the last proposal")));
        assert_eq!(with(0, 3), substruc);
        assert_eq!(with(28, 2), Err(DecodeError::Truncated("proposal")));
        assert_eq!(with(8, 2), substruc);
        assert_eq!(with(8, 0), count);
        assert_eq!(with(20, 3), count);
        assert_eq!(with(7, 1), count);
        assert_eq!(with(7, 3), count);
        assert_eq!(with(47 - 13, 8), Err(DecodeError::Invalid("proposal SPI size")));
        assert_eq!(with(6, 4), Err(DecodeError::Invalid("proposal SPI size")));
        assert_eq!(with(3, 7), Err(DecodeError::Invalid("substructure length")));
        assert!(with(3, 27).is_err() && with(3, 29).is_err());
        assert!(with(11, 11).is_err() && with(11, 13).is_err());
        assert_eq!(Sa::decode(&[]), Err(DecodeError::Truncated("proposal")));
    }

    #[test]
    fn unknown_attributes_are_marked() {
        let with = |attributes: &[u8]| {
            let mut body = vec![0, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 20];
            body.extend_from_slice(attributes);
            body[3] = body.len() as u8;
            body[11] = body.len() as u8 - 8;
            Sa::decode(&body).map(|sa| sa.proposals[0].transforms[0])
        };
        let gcm = Transform::encr(EncrId::AES_GCM_16, 256);
        let odd = Transform { unknown_attribute: true, ..gcm };
        let bare = Transform { key_bits: None, ..odd };
        assert_eq!(with(&[0x80, 14, 1, 0]), Ok(gcm));
        assert_eq!(with(&[0x80, 14, 1, 0, 0x80, 99, 0, 0]), Ok(odd), "type/value");
        assert_eq!(with(&[0x80, 14, 1, 0, 0, 99, 0, 2, 7, 7]), Ok(odd), "type/length/value");
        assert_eq!(with(&[0x80, 14, 1, 0, 0x80, 14, 0, 128]), Ok(odd), "a second key length");
        assert_eq!(with(&[0, 14, 0, 2, 1, 0]), Ok(bare), "key length in the wrong format");
        assert_eq!(with(&[0, 99, 0, 3, 7, 7]), Err(DecodeError::Truncated("transform attribute")));
    }

    #[test]
    fn proposal_of_an_unknown_protocol_is_kept_for_what_it_is() {
        let body = [0, 0, 0, 18, 1, 9, 2, 1, 0xaa, 0xbb, 0, 0, 0, 8, 1, 0, 0, 20];
        let sa = Sa::decode(&body).unwrap();
        assert_eq!((sa.proposals[0].protocol, sa.proposals[0].spi), (ProtocolId(9), Spi::None));
    }
}
