//! Reads a revocation list as a stream (RFC 5280 §5.1), so that of a long one no more than its serial numbers is in
//! memory.
//!
//! The reader takes every form of list that has the structure of RFC 5280 or of its first version. What it does not
//! understand does not make a list useless: its entries revoke, and [`Head::understood`] is false.

use std::io::{BufReader, Read};
use std::time::SystemTime;

use aws_lc_rs::digest::Context;
use der::Decode;
use ike_proto::wire::der::{
    BIT_STRING, Der, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, context,
};
use x509_cert::ext::pkix::crl::IssuingDistributionPoint;
use x509_cert::time::Time;

use super::proof::{Message, Proof, hash_of, is_known};
use super::serials::{Entry, Serials};
use crate::error::LoadError;
use crate::revocation::ocsp::ENUMERATED;
use crate::signed::Schemes;

/// A list, taken apart.
pub(super) struct Parts {
    pub head: Head,
    pub proof: Proof,
}

/// The signed content of a list.
pub(super) struct Head {
    pub issuer: Vec<u8>,
    pub this_update: SystemTime,
    pub next_update: Option<SystemTime>,
    pub serials: Serials,
    pub extensions: Extensions,
    /// False if a part of it means what this crate does not know, for instance a critical extension.
    pub understood: bool,
}

/// The extensions of a list (RFC 5280 §5.2).
#[derive(Default)]
pub(super) struct Extensions {
    /// DER of the IssuingDistributionPoint.
    pub scope: Option<Vec<u8>>,
    pub point: Option<IssuingDistributionPoint>,
    /// The cRLNumber: big-endian octets without leading zeros.
    pub number: Option<Vec<u8>>,
    /// The BaseCRLNumber of a delta list.
    pub base: Option<Vec<u8>>,
}

/// Reads one list, DER, of at most `most` octets, signed by one of `schemes` or a built-in one. One of at most `kept` octets
/// is kept whole.
///
/// # Errors
/// If it is no list, or a longer one.
pub(super) fn read(
    from: impl Read,
    schemes: Schemes,
    most: u64,
    kept: usize,
) -> Result<Parts, LoadError> {
    let mut stream = Stream::new(from, kept);
    let (tag, length) = stream.header(u64::MAX)?;
    if tag != SEQUENCE {
        return Err(MALFORMED);
    }
    if length > most {
        return Err(LoadError::TooLong { what: "revocation list", most: most as usize });
    }
    let end = stream.at + length;
    stream.start();
    let (tag, length) = stream.header(end)?;
    if tag != SEQUENCE {
        return Err(MALFORMED);
    }
    let (head, algorithm) = tbs(&mut stream, &schemes, length, most)?;
    let digest = stream.hash.take().map(Context::finish);
    let signed = stream.start..stream.whole.as_ref().map_or(0, Vec::len);
    let outer = stream.element(SEQUENCE, end, MAX_ALGORITHM)?;
    //= https://www.rfc-editor.org/rfc/rfc5280#section-5.1.1.2
    //# This field MUST contain the same algorithm identifier as the
    //# signature field in the sequence tbsCertList (Section 5.1.2.2).
    if outer != algorithm {
        return Err(LoadError::Malformed("revocation list: two signature algorithms"));
    }
    let bits = stream.element(BIT_STRING, end, MAX_SIGNATURE)?;
    let signature = Der::new(&bits).bits().ok_or(MALFORMED)?.to_vec();
    if stream.at != end || !stream.is_at_its_end()? {
        return Err(LoadError::Malformed("revocation list: octets after its end"));
    }
    let message = match (stream.whole, digest) {
        (Some(whole), _) => Message::Whole(whole, signed),
        (None, Some(digest)) => Message::Digest(digest),
        // Without a hash, all is kept.
        (None, None) => return Err(MALFORMED),
    };
    let proof = Proof { algorithm, signature, message, schemes };
    Ok(Parts { head, proof })
}

