//! Parts that netlink-packet-xfrm 0.5 lacks: constants of newer kernels, attributes behind EXPIRE and MAPPING,
//! arrays of XFRMA_MIGRATE, and length checks before its parsers, which index short input.

use netlink_packet_core::{DefaultNla, Emitable, Nla, NlasIterator, Parseable};
use netlink_packet_xfrm::constants::{
    XFRM_MSG_ACQUIRE, XFRM_MSG_ALLOCSPI, XFRM_MSG_DELPOLICY, XFRM_MSG_DELSA, XFRM_MSG_EXPIRE,
    XFRM_MSG_FLUSHSA, XFRM_MSG_GETAE, XFRM_MSG_GETDEFAULT, XFRM_MSG_GETPOLICY, XFRM_MSG_GETSA,
    XFRM_MSG_GETSADINFO, XFRM_MSG_GETSPDINFO, XFRM_MSG_MAPPING, XFRM_MSG_MIGRATE, XFRM_MSG_NEWAE,
    XFRM_MSG_NEWPOLICY, XFRM_MSG_NEWSA, XFRM_MSG_NEWSADINFO, XFRM_MSG_NEWSPDINFO,
    XFRM_MSG_POLEXPIRE, XFRM_MSG_REPORT, XFRM_MSG_SETDEFAULT, XFRM_MSG_UPDPOLICY, XFRM_MSG_UPDSA,
    XFRMA_MIGRATE,
};
use netlink_packet_xfrm::{
    UserMigrate, XFRM_ASYNC_EVENT_ID_LEN, XFRM_USER_ACQUIRE_LEN, XFRM_USER_EXPIRE_LEN,
    XFRM_USER_MAPPING_LEN, XFRM_USER_MIGRATE_LEN, XFRM_USER_POLICY_DEFAULT_LEN,
    XFRM_USER_POLICY_EXPIRE_LEN, XFRM_USER_POLICY_ID_LEN, XFRM_USER_POLICY_INFO_LEN,
    XFRM_USER_REPORT_LEN, XFRM_USER_SA_ID_LEN, XFRM_USER_SA_INFO_LEN, XFRM_USER_SPI_INFO_LEN,
    XfrmAttrs,
};

/// Direction of a state, `u8` (Linux 6.10).
pub(crate) const XFRMA_SA_DIR: u16 = 33;
/// NAT keepalive by the kernel, `u32` seconds (6.11).
pub(crate) const XFRMA_NAT_KEEPALIVE_INTERVAL: u16 = 34;
/// CPU of a state, `u32` (6.12).
pub(crate) const XFRMA_SA_PCPU: u16 = 35;
/// How long to wait for a missing packet, `u32` microseconds (6.14, as the rest of IP-TFS).
pub(crate) const XFRMA_IPTFS_DROP_TIME: u16 = 36;
/// Reorder window, `u16` packets.
pub(crate) const XFRMA_IPTFS_REORDER_WINDOW: u16 = 37;
/// Flag.
pub(crate) const XFRMA_IPTFS_DONT_FRAG: u16 = 38;
/// How long to collect packets, `u32` microseconds.
pub(crate) const XFRMA_IPTFS_INIT_DELAY: u16 = 39;
/// Octets that may wait, `u32`.
pub(crate) const XFRMA_IPTFS_MAX_QSIZE: u16 = 40;
/// Size of outer packets, `u32`.
pub(crate) const XFRMA_IPTFS_PKT_SIZE: u16 = 41;

/// Values of [`XFRMA_SA_DIR`].
pub(crate) const XFRM_SA_DIR_IN: u8 = 1;
/// See [`XFRM_SA_DIR_IN`].
pub(crate) const XFRM_SA_DIR_OUT: u8 = 2;

/// Mode of IP-TFS.
pub(crate) const XFRM_MODE_IPTFS: u8 = 5;

/// Offload of whole packets (6.2), in the flags of XFRMA_OFFLOAD_DEV.
pub(crate) const XFRM_OFFLOAD_PACKET: u8 = 4;

/// Policies ask for states for each CPU (6.12).
pub(crate) const XFRM_POLICY_CPU_ACQUIRE: u8 = 4;

