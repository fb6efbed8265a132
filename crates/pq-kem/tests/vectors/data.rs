//! Readers of the files in `tests/data`.

use std::collections::BTreeMap;

use serde_json::Value;

/// The octets that hexadecimal `text` stands for.
pub fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "odd number of digits: {text}");
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// A case of a vector file: its fields by name.
pub struct Case {
    pub name: String,
    fields: BTreeMap<String, Value>,
}

impl Case {
    /// The octets of `field`.
    pub fn octets(&self, field: &str) -> Vec<u8> {
        self.optional(field).unwrap_or_else(|| panic!("{} has no {field}", self.name))
    }

    /// The octets of `field`, if the case has it.
    pub fn optional(&self, field: &str) -> Option<Vec<u8>> {
        Some(hex(self.fields.get(field)?.as_str()?))
    }

    /// The text of `field`.
    pub fn text(&self, field: &str) -> &str {
        self.fields[field].as_str().unwrap_or_else(|| panic!("{}: {field} is no text", self.name))
    }
}

/// The `vectors` of a JSON file.
pub fn json(text: &str) -> Vec<Case> {
    let file: BTreeMap<String, Value> = serde_json::from_str(text).unwrap();
    let cases = file["vectors"].as_array().unwrap();
    assert!(!cases.is_empty());
    cases
        .iter()
        .map(|case| {
            let fields: BTreeMap<_, _> =
                case.as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            let name = fields.get("name").or(fields.get("tcId")).unwrap().to_string();
            Case { name, fields }
        })
        .collect()
}

/// The sections of a file in `rfc/`.
pub fn sections(text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            cases.push(Case { name: name.to_owned(), fields: BTreeMap::new() });
        } else {
            let (field, value) = line.split_once(" = ").unwrap();
            let case = cases.last_mut().unwrap();
            case.fields.insert(field.to_owned(), Value::String(value.to_owned()));
        }
    }
    assert!(!cases.is_empty());
    cases
}
