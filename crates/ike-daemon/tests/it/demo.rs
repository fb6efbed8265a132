//! The demonstration, and what it tells.

use std::process::Command;

use serde_json::Value;

/// One run serves all the questions, for it takes seconds.
#[test]
fn the_demonstration_works_and_tells_all_of_it() {
    let account = account("classical");
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

/// The account of a run with `suite`, which is the default if it is hybrid.
fn account(suite: &str) -> Value {
    let mut program = Command::new(env!("CARGO_BIN_EXE_ike-daemon"));
    program.args(["demo", "--json"]);
    if suite != "hybrid" {
        program.args(["--suite", suite]);
    }
    let output = program.output().expect("the program runs");
    let account: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.success(), "{account:#}");
    assert_eq!(account["suite"], suite);
    account
}

/// Exchanges of a step: name, and octets there and back.
fn exchanges(account: &Value, step: usize) -> Vec<(String, u64, u64)> {
    let list = account["steps"][step]["exchanges"].as_array().expect("exchanges");
    let bytes = |exchange: &Value, half: &str| exchange[half]["bytes"].as_u64().expect("octets");
    list.iter()
        .map(|e| {
            let name = e["exchange"].as_str().expect("a name").to_owned();
            (name, bytes(e, "request"), bytes(e, "response"))
        })
        .collect()
}

#[test]
fn the_suites_from_hybrid_to_paranoid_work() {
    for (suite, intermediates, alone, auth) in
        [("hybrid", 1, 1184, 600), ("cnsa2", 1, 1568, 9000), ("paranoid", 2, 1568, 9000)]
    {
        let account = account(suite);
        let first = exchanges(&account, 0);
        let names: Vec<&str> = first.iter().map(|(name, ..)| name.as_str()).collect();
        let mut wanted = vec!["IKE_SA_INIT"];
        wanted.extend(vec!["IKE_INTERMEDIATE"; intermediates]);
        wanted.push("IKE_AUTH");
        assert_eq!(names, wanted, "{suite}");
        // A key is no smaller on the wire than it is.
        assert!(first[1].1 > alone, "{suite}: {first:?}");
        // Certificate and signature of the suite.
        let (_, request, response) = &first[intermediates + 1];
        assert!(*request > auth && *response > auth, "{suite}: {first:?}");
        let rekey = exchanges(&account, 3);
        let followups = rekey.iter().filter(|(name, ..)| name == "IKE_FOLLOWUP_KE").count();
        assert_eq!(followups, intermediates, "{suite}");
        let messages = account["steps"].as_array().expect("steps").iter();
        let messages = messages.flat_map(|step| step["messages"].as_array().expect("messages"));
        let bytes: u64 = messages.map(|m| m["size"].as_u64().expect("a size")).sum();
        assert_eq!(account["total"]["bytes"].as_u64(), Some(bytes));
        let ppk = account["ike-sa"]["ppk"].as_bool().unwrap_or_default();
        assert_eq!(ppk, suite == "paranoid");
        assert_eq!(account["rekeyed-child"]["ppk-id"].as_str(), ppk.then_some("demo"));
        assert_eq!(account["ike-sa"]["downgrade-prevention"], true);
    }
}
