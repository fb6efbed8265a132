//! Messages: trees of named values.

use crate::{DEEPEST, Error};

const SECTION_START: u8 = 1;
const SECTION_END: u8 = 2;
const KEY_VALUE: u8 = 3;
const LIST_START: u8 = 4;
const LIST_ITEM: u8 = 5;
const LIST_END: u8 = 6;

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Any octets; a text as a rule, numbers too.
    Text(Vec<u8>),
    /// Several of them.
    List(Vec<Vec<u8>>),
    /// More names.
    Section(Section),
}

/// Names and their values, in order. The whole of a message is a section without a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    entries: Vec<(String, Value)>,
}

impl Section {
    /// Without anything in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a text more.
    #[must_use]
    pub fn text(mut self, name: impl Into<String>, text: impl AsRef<[u8]>) -> Self {
        self.push(name, Value::Text(text.as_ref().to_vec()));
        self
    }

    /// With a list more.
    #[must_use]
    pub fn list<T: AsRef<[u8]>>(
        mut self,
        name: impl Into<String>,
        items: impl IntoIterator<Item = T>,
    ) -> Self {
        let items = items.into_iter().map(|item| item.as_ref().to_vec()).collect();
        self.push(name, Value::List(items));
        self
    }

    /// With a section more.
    #[must_use]
    pub fn section(mut self, name: impl Into<String>, section: Self) -> Self {
        self.push(name, Value::Section(section));
        self
    }

    /// Puts a value behind the others.
    pub fn push(&mut self, name: impl Into<String>, value: Value) {
        self.entries.push((name.into(), value));
    }

    /// The first value of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.entries.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The first value of this name, if it is a text, and one of characters.
    pub fn str(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.encode_at(out, 0)
    }

