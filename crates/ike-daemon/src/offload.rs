//! `ike-daemon offload`: the network devices and their offloads.

use std::fmt::Write as _;
use std::io::Write as _;

use xfrm::offload::{Device, Devices, Feature};

use crate::exit::Status;

/// Lists them.
pub(crate) fn run(json: bool) -> Status {
    let devices = match Devices::open().and_then(|mut devices| devices.list()) {
        Ok(devices) => devices,
        Err(error) => {
            eprintln!("the devices of this network namespace are not known: {error}");
            return Status::Failed;
        }
    };
    let text = if json {
        match serde_json::to_string_pretty(&devices) {
            Ok(text) => text + "\n",
            Err(error) => {
                eprintln!("{error}");
                return Status::Failed;
            }
        }
    } else {
        table(&devices)
    };
    // Who reads only the beginning gets the status all the same.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Status::Done
}

const HEADINGS: [&str; 7] = ["device", "state", "driver", "at", "crypto", "checksum", "segments"];

fn table(devices: &[Device]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(devices.iter().map(row));
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        // Writing to a string does not fail.
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    out + NOTE
}

fn row(device: &Device) -> [String; 7] {
    let name = match device.below.as_slice() {
        [] => device.name.clone(),
        below => format!("{} over {}", device.name, below.join(", ")),
    };
    let driver = device.driver.clone().unwrap_or_else(|| match device.kind.as_str() {
        "" => "-".to_owned(),
        kind => kind.to_owned(),
    });
    let mut at = device.bus.clone().unwrap_or_else(|| "-".to_owned());
    if device.virtual_function {
        at += " (VF)";
    }
    if let Some(port) = &device.port {
        let _ = write!(at, " {port}");
    }
    let state = if device.up { "up" } else { "down" };
    let esp = device.esp;
    [name, state.into(), driver, at, word(esp.crypto), word(esp.checksum), word(esp.segmentation)]
}

fn word(feature: Feature) -> String {
    match feature {
        Feature::On => "on",
        Feature::Off => "off",
        Feature::Missing => "-",
    }
    .to_owned()
}

const NOTE: &str = "
crypto is esp-hw-offload. No feature tells whether a device does packet offload: hw_offload = auto tries it.
";

#[cfg(test)]
mod tests {
    use xfrm::offload::EspFeatures;

    use super::*;

    #[test]
    fn the_table_says_what_is_where() {
        let lo = Device {
            index: 1,
            name: "lo".into(),
            kind: "loopback".into(),
            up: true,
            ..Device::default()
        };
        let nic = Device {
            index: 2,
            name: "enp3s0f0".into(),
            up: true,
            driver: Some("mlx5_core".into()),
            bus: Some("pci/0000:03:00.0".into()),
            port: Some("p0".into()),
            esp: EspFeatures {
                crypto: Feature::On,
                checksum: Feature::Off,
                ..EspFeatures::default()
            },
            ..Device::default()
        };
        let vlan = Device {
            index: 3,
            name: "v7".into(),
            kind: "vlan".into(),
            below: vec!["enp3s0f0".into()],
            ..Device::default()
        };
        let text = table(&[lo, nic, vlan]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "device            state  driver     at                   crypto  checksum  segments"
        );
        assert_eq!(
            lines[1],
            "lo                up     loopback   -                    -       -         -"
        );
        assert_eq!(
            lines[2],
            "enp3s0f0          up     mlx5_core  pci/0000:03:00.0 p0  on      off       -"
        );
        assert_eq!(
            lines[3],
            "v7 over enp3s0f0  down   vlan       -                    -       -         -"
        );
    }
}
