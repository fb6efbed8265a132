//! Names of all nine forms that a certificate and its constraints may have (RFC 5280 §4.2.1.6).
//!
//! x509-cert does not read x400Address, and reads the content of ediPartyName. Here both are names of their form, no
//! more, so that one such name does not make a certificate unreadable.

use ike_proto::wire::der::{Der, SEQUENCE, context};

/// A GeneralName. Text is ASCII.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GeneralName {
    /// rfc822Name.
    Email(String),
    /// dNSName.
    Dns(String),
    /// uniformResourceIdentifier.
    Uri(String),
    /// directoryName: a DER Name.
    Directory(Vec<u8>),
    /// iPAddress: an address of 4 or 16 octets, or in a constraint an address and a mask.
    Address(Vec<u8>),
    /// otherName, x400Address, ediPartyName or registeredID, by its tag. The content is not read.
    Other(u8),
}

impl GeneralName {
    /// Reads the next name of `list`; `None` if it is malformed.
    pub fn read(list: &mut Der<'_>) -> Option<Self> {
        let tag = list.peek()?;
        let content = list.content(tag)?;
        let text = || {
            let text = content.is_ascii().then(|| std::str::from_utf8(content).ok());
            text.flatten().map(ToOwned::to_owned)
        };
        Some(match tag {
            RFC822_NAME => Self::Email(text()?),
            DNS_NAME => Self::Dns(text()?),
            URI => Self::Uri(text()?),
            DIRECTORY_NAME => {
                let mut name = Der::new(content);
                let element = name.element(SEQUENCE)?;
                name.end()?;
                Self::Directory(element.to_vec())
            }
            IP_ADDRESS => Self::Address(content.to_vec()),
            OTHER_NAME | X400_ADDRESS | EDI_PARTY_NAME | REGISTERED_ID => Self::Other(tag),
            _ => return None,
        })
    }

    /// Reads GeneralNames: a SEQUENCE of names, and nothing after it.
    pub fn read_all(value: &[u8]) -> Option<Vec<Self>> {
        let mut outer = Der::new(value);
        let mut list = outer.nested(SEQUENCE)?;
        outer.end()?;
        let mut names = Vec::new();
        while !list.is_empty() {
            names.push(Self::read(&mut list)?);
        }
        Some(names)
    }
}

const OTHER_NAME: u8 = context(0);
const RFC822_NAME: u8 = 0x81;
const DNS_NAME: u8 = 0x82;
const X400_ADDRESS: u8 = context(3);
const DIRECTORY_NAME: u8 = context(4);
const EDI_PARTY_NAME: u8 = context(5);
const URI: u8 = 0x86;
const IP_ADDRESS: u8 = 0x87;
const REGISTERED_ID: u8 = 0x88;