/// The TBSCertList of `length` octets, of a list of at most `most`, and the signature algorithm in it.
fn tbs<R: Read>(
    stream: &mut Stream<R>,
    schemes: &Schemes,
    length: u64,
    most: u64,
) -> Result<(Head, Vec<u8>), LoadError> {
    let end = stream.at + length;
    let mut understood = true;
    let (mut tag, mut length) = stream.header(end)?;
    if tag == INTEGER {
        let version = stream.content(length, MAX_VERSION)?;
        understood = matches!(version.as_slice(), [0 | VERSION_2]);
        (tag, length) = stream.header(end)?;
    }
    let algorithm = stream.whole_of(tag, length, SEQUENCE, MAX_ALGORITHM)?;
    stream.hash_by(&algorithm);
    // Nobody has verified the list yet. So one that no key can have signed is not read on, and one that must be kept
    // whole is not read if it is long.
    let by_anybody = (stream.kept as u64) < most;
    if by_anybody && !is_known(&algorithm, schemes) {
        return Err(LoadError::Unsupported("signature algorithm of the revocation list"));
    }
    if by_anybody && stream.hash.is_none() && end > MAX_UNHASHED {
        let what = "revocation list whose signature algorithm needs all of it";
        return Err(LoadError::TooLong { what, most: MAX_UNHASHED as usize });
    }
    let issuer = stream.element(SEQUENCE, end, MAX_NAME)?;
    let (tag, length) = stream.header(end)?;
    let this_update = read_time(&stream.time(tag, length)?);
    let this_update = this_update.ok_or(LoadError::Malformed("date of a revocation list"))?;
    let mut next = stream.optional(end)?;
    let mut next_update = None;
    if let Some((tag @ (UTC_TIME | GENERALIZED_TIME), length)) = next {
        // What the list revokes counts, whenever the next one is due.
        next_update = read_time(&stream.time(tag, length)?);
        understood &= next_update.is_some();
        next = stream.optional(end)?;
    }
    let mut serials = Serials::default();
    if let Some((SEQUENCE, length)) = next {
        understood &= entries(stream, length, &issuer, &mut serials)?;
        next = stream.optional(end)?;
    }
    let mut extensions = Extensions::default();
    if let Some((tag, length)) = next {
        if tag != context(0) {
            return Err(MALFORMED);
        }
        let list = stream.content(length, MAX_EXTENSIONS)?;
        understood &= extensions.read(&list).ok_or(MALFORMED)?;
    }
    if stream.at != end {
        return Err(MALFORMED);
    }
    serials.finish();
    let head = Head { issuer, this_update, next_update, serials, extensions, understood };
    Ok((head, algorithm))
}

/// The revokedCertificates of `length` octets; false if one of them has what this crate does not know.
//= https://www.rfc-editor.org/rfc/rfc5280#section-5.3.3
//# If this extension is not present on the first entry in an
//# indirect CRL, the certificate issuer defaults to the CRL issuer.  On
//# subsequent entries in an indirect CRL, if this extension is not
//# present, the certificate issuer for the entry is the same as that for
//# the preceding entry.
fn entries<R: Read>(
    stream: &mut Stream<R>,
    length: u64,
    own: &[u8],
    serials: &mut Serials,
) -> Result<bool, LoadError> {
    let end = stream.at + length;
    let mut issuer = own.to_vec();
    let mut understood = true;
    let mut buffer = Vec::new();
    while stream.at < end {
        let (tag, length) = stream.header(end)?;
        if tag != SEQUENCE || length > MAX_ENTRY {
            return Err(MALFORMED);
        }
        stream.fill(&mut buffer, length)?;
        let mut content = Der::new(&buffer);
        let serial = content.content(INTEGER).filter(|octets| !octets.is_empty());
        let serial = serial.ok_or(MALFORMED)?;
        let time = content.peek().filter(|tag| matches!(*tag, UTC_TIME | GENERALIZED_TIME));
        content.content(time.ok_or(MALFORMED)?).ok_or(MALFORMED)?;
        let mut entry = Entry::Revoked;
        if !content.is_empty() {
            let list = content.nested(SEQUENCE).ok_or(MALFORMED)?;
            understood &= entry_extensions(list, &mut entry, &mut issuer).ok_or(MALFORMED)?;
        }
        content.end().ok_or(MALFORMED)?;
        if !serials.add(&issuer, serial, entry) {
            return Err(LoadError::Unsupported("revocation list with more than 1024 issuers"));
        }
    }
    Ok(understood)
}

/// Reads crlEntryExtensions; `Some(false)` if there is one that this crate does not know, `None` if they are malformed.
fn entry_extensions(mut list: Der<'_>, entry: &mut Entry, issuer: &mut Vec<u8>) -> Option<bool> {
    let mut understood = true;
    let mut has_reason = false;
    while !list.is_empty() {
        let extension = Extension::read(&mut list)?;
        match extension.oid {
            REASON_CODE if has_reason => (*entry, understood) = (Entry::Revoked, false),
            REASON_CODE => {
                has_reason = true;
                match Der::new(extension.value).content(ENUMERATED) {
                    Some([REMOVE_FROM_CRL]) => *entry = Entry::Removed,
                    Some([0..=10]) => {}
                    _ => understood = false,
                }
            }
            CERTIFICATE_ISSUER => {
                let named = directory_name(extension.value);
                understood &= named.is_some();
                // Nobody has the empty name.
                *issuer = named.unwrap_or_default().to_vec();
            }
            INVALIDITY_DATE => {}
            _ => understood &= !extension.critical,
        }
    }
    Some(understood)
}

