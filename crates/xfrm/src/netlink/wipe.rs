//! Overwrites the keys in messages.

use netlink_packet_xfrm::{XfrmAttrs, XfrmMessage};
use zeroize::Zeroize;

/// Overwrites the keys in `message`; the rest stays.
pub(crate) fn message(message: &mut XfrmMessage) {
    match message {
        XfrmMessage::AddSa(sa) | XfrmMessage::UpdateSa(sa) => attributes(&mut sa.nlas),
        XfrmMessage::AllocSpi(spi) => attributes(&mut spi.nlas),
        XfrmMessage::DeleteSa(sa) | XfrmMessage::GetSa(sa) => attributes(&mut sa.nlas),
        XfrmMessage::Other((_, octets)) => octets.zeroize(),
        _ => {}
    }
}

/// Empties `buffer` and overwrites its content; its capacity stays.
pub(crate) fn octets(buffer: &mut Vec<u8>) {
    buffer.as_mut_slice().zeroize();
    buffer.clear();
}

/// Overwrites the keys in `attributes`.
pub(crate) fn attributes(attributes: &mut [XfrmAttrs]) {
    for attribute in attributes {
        match attribute {
            XfrmAttrs::AuthenticationAlg(alg)
            | XfrmAttrs::EncryptionAlg(alg)
            | XfrmAttrs::CompressionAlg(alg) => alg.alg_key.zeroize(),
            XfrmAttrs::AuthenticationAlgTrunc(alg) => alg.alg_key.zeroize(),
            XfrmAttrs::EncryptionAlgAead(alg) => alg.alg_key.zeroize(),
            _ => {}
        }
    }
}
