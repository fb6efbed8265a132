//! The file with the last addresses of host names, so that they are known at the next start.
//!
//! ```text
//! name address address …
//! ```
//!
//! The addresses are in the order of the last answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ike_config::HostSpec;

/// Octets of the file at most. A larger one is not read.
const LARGEST: u64 = 4 << 20;

/// What the file has; nothing if there is none.
///
/// # Errors
/// The file cannot be read, or a line of it is not understood. Then nothing of it counts.
pub(super) fn read(path: &Path) -> io::Result<BTreeMap<String, Vec<IpAddr>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        other => other?,
    };
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text)?;
    let bad = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if text.len() as u64 > LARGEST {
        return Err(bad(format!("larger than {LARGEST} octets")));
    }
    let mut found = BTreeMap::new();
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let known = line.strip_suffix('\n').and_then(parse);
        let known = known.ok_or_else(|| bad(format!("line {number} is not understood")))?;
        if let Some(twice) = found.insert(known.0, known.1) {
            return Err(bad(format!("line {number} has a name for the second time ({twice:?})")));
        }
    }
    Ok(found)
}

fn parse(line: &str) -> Option<(String, Vec<IpAddr>)> {
    let mut words = line.split(' ');
    let name = words.next().filter(|name| matches!(HostSpec::parse(name), Some(HostSpec::Name(_))));
    let addresses: Vec<IpAddr> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    (!addresses.is_empty()).then_some((name?.to_owned(), addresses))
}

/// The content of the file. Names without an address are left out, and those whose lines have no room.
pub(super) fn text<'a>(known: impl Iterator<Item = (&'a String, &'a Vec<IpAddr>)>) -> String {
    let mut text = String::new();
    let mut left_out = 0;
    for (name, addresses) in known.filter(|(_, addresses)| !addresses.is_empty()) {
        let before = text.len();
        text.push_str(name);
        for address in addresses {
            // Writing to a string does not fail.
            _ = write!(text, " {address}");
        }
        text.push('\n');
        if text.len() as u64 > LARGEST {
            text.truncate(before);
            left_out += 1;
        }
    }
    if left_out > 0 {
        tracing::warn!(
            left_out,
            "addresses of host names: the file is full; the next start does not know all names"
        );
    }
    text
}

/// Replaces the file. It is the old one or the new one, whatever happens meanwhile.
///
/// # Errors
/// Those of the file system.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The name of the file is in its folder, which a crash of the host may take back otherwise.
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `text`, write all lines; or end at the first one that has no room.
    #[test]
    fn a_file_has_no_more_than_is_read() {
        let long: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap(); LARGEST as usize / 20];
        let few = long[..1].to_vec();
        let all: BTreeMap<String, Vec<IpAddr>> =
            [("a", &few), ("b", &long), ("c", &long), ("d", &long), ("e", &few)]
                .map(|(name, of)| (name.to_owned(), of.clone()))
                .into();
        let text = text(all.iter());
        let names: String = text.lines().map(|line| &line[..1]).collect();
        assert_eq!(names, "abe");
        let path = std::env::temp_dir().join(format!("ike-names-full-{}", std::process::id()));
        write(&path, &text).unwrap();
        assert_eq!(read(&path).unwrap().len(), names.len());
        fs::remove_file(path).unwrap();
    }

    /// Fault: in `read`, leave out the lines that are not understood.
    #[test]
    fn a_file_with_bad_content_is_named_and_ignored() {
        let folder = std::env::temp_dir().join(format!("ike-names-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("names");
        assert_eq!(read(&path).unwrap(), BTreeMap::new(), "no file");
        let good = "gw.example 2001:db8::1 192.0.2.1\n";
        write(&path, good).unwrap();
        let found = read(&path).unwrap();
        assert_eq!(text(found.iter()), good);
        let bad = [
            "gw.example",
            "gw.example ",
            "gw.example  192.0.2.1",
            "gw.example 192.0.2.1 ",
            "gw.example 192.0.2.1\r",
            "gw.example 192.0.2.0/24",
            "192.0.2.2 192.0.2.1",
            "%any 192.0.2.1",
            "",
        ];
        for line in bad {
            fs::write(&path, format!("{good}{line}\n")).unwrap();
            let error = read(&path).expect_err(line).to_string();
            assert!(error.contains("line 2 is not understood"), "{line:?}: {error}");
        }
        for (content, why) in [
            (b"gw.example 192.0.2.1".to_vec(), "line 1 is not understood"),
            (format!("{good}{good}").into_bytes(), "line 2 has a name for the second time"),
            (b"\xff\n".to_vec(), "UTF-8"),
            (vec![b'a'; LARGEST as usize + 1], "larger than"),
        ] {
            fs::write(&path, content).unwrap();
            let error = read(&path).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