/// An attribute this module has the number of.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> XfrmAttrs {
    XfrmAttrs::Other(DefaultNla::new(kind, value.to_vec()))
}

/// The value of attribute `kind` that netlink-packet-xfrm does not know.
pub(crate) fn value(attributes: &[XfrmAttrs], kind: u16) -> Option<Vec<u8>> {
    attributes.iter().find_map(|attribute| match attribute {
        XfrmAttrs::Other(other) if other.kind() == kind => {
            let mut value = vec![0; other.value_len()];
            other.emit_value(&mut value);
            Some(value)
        }
        _ => None,
    })
}

/// The same as a number in this host's order.
pub(crate) fn value_u32(attributes: &[XfrmAttrs], kind: u16) -> Option<u32> {
    value(attributes, kind)?.try_into().ok().map(u32::from_ne_bytes)
}

/// The same as a number of two octets.
pub(crate) fn value_u16(attributes: &[XfrmAttrs], kind: u16) -> Option<u16> {
    value(attributes, kind)?.try_into().ok().map(u16::from_ne_bytes)
}

/// XFRMA_MIGRATE as the kernel takes it: an array.
pub(crate) fn migrations(entries: &[UserMigrate]) -> XfrmAttrs {
    let mut value = vec![0; entries.len() * XFRM_USER_MIGRATE_LEN];
    for (entry, octets) in entries.iter().zip(value.chunks_exact_mut(XFRM_USER_MIGRATE_LEN)) {
        entry.emit(octets);
    }
    attribute(XFRMA_MIGRATE, &value)
}

/// Octets in front of the attributes of a message of `message_type` and at least as many as its parser
/// reads without looking. `None` for a type that netlink-packet-xfrm does not parse.
pub(crate) fn fixed_length(message_type: u16) -> Option<usize> {
    Some(match message_type {
        XFRM_MSG_NEWSA | XFRM_MSG_UPDSA => XFRM_USER_SA_INFO_LEN,
        XFRM_MSG_DELSA | XFRM_MSG_GETSA => XFRM_USER_SA_ID_LEN,
        XFRM_MSG_NEWPOLICY | XFRM_MSG_UPDPOLICY => XFRM_USER_POLICY_INFO_LEN,
        XFRM_MSG_DELPOLICY | XFRM_MSG_GETPOLICY | XFRM_MSG_MIGRATE => XFRM_USER_POLICY_ID_LEN,
        XFRM_MSG_ALLOCSPI => XFRM_USER_SPI_INFO_LEN,
        XFRM_MSG_ACQUIRE => XFRM_USER_ACQUIRE_LEN,
        XFRM_MSG_EXPIRE => XFRM_USER_EXPIRE_LEN,
        XFRM_MSG_POLEXPIRE => XFRM_USER_POLICY_EXPIRE_LEN,
        XFRM_MSG_MAPPING => XFRM_USER_MAPPING_LEN,
        XFRM_MSG_NEWAE | XFRM_MSG_GETAE => XFRM_ASYNC_EVENT_ID_LEN,
        XFRM_MSG_REPORT => XFRM_USER_REPORT_LEN,
        XFRM_MSG_SETDEFAULT | XFRM_MSG_GETDEFAULT => XFRM_USER_POLICY_DEFAULT_LEN,
        XFRM_MSG_NEWSADINFO | XFRM_MSG_GETSADINFO | XFRM_MSG_NEWSPDINFO | XFRM_MSG_GETSPDINFO => 4,
        XFRM_MSG_FLUSHSA => 1,
        _ => return None,
    })
}

/// The attributes of a message of `message_type` whose parser drops them. Unreadable attributes are left out.
pub(crate) fn trailing_attributes(message_type: u16, payload: &[u8]) -> Vec<XfrmAttrs> {
    fixed_length(message_type)
        .and_then(|length| payload.get(length..))
        .map(|rest| {
            NlasIterator::new(rest)
                .filter_map(|attribute| XfrmAttrs::parse(&attribute.ok()?).ok())
                .collect()
        })
        .unwrap_or_default()
}