/// The first directoryName of GeneralNames, a DER Name.
fn directory_name(names: &[u8]) -> Option<&[u8]> {
    let mut outer = Der::new(names);
    let mut names = outer.nested(SEQUENCE)?;
    outer.end()?;
    while !names.is_empty() {
        let tag = names.peek()?;
        let content = names.content(tag)?;
        if tag == context(4) {
            return Der::new(content).element(SEQUENCE);
        }
    }
    None
}

struct Extension<'a> {
    /// Content octets of the object identifier.
    oid: &'a [u8],
    critical: bool,
    value: &'a [u8],
}

impl<'a> Extension<'a> {
    fn read(list: &mut Der<'a>) -> Option<Self> {
        let mut extension = list.nested(SEQUENCE)?;
        let oid = extension.content(OBJECT_IDENTIFIER)?;
        let critical = extension.peek()? == BOOLEAN && extension.content(BOOLEAN)? != [0];
        let value = extension.content(OCTET_STRING)?;
        extension.end()?;
        Some(Self { oid, critical, value })
    }
}

impl Extensions {
    /// Reads crlExtensions; `Some(false)` if there is one that this crate does not know, `None` if they are malformed.
    fn read(&mut self, list: &[u8]) -> Option<bool> {
        let mut outer = Der::new(list);
        let mut list = outer.nested(SEQUENCE)?;
        outer.end()?;
        let mut understood = true;
        let mut seen = Vec::new();
        while !list.is_empty() {
            let extension = Extension::read(&mut list)?;
            understood &= !seen.contains(&extension.oid);
            seen.push(extension.oid);
            if seen.len() > MAX_COUNT {
                return None;
            }
            let number = || Der::new(extension.value).unsigned().map(<[u8]>::to_vec);
            match extension.oid {
                CRL_NUMBER => {
                    self.number = number();
                    understood &= self.number.is_some();
                }
                DELTA_CRL_INDICATOR => {
                    // Without a number it is the delta of no list.
                    understood &= number().is_some();
                    self.base = Some(number().unwrap_or_default());
                }
                ISSUING_DISTRIBUTION_POINT => {
                    self.point = IssuingDistributionPoint::from_der(extension.value).ok();
                    understood &= self.point.is_some();
                    self.scope = Some(extension.value.to_vec());
                }
                AUTHORITY_KEY_IDENTIFIER | ISSUER_ALT_NAME | FRESHEST_CRL | AUTHORITY_INFO => {}
                _ => understood &= !extension.critical,
            }
        }
        Some(understood)
    }
}

/// DER, element by element.
struct Stream<R> {
    from: BufReader<R>,
    /// How many octets were read.
    at: u64,
    /// All that was read, until it is too long to be kept.
    whole: Option<Vec<u8>>,
    /// Most octets that are kept, if what was hashed is enough.
    kept: usize,
    /// Where the hashed part begins in `whole`.
    start: usize,
    /// What the signature signs, if it signs a hash.
    hash: Option<Context>,
}

impl<R: Read> Stream<R> {
    fn new(from: R, kept: usize) -> Self {
        let from = BufReader::with_capacity(BUFFER, from);
        Self { from, at: 0, whole: Some(Vec::new()), kept, start: 0, hash: None }
    }

    /// The signed part begins here.
    fn start(&mut self) {
        self.start = self.whole.as_ref().map_or(0, Vec::len);
    }

    /// Hashes from the start of the signed part on, if `algorithm` signs a hash.
    fn hash_by(&mut self, algorithm: &[u8]) {
        let hashed = self.whole.as_ref().and_then(|whole| whole.get(self.start..));
        self.hash = hash_of(algorithm).zip(hashed).map(|(hash, hashed)| {
            let mut context = Context::new(hash);
            context.update(hashed);
            context
        });
    }

    fn exact(&mut self, octets: &mut [u8]) -> Result<(), LoadError> {
        self.from.read_exact(octets).map_err(|_| LoadError::Nothing("whole revocation list"))?;
        self.at += octets.len() as u64;
        if let Some(hash) = &mut self.hash {
            hash.update(octets);
        }
        if let Some(whole) = &mut self.whole {
            whole.extend_from_slice(octets);
            if whole.len() > self.kept && self.hash.is_some() {
                self.whole = None;
            }
        }
        Ok(())
    }

