//! Policies without SAs, what the list shows of packets, and options that the data plane cannot honour.

use std::sync::Arc;
use std::time::Duration;

use ike_control::views::IkeSa;
use ike_control::views::render;
use ike_daemon::config::Config;
use ike_proto::config::ShuntConfig;
use ike_proto::dataplane::{Mark, PolicyAction, Processing, TrafficSelector};

use super::daemons::{Watched, net, watched};

fn ts(text: &str) -> TrafficSelector {
    text.parse().expect("a selector")
}

/// The left daemon's configuration with these shunts.
fn config(port: u16, shunts: &[(&str, bool)]) -> Config {
    let ids = ["left.example.org", "right.example.org"];
    let mut config = crate::common::configuration("left", ids, port, "", "");
    let shunt = |(child, drop): &(&str, bool)| ShuntConfig {
        connection: "site".to_owned(),
        child: (*child).to_owned(),
        drop: *drop,
        local_ts: vec![ts("10.1.0.0/16")],
        remote_ts: vec![ts("10.1.0.0/16"), ts("10.9.0.0/16")],
        priority: 7,
        processing: Arc::new(Processing {
            mark_out: Mark { value: 1, mask: 3 },
            ..Processing::default()
        }),
    };
    config.endpoint.shunts = shunts.iter().map(shunt).collect();
    config
}

/// Children and actions of the policies that are no child's.
fn there(plane: &Watched) -> Vec<(String, PolicyAction)> {
    let policies = plane.policies.lock().expect("not poisoned");
    let shunts = policies
        .values()
        .filter(|spec| matches!(spec.action, PolicyAction::Pass | PolicyAction::Drop));
    shunts
        .map(|spec| {
            assert_eq!((spec.priority, spec.processing.mark_out.mask), (7, 3));
            assert_eq!((spec.local_ts.len(), spec.remote_ts.len()), (1, 2));
            (spec.child.clone(), spec.action.clone())
        })
        .collect()
}

async fn until(plane: &Watched, expected: &[(&str, PolicyAction)]) {
    let expected: Vec<_> = expected.iter().map(|(n, a)| ((*n).to_owned(), a.clone())).collect();
    for _ in 0..200 {
        if there(plane) == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{:?} instead of {expected:?}", there(plane));
}

#[tokio::test]
async fn they_follow_the_configuration_and_nothing_else() {
    let (pair, plane) = watched("").await;
    let port = pair.right.ports().nat_t;
    let operator = pair.left.operator();
    pair.left.reload(config(port, &[("lan", false), ("none", true)])).await.unwrap();
    let both = [("lan", PolicyAction::Pass), ("none", PolicyAction::Drop)];
    until(&plane, &both).await;
    // A child that comes and goes beside them, or is taken down by the connection's name, is another matter.
    operator.up(&net()).await.unwrap();
    until(&plane, &both).await;
    operator.down(&super::daemons::site()).await.unwrap();
    until(&plane, &both).await;
    pair.left.reload(config(port, &[("lan", true)])).await.unwrap();
    until(&plane, &[("lan", PolicyAction::Drop)]).await;
    assert!(pair.left.shutdown(Duration::from_secs(5)).await);
    assert!(plane.policies.lock().unwrap().is_empty(), "an orderly end leaves nothing");
}

/// Nobody is there to confirm the deletes: the data plane is emptied all the same.
#[tokio::test]
async fn an_end_without_an_answer_leaves_nothing() {
    let (pair, plane) = watched("").await;
    let port = pair.right.ports().nat_t;
    let operator = pair.left.operator();
    pair.left.reload(config(port, &[("lan", false), ("none", true)])).await.unwrap();
    operator.up(&net()).await.unwrap();
    until(&plane, &[("lan", PolicyAction::Pass), ("none", PolicyAction::Drop)]).await;
    drop(pair.right);
    assert!(!pair.left.shutdown(Duration::from_millis(100)).await);
    assert!(plane.policies.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_reload_that_asks_for_too_much_changes_nothing() {
    let (pair, plane) = watched("").await;
    let port = pair.right.ports().nat_t;
    let operator = pair.left.operator();
    let mut asking = config(port, &[("lan", false)]);
    let connection = Arc::make_mut(&mut asking.endpoint.connections[0]);
    let child = Arc::make_mut(&mut connection.children[0]);
    child.mode = ike_proto::dataplane::Mode::Iptfs;
    let refused = pair.left.reload(asking).await.unwrap_err().to_string();
    assert_eq!(
        refused,
        "`connections.site.children.net`: the data plane in use cannot do `mode = iptfs`"
    );
    assert_eq!(there(&plane), []);
    operator.up(&net()).await.unwrap();
}

#[tokio::test]
async fn the_list_shows_marks_and_interfaces() {
    let (pair, _plane) = watched("").await;
    let port = pair.right.ports().nat_t;
    let ids = ["left.example.org", "right.example.org"];
    let options = "mark_in = '%unique/0xff'\nmark_out = 42\nif_id_out = '0x2a'\nreqid = 77";
    let operator = pair.left.operator();
    let config = crate::common::configuration("left", ids, port, "", options);
    pair.left.reload(config).await.unwrap();
    operator.up(&net()).await.unwrap();
    let sas: Vec<_> = operator.list().await.unwrap().iter().map(IkeSa::new).collect();
    let json = serde_json::to_value(&sas[0].child_sas[0]).unwrap();
    for (key, value) in [
        ("mark-in", "00000001"),
        ("mark-mask-in", "000000ff"),
        ("mark-out", "0000002a"),
        ("mark-mask-out", "ffffffff"),
        ("if-id-out", "0000002a"),
    ] {
        assert_eq!(json[key], value, "{json:#}");
    }
    assert_eq!((json.get("if-id-in"), json.get("cpu")), (None, None));
    assert_eq!(json["reqid"], 77);
    let text = render(&sas);
    assert!(text.contains(", mark 0000002a/ffffffff, interface 0000002a, "), "{text}");
    assert!(text.contains(", mark 00000001/000000ff, "), "{text}");
}
