//! A device's features, read over the netlink family `ethtool`.

use std::ffi::CString;
use std::io;

use netlink_bindings::ethtool::{BitsetBit, IterableBitset, OpFeaturesGetDo};
use netlink_bindings::nlctrl::OpGetfamilyDo;
use netlink_bindings::{ethtool, nlctrl};
use serde::Serialize;

use super::query::{Questions, Raw, Reply};

/// A feature of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Feature {
    /// In use.
    On,
    /// Not in use; `ethtool -K` can turn it on.
    Off,
    /// Not there.
    #[default]
    Missing,
}

/// The features that matter to ESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
pub struct EspFeatures {
    /// `esp-hw-offload`: crypto offload. Nothing tells whether a device does packet offload.
    pub crypto: Feature,
    /// `esp-tx-csum-hw-offload`: checksums inside ESP.
    pub checksum: Feature,
    /// `tx-esp-segmentation`: segmentation of packets inside ESP.
    pub segmentation: Feature,
}

/// A socket that asks for features.
#[derive(Debug)]
pub(super) struct Ethtool {
    questions: Questions,
    /// Number of the family; `None` if this kernel has none.
    family: Option<u16>,
}

impl Ethtool {
    pub(super) fn open() -> io::Result<Self> {
        let mut questions = Questions::open(netlink_sys::protocols::NETLINK_GENERIC)?;
        let family = family(&mut questions)?;
        Ok(Self { questions, family })
    }

    /// The features of the device with this name; all missing if the kernel cannot tell.
    pub(super) fn features(&mut self, name: &str) -> io::Result<EspFeatures> {
        let Some(family) = self.family else { return Ok(EspFeatures::default()) };
        let name = CString::new(name).map_err(io::Error::other)?;
        let mut request = ethtool::Request::new().op_features_get_do();
        // netlink-bindings 0.3.5 has the number of another request.
        request.header_mut().cmd = ETHTOOL_MSG_FEATURES_GET;
        // Names in place of positions, which are of no use without the names.
        request.encode().nested_header().push_dev_name(&name).push_flags(0);
        let question = Raw { kind: family, body: payload(&request) };
        match self.questions.ask(&question, Reply::One) {
            Ok(answers) => Ok(answers.first().map_or_else(EspFeatures::default, |a| read(&a.body))),
            // Loopback and some tunnels have no ethtool operations at all.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Ok(EspFeatures::default())
            }
            Err(error) => Err(error),
        }
    }
}

fn family(questions: &mut Questions) -> io::Result<Option<u16>> {
    let mut request = nlctrl::Request::new().op_getfamily_do();
    request.encode().push_family_name(c"ethtool");
    let question = Raw { kind: libc::GENL_ID_CTRL as u16, body: payload(&request) };
    match questions.ask(&question, Reply::One) {
        Ok(answers) => Ok(answers
            .first()
            .and_then(|answer| OpGetfamilyDo::decode_request(&answer.body).get_family_id().ok())),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn payload<R: netlink_bindings::traits::NetlinkRequest>(request: &R) -> Vec<u8> {
    request.payload().to_vec()
}

fn read(answer: &[u8]) -> EspFeatures {
    let features = OpFeaturesGetDo::decode_request(answer);
    let active = features.get_active().map(|set| names(&set)).unwrap_or_default();
    let changeable = features.get_hw().map(|set| names(&set)).unwrap_or_default();
    let fixed = features.get_nochange().map(|set| names(&set)).unwrap_or_default();
    let feature = |name: &str| {
        let has = |set: &[String]| set.iter().any(|feature| feature == name);
        if has(&active) {
            Feature::On
        } else if has(&changeable) && !has(&fixed) {
            Feature::Off
        } else {
            Feature::Missing
        }
    };
    EspFeatures {
        crypto: feature("esp-hw-offload"),
        checksum: feature("esp-tx-csum-hw-offload"),
        segmentation: feature("tx-esp-segmentation"),
    }
}

/// The names of the bits that are set. A set with a mask names bits that are not, too.
fn names(set: &IterableBitset<'_>) -> Vec<String> {
    let listed = set.get_nomask().is_ok();
    let Ok(bits) = set.get_bits() else { return Vec::new() };
    let mut names = Vec::new();
    for bit in bits.flatten() {
        let ethtool::BitsetBits::Bit(bit) = bit;
        let mut name = None;
        let mut value = listed;
        for part in bit.flatten() {
            match part {
                BitsetBit::Name(text) => name = Some(text.to_string_lossy().into_owned()),
                BitsetBit::Value(()) => value = true,
                BitsetBit::Index(_) => {}
            }
        }
        names.extend(name.filter(|_| value));
    }
    names
}

/// From linux/ethtool_netlink.h.
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