    /// Tag and length of the next element, which ends at `end` at the latest.
    fn header(&mut self, end: u64) -> Result<(u8, u64), LoadError> {
        let mut start = [0; 2];
        self.exact(&mut start)?;
        let [tag, first] = start;
        let length = match first {
            0..=0x7f => u64::from(first),
            0x81..=0x84 => {
                let mut length = 0;
                for _ in 0x80..first {
                    let mut octet = [0];
                    self.exact(&mut octet)?;
                    length = length << 8 | u64::from(octet[0]);
                }
                // The shortest form only.
                let least = if first == 0x81 { 0x80 } else { 1 << (8 * (first - 0x81)) };
                if length < least {
                    return Err(MALFORMED);
                }
                length
            }
            _ => return Err(MALFORMED),
        };
        let fits = self.at.checked_add(length).is_some_and(|after| after <= end);
        if tag & 0x1f == 0x1f || !fits {
            return Err(MALFORMED);
        }
        Ok((tag, length))
    }

    /// As [`header`](Self::header); `None` at `end`.
    fn optional(&mut self, end: u64) -> Result<Option<(u8, u64)>, LoadError> {
        if self.at == end { Ok(None) } else { self.header(end).map(Some) }
    }

    /// The next `length` octets.
    fn content(&mut self, length: u64, most: u64) -> Result<Vec<u8>, LoadError> {
        if length > most {
            return Err(MALFORMED);
        }
        let mut content = Vec::new();
        self.fill(&mut content, length)?;
        Ok(content)
    }

    fn fill(&mut self, buffer: &mut Vec<u8>, length: u64) -> Result<(), LoadError> {
        let length = usize::try_from(length).map_err(|_| MALFORMED)?;
        buffer.clear();
        buffer.resize(length, 0);
        self.exact(buffer)
    }

    /// The next element with its header.
    fn element(&mut self, tag: u8, end: u64, most: u64) -> Result<Vec<u8>, LoadError> {
        let (found, length) = self.header(end)?;
        self.whole_of(found, length, tag, most)
    }

    /// The element of which the header is read, with its header.
    fn whole_of(
        &mut self,
        found: u8,
        length: u64,
        tag: u8,
        most: u64,
    ) -> Result<Vec<u8>, LoadError> {
        if found != tag {
            return Err(MALFORMED);
        }
        let content = self.content(length, most)?;
        let mut element = Vec::new();
        ike_proto::wire::der::push(&mut element, tag, &[&content]);
        Ok(element)
    }

    /// A date, DER.
    fn time(&mut self, tag: u8, length: u64) -> Result<Vec<u8>, LoadError> {
        self.whole_of(tag, length, tag, MAX_TIME)
    }

    fn is_at_its_end(&mut self) -> Result<bool, LoadError> {
        let more = self.from.read(&mut [0]);
        more.map(|more| more == 0).map_err(|_| LoadError::Nothing("whole revocation list"))
    }
}

/// The date in DER; `None` if it is none.
fn read_time(time: &[u8]) -> Option<SystemTime> {
    Time::from_der(time).ok().map(|time| time.to_system_time())
}

const MALFORMED: LoadError = LoadError::Malformed("revocation list");

const BUFFER: usize = 1 << 16;
const MAX_VERSION: u64 = 8;
/// Most octets of a list whose signature signs the whole list and no hash of it: half a million certificates.
const MAX_UNHASHED: u64 = 16 * 1024 * 1024;
const MAX_ALGORITHM: u64 = 1024;
const MAX_NAME: u64 = 1 << 16;
const MAX_TIME: u64 = 32;
const MAX_ENTRY: u64 = 1 << 16;
const MAX_EXTENSIONS: u64 = 1 << 20;
const MAX_SIGNATURE: u64 = 1 << 17;
/// Most extensions of a list.
const MAX_COUNT: usize = 64;

const VERSION_2: u8 = 1;
const BOOLEAN: u8 = 0x01;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const REMOVE_FROM_CRL: u8 = 8;

const ISSUER_ALT_NAME: &[u8] = &[0x55, 0x1d, 18];
const CRL_NUMBER: &[u8] = &[0x55, 0x1d, 20];
const REASON_CODE: &[u8] = &[0x55, 0x1d, 21];
const INVALIDITY_DATE: &[u8] = &[0x55, 0x1d, 24];
const DELTA_CRL_INDICATOR: &[u8] = &[0x55, 0x1d, 27];
const ISSUING_DISTRIBUTION_POINT: &[u8] = &[0x55, 0x1d, 28];
const CERTIFICATE_ISSUER: &[u8] = &[0x55, 0x1d, 29];
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 35];
const FRESHEST_CRL: &[u8] = &[0x55, 0x1d, 46];
/// authorityInfoAccess.
const AUTHORITY_INFO: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 1];
