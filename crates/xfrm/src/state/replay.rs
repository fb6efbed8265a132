//! Sequence numbers between [`Replay`] and the kernel's two forms.

use netlink_packet_xfrm::constants::XFRMA_REPLAY_ESN_MAX;
use netlink_packet_xfrm::{ReplayEsn, XfrmAttrs};

use super::{Direction, Replay};

/// How the kernel has a [`Replay`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KernelReplay {
    /// `replay_window` of the state's fixed part: the short form's window.
    pub short_window: u8,
    /// XFRMA_REPLAY_VAL or XFRMA_REPLAY_ESN_VAL.
    pub attribute: Option<XfrmAttrs>,
}

/// The form of replay state that the kernel accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A state to be made, in the form its window and ESN need. Numbers that are all zero are not said.
    New,
    /// A state that has the short form.
    Short,
    /// A state that has the long form, with a bitmap of so many words.
    Long {
        /// Length of the bitmap.
        words: u32,
    },
}

impl Replay {
    /// As the kernel takes it for a state of `direction` (`None` if it is not told), or why it would not.
    pub(crate) fn encode(
        &self,
        direction: Option<Direction>,
        form: Form,
    ) -> Result<KernelReplay, String> {
        if self.window > MAX_WINDOW {
            return Err(format!("a replay window of {} is over {MAX_WINDOW}", self.window));
        }
        if !self.esn && (self.sent > u64::from(u32::MAX) || self.received > u64::from(u32::MAX)) {
            return Err("sequence numbers over 32 bits without ESN".into());
        }
        // From 6.10 on, the kernel refuses settings of the other direction in a state of one direction.
        let outbound = direction == Some(Direction::Out);
        let inbound = direction == Some(Direction::In);
        let sent = if inbound { 0 } else { self.sent };
        let received = if outbound { 0 } else { self.received };
        let window = match self.window {
            _ if outbound => 0,
            // ESN needs a window: it guesses the high half by it. One packet is the smallest.
            0 if self.esn => 1,
            window => window,
        };
        let words = match form {
            Form::Long { words } => Some(words),
            Form::New if self.esn || window > 32 => Some(window.div_ceil(32)),
            Form::New | Form::Short => None,
        };
        if let Some(words) = words {
            let attribute = Some(self.long(sent, received, window, words));
            return Ok(KernelReplay { short_window: 0, attribute });
        }
        let bitmap = if outbound { 0 } else { self.bitmap.first().copied().unwrap_or(0) };
        let told = form == Form::Short || sent != 0 || received != 0 || bitmap != 0;
        let (oseq, seq) = (low(sent), low(received));
        let value = netlink_packet_xfrm::Replay { oseq, seq, bitmap };
        Ok(KernelReplay {
            short_window: u8::try_from(window).unwrap_or(32),
            attribute: told.then_some(XfrmAttrs::ReplayState(value)),
        })
    }

    fn long(&self, sent: u64, received: u64, window: u32, words: u32) -> XfrmAttrs {
        let mut bmp = vec![0; words as usize];
        for back in 0..window {
            let came =
                self.bitmap.get((back / 32) as usize).is_some_and(|w| w >> (back % 32) & 1 == 1);
            if came {
                let at = ring(low(received), back, window);
                if let Some(word) = bmp.get_mut((at / 32) as usize) {
                    *word |= 1 << (at % 32);
                }
            }
        }
        XfrmAttrs::ReplayStateEsn(ReplayEsn {
            bmp_len: words,
            oseq: low(sent),
            seq: low(received),
            oseq_hi: high(sent),
            seq_hi: high(received),
            replay_window: window,
            bmp,
        })
    }

    /// The form a state with these attributes has.
    pub(crate) fn form(attributes: &[XfrmAttrs]) -> Form {
        let long = attributes.iter().find_map(|attribute| match attribute {
            XfrmAttrs::ReplayStateEsn(long) => Some(long.bmp_len.min(MAX_WINDOW / 32)),
            _ => None,
        });
        long.map_or(Form::Short, |words| Form::Long { words })
    }

    /// From the kernel's long form, or the short one with its window. `esn` is XFRM_STATE_ESN.
    pub(crate) fn decode(attributes: &[XfrmAttrs], short_window: u8, esn: bool) -> Self {
        for attribute in attributes {
            match attribute {
                XfrmAttrs::ReplayStateEsn(long) => return Self::decode_long(long, esn),
                XfrmAttrs::ReplayState(short) => {
                    return Self {
                        esn,
                        window: short_window.into(),
                        sent: short.oseq.into(),
                        received: short.seq.into(),
                        bitmap: (short.bitmap != 0).then_some(short.bitmap).into_iter().collect(),
                    };
                }
                _ => {}
            }
        }
        Self { esn, window: short_window.into(), ..Self::default() }
    }