    fn encode_at(&self, out: &mut Vec<u8>, depth: usize) -> Result<(), Error> {
        for (name, value) in &self.entries {
            match value {
                Value::Text(text) => {
                    out.push(KEY_VALUE);
                    put_name(out, name)?;
                    put_value(out, text)?;
                }
                Value::List(items) => {
                    out.push(LIST_START);
                    put_name(out, name)?;
                    for item in items {
                        out.push(LIST_ITEM);
                        put_value(out, item)?;
                    }
                    out.push(LIST_END);
                }
                Value::Section(section) => {
                    if depth == DEEPEST {
                        return Err(Error::TooDeep);
                    }
                    out.push(SECTION_START);
                    put_section_name(out, name)?;
                    section.encode_at(out, depth + 1)?;
                    out.push(SECTION_END);
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn put_name(out: &mut Vec<u8>, name: &str) -> Result<(), Error> {
    let len = u8::try_from(name.len()).map_err(|_| Error::Name)?;
    if !is_name(name.as_bytes()) {
        return Err(Error::Name);
    }
    out.push(len);
    out.extend_from_slice(name.as_bytes());
    Ok(())
}

/// A section may go without a name, as that of global counters does.
fn put_section_name(out: &mut Vec<u8>, name: &str) -> Result<(), Error> {
    if name.is_empty() {
        out.push(0);
        return Ok(());
    }
    put_name(out, name)
}

fn put_value(out: &mut Vec<u8>, value: &[u8]) -> Result<(), Error> {
    let len = u16::try_from(value.len()).map_err(|_| Error::Value)?;
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(value);
    Ok(())
}

fn is_name(octets: &[u8]) -> bool {
    !octets.is_empty() && octets.iter().all(|octet| matches!(octet, b' '..=b'~'))
}

/// What is left of a segment.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn octet(&mut self) -> Result<u8, Error> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn name(&mut self) -> Result<String, Error> {
        let len = usize::from(self.octet()?);
        let octets = self.take(len)?;
        if !is_name(octets) {
            return Err(Error::Name);
        }
        String::from_utf8(octets.to_vec()).map_err(|_| Error::Name)
    }

    fn section_name(&mut self) -> Result<String, Error> {
        if self.rest.first() == Some(&0) {
            self.take(1)?;
            return Ok(String::new());
        }
        self.name()
    }

    fn value(&mut self) -> Result<Vec<u8>, Error> {
        let len = usize::from(u16::from_be_bytes([self.octet()?, self.octet()?]));
        Ok(self.take(len)?.to_vec())
    }

    /// All that is left, as a message.
    pub(crate) fn section(&mut self) -> Result<Section, Error> {
        let mut section = Section::new();
        // Those around it, each with the name that the one inside has in it.
        let mut outer: Vec<(Section, String)> = Vec::new();
        while !self.is_empty() {
            match self.octet()? {
                SECTION_START if outer.len() == DEEPEST => return Err(Error::TooDeep),
                SECTION_START => {
                    let name = self.section_name()?;
                    outer.push((std::mem::take(&mut section), name));
                }
                SECTION_END => {
                    let (around, name) = outer.pop().ok_or(Error::Element(SECTION_END))?;
                    let inside = std::mem::replace(&mut section, around);
                    section.push(name, Value::Section(inside));
                }
                KEY_VALUE => {
                    let name = self.name()?;
                    section.push(name, Value::Text(self.value()?));
                }
                LIST_START => {
                    let name = self.name()?;
                    section.push(name, Value::List(self.list()?));
                }
                other => return Err(Error::Element(other)),
            }
        }
        if outer.is_empty() { Ok(section) } else { Err(Error::Open) }
    }

    fn list(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        let mut items = Vec::new();
        while !self.is_empty() {
            match self.octet()? {
                LIST_ITEM => items.push(self.value()?),
                LIST_END => return Ok(items),
                other => return Err(Error::Element(other)),
            }
        }
        Err(Error::Open)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Packet;

    /// The example of strongSwan's documentation of the protocol.
    const DOCUMENTED: &[u8] = b"\x03\x04key1\0\x06value1\x01\x08section1\x01\x0bsub-section\
        \x03\x04key2\0\x06value2\x02\x04\x05list1\x05\0\x05item1\x05\0\x05item2\x06\x02";

    fn documented() -> Section {
        Section::new().text("key1", "value1").section(
            "section1",
            Section::new()
                .section("sub-section", Section::new().text("key2", "value2"))
                .list("list1", ["item1", "item2"]),
        )
    }

    #[test]
    fn the_documented_example_is_read_and_written() {
        assert_eq!(Reader::new(DOCUMENTED).section(), Ok(documented()));
        let mut out = Vec::new();
        documented().encode(&mut out).unwrap();
        assert_eq!(out, DOCUMENTED);
    }

    #[test]
    fn no_part_of_a_message_is_one_unless_all_is_closed() {
        // Behind key1, and at its beginning and end.
        let whole = [0, 14, DOCUMENTED.len()];
        for len in 0..=DOCUMENTED.len() {
            let read = Reader::new(&DOCUMENTED[..len]).section();
            assert_eq!(read.is_ok(), whole.contains(&len), "{len}: {read:?}");
        }
    }

    #[test]
    fn a_section_may_go_without_a_name() {
        let section = Section::new().section("", Section::new().text("k", "v"));
        let mut out = Vec::new();
        section.encode(&mut out).unwrap();
        assert_eq!(out, b"\x01\x00\x03\x01k\0\x01v\x02");
        assert_eq!(Reader::new(&out).section(), Ok(section));
    }

    #[test]
    fn elements_where_they_do_not_belong_are_refused() {
        for (message, error) in [
            (&b"\x02"[..], Error::Element(2)),
            (b"\x05\0\x01x", Error::Element(5)),
            (b"\x06", Error::Element(6)),
            (b"\x00", Error::Element(0)),
            (b"\x04\x01l\x03\x01k\0\0\x06", Error::Element(3)),
            (b"\x04\x01l\x04\x01m\x06\x06", Error::Element(4)),
            (b"\x04\x01l\x02", Error::Element(2)),
            (b"\x04\x01l", Error::Open),
            (b"\x01\x01s", Error::Open),
            (b"\x03\x00\0\0", Error::Name),
        ] {
            assert_eq!(Reader::new(message).section(), Err(error), "{message:?}");
        }
    }

    #[test]
    fn sections_are_as_deep_as_allowed_and_no_deeper() {
        let deep = |depth: usize| [b"\x01\x01s".repeat(depth), b"\x02".repeat(depth)].concat();
        let read = Reader::new(&deep(DEEPEST)).section().unwrap();
        let mut out = Vec::new();
        read.encode(&mut out).unwrap();
        assert_eq!(out, deep(DEEPEST));
        assert_eq!(Reader::new(&deep(DEEPEST + 1)).section(), Err(Error::TooDeep));
        let deeper = Section::new().section("s", read);
        assert_eq!(deeper.encode(&mut Vec::new()), Err(Error::TooDeep));
    }

    fn any_section() -> impl Strategy<Value = Section> {
        let text = proptest::collection::vec(any::<u8>(), 0..20);
        let leaf = prop_oneof![
            text.clone().prop_map(Value::Text),
            proptest::collection::vec(text, 0..4).prop_map(Value::List),
        ];
        let value = leaf.prop_recursive(4, 32, 4, |inner| {
            proptest::collection::vec(("[ -~]{1,9}", inner), 0..4)
                .prop_map(|entries| Value::Section(Section { entries }))
        });
        proptest::collection::vec(("[ -~]{1,9}", value), 0..5)
            .prop_map(|entries| Section { entries })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(name in "[ -~]{1,255}", section in any_section()) {
            let packet = Packet::Event(name, section);
            let segment = packet.encode().unwrap();
            let len = u32::from_be_bytes(segment[..4].try_into().unwrap());
            prop_assert_eq!(len as usize, segment.len() - 4);
            prop_assert_eq!(Packet::decode(&segment[4..]), Ok(packet));
        }

        #[test]
        fn anything_is_read_or_refused(octets in proptest::collection::vec(0_u8..8, 0..64)) {
            if let Ok(packet) = Packet::decode(&octets) {
                prop_assert_eq!(&packet.encode().unwrap()[4..], &octets[..]);
            }
        }
    }
}
