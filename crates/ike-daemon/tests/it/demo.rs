//! The demonstration, and what it tells.

use std::process::Command;

use serde_json::Value;

/// One run serves all the questions, for it takes seconds.
#[test]
fn the_demonstration_works_and_tells_all_of_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_ike-daemon")).args(["demo", "--json"]).output();
    let output = output.expect("the program runs");
    let account: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.success(), "{account:#}");
    assert_eq!(account["ok"], true);
    assert!(account["handshake-ms"].as_f64().is_some_and(|ms| ms > 0.0));
    let steps = account["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 6);
    let exchanges = |step: usize| -> Vec<(&str, &str)> {
        let messages = steps[step]["messages"].as_array().expect("messages");
        messages
            .iter()
            .map(|m| (m["exchange"].as_str().unwrap_or(""), m["kind"].as_str().unwrap_or("")))
            .collect()
    };
    let pairs = |names: &[&'static str]| -> Vec<(&str, &str)> {
        names.iter().flat_map(|name| [(*name, "request"), (*name, "response")]).collect()
    };
    assert_eq!(exchanges(0), pairs(&["IKE_SA_INIT", "IKE_AUTH"]));
    assert_eq!(exchanges(3), pairs(&["CREATE_CHILD_SA", "INFORMATIONAL"]));
    assert_eq!(exchanges(4), pairs(&["CREATE_CHILD_SA", "INFORMATIONAL"]));
    assert_eq!(exchanges(5), pairs(&["INFORMATIONAL"]));
    for message in steps[0]["messages"].as_array().expect("messages") {
        assert!(message["size"].as_u64().is_some_and(|size| (28..1280).contains(&size)));
        assert!(message["from"] == "left" || message["from"] == "right");
    }
    let (ours, theirs) = (&account["ike-sa"], &account["peer-ike-sa"]);
    assert_eq!(ours["responder-spi"], theirs["responder-spi"]);
    assert_eq!(ours["child-sas"][0]["spi-in"], theirs["child-sas"][0]["spi-out"]);
    assert_ne!(account["rekeyed-child"]["spi-in"], ours["child-sas"][0]["spi-in"]);
    assert_ne!(account["rekeyed-ike-sa"]["initiator-spi"], ours["initiator-spi"]);
    for direction in account["throughput"].as_array().expect("throughput") {
        assert!(direction["packets"].as_u64().is_some_and(|packets| packets > 0), "{direction}");
    }
}