    fn decode_long(long: &ReplayEsn, esn: bool) -> Self {
        // The kernel's value must not set the size of a loop.
        let window = long.replay_window.min(MAX_WINDOW);
        let mut bitmap = vec![0_u32; window.div_ceil(32) as usize];
        for back in 0..window {
            let at = ring(long.seq, back, window);
            let came = long.bmp.get((at / 32) as usize).is_some_and(|w| w >> (at % 32) & 1 == 1);
            if came && let Some(word) = bitmap.get_mut((back / 32) as usize) {
                *word |= 1 << (back % 32);
            }
        }
        while bitmap.last() == Some(&0) {
            bitmap.pop();
        }
        Self {
            esn,
            window: long.replay_window,
            sent: u64::from(long.oseq_hi) << 32 | u64::from(long.oseq),
            received: u64::from(long.seq_hi) << 32 | u64::from(long.seq),
            bitmap,
        }
    }
}

/// Where the kernel's ring of `window` bits has the packet `back` before number `last`.
fn ring(last: u32, back: u32, window: u32) -> u32 {
    let latest = last.wrapping_sub(1) % window;
    (latest + window - back % window) % window
}

fn low(number: u64) -> u32 {
    (number & u64::from(u32::MAX)) as u32
}

fn high(number: u64) -> u32 {
    (number >> 32) as u32
}

/// Bits of the largest bitmap the kernel takes.
const MAX_WINDOW: u32 = XFRMA_REPLAY_ESN_MAX as u32;

#[cfg(test)]
mod tests {
    use super::*;

    fn long(replay: &Replay, direction: Option<Direction>) -> ReplayEsn {
        match replay.encode(direction, Form::New).unwrap().attribute {
            Some(XfrmAttrs::ReplayStateEsn(long)) => long,
            other => panic!("{other:?}"),
        }
    }

    /// The kernel's ring has packet number n in bit (n - 1) mod window.
    #[test]
    fn the_ring() {
        let replay = Replay {
            window: 64,
            received: 70,
            // 70, 68, and 7, the oldest in the window.
            bitmap: vec![0b101, 1 << 31],
            ..Replay::default()
        };
        let kernel = long(&replay, None);
        assert_eq!((kernel.seq, kernel.replay_window, kernel.bmp_len), (70, 64, 2));
        // (70 - 1) % 64 = 5, (68 - 1) % 64 = 3, (7 - 1) % 64 = 6.
        assert_eq!(kernel.bmp, [1 << 5 | 1 << 3 | 1 << 6, 0]);
        let back = Replay::decode(&[XfrmAttrs::ReplayStateEsn(kernel)], 0, false);
        assert_eq!(back, replay);
    }

    #[test]
    fn windows_and_directions() {
        let esn = |window| Replay { esn: true, window, ..Replay::default() };
        assert_eq!(long(&esn(0), None).replay_window, 1, "ESN needs a window");
        assert_eq!(long(&esn(0), Some(Direction::In)).bmp_len, 1);
        let out = long(&esn(4096), Some(Direction::Out));
        assert_eq!((out.replay_window, out.bmp_len), (0, 0));
        assert_eq!(long(&esn(4096), None).bmp_len, 128);
        assert_eq!(long(&esn(33), None).bmp_len, 2);
        assert!(esn(4097).encode(None, Form::New).is_err());

        let short = Replay { window: 32, ..Replay::default() };
        let kernel = short.encode(None, Form::New).unwrap();
        assert_eq!(kernel, KernelReplay { short_window: 32, attribute: None });
        assert!(matches!(
            short.encode(None, Form::Short).unwrap().attribute,
            Some(XfrmAttrs::ReplayState(_))
        ));
        let high = Replay { sent: 1 << 32, ..short };
        assert!(high.encode(None, Form::New).is_err(), "32 bits without ESN");
    }

    /// What only the other direction has would be refused.
    #[test]
    fn one_direction_has_one_number() {
        let both = Replay {
            esn: true,
            window: 64,
            sent: 5 << 32 | 1,
            received: 6 << 32 | 2,
            bitmap: vec![1],
        };
        let out = long(&both, Some(Direction::Out));
        assert_eq!((out.oseq, out.oseq_hi, out.seq, out.seq_hi), (1, 5, 0, 0));
        assert!(out.bmp.is_empty());
        let inbound = long(&both, Some(Direction::In));
        assert_eq!((inbound.oseq, inbound.oseq_hi, inbound.seq, inbound.seq_hi), (0, 0, 2, 6));
    }

    /// A kernel that says nonsense does not make us loop or allocate.
    #[test]
    fn nonsense_from_the_kernel() {
        let long = ReplayEsn { replay_window: u32::MAX, bmp_len: u32::MAX, ..ReplayEsn::default() };
        let replay = Replay::decode(&[XfrmAttrs::ReplayStateEsn(long.clone())], 0, true);
        assert_eq!(replay.window, u32::MAX);
        assert_eq!(Replay::form(&[XfrmAttrs::ReplayStateEsn(long)]), Form::Long { words: 128 });
    }
}
