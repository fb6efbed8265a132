//! What a reload means for IKE SAs that are up.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ike_control::{Candidate, Configuration, Operator, OperatorError, Program, Reloaded};
use ike_proto::IkeState;
use ike_tokio::{Builder, Drivers, Plane, Target};

use super::{controlled, sockets};

/// A program whose file is a text.
#[derive(Debug, Default)]
struct File {
    text: Mutex<String>,
    charon: bool,
}

impl Program for File {
    fn read(&self, _: &Path) -> Result<Candidate, OperatorError> {
        Ok(Candidate::new(configuration(&self.text.lock().unwrap())))
    }

    fn follows_charon(&self) -> bool {
        self.charon
    }
}

fn configuration(text: &str) -> Configuration {
    ike_config::parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}")).into()
}

/// The left end's file, with connections that differ in this end's identity.
fn text(count: usize, port: u16) -> String {
    let mut text = String::from("secrets.ike = { id-them = 'right', secret = 'correct horse' }\n");
    for n in 0..count {
        text += &format!(
            "[connections.c{n}]
            local_addrs = '127.0.0.1'
            remote_addrs = '127.0.0.1'
            remote_port = {port}
            keyingtries = 1
            local = {{ auth = 'psk', id = 'left{n}' }}
            remote = {{ auth = 'psk', id = 'right' }}
            children.net = {{ remote_ts = '10.1.0.0/16' }}\n"
        );
    }
    text
}

/// An end with connections that are up.
struct Site {
    operator: Operator,
    file: Arc<File>,
    text: String,
    _drivers: [Drivers; 2],
}

impl Site {
    async fn up(count: usize, charon: bool) -> Self {
        let (left, right) = (sockets(), sockets());
        let (ports, text) = (left.ports(), text(count, right.ports().nat_t));
        let peer = configuration(
            "secrets.ike = { secret = 'correct horse' }
            [connections.any]
            local_addrs = '127.0.0.1'
            remote_addrs = '127.0.0.1'
            local = { auth = 'psk', id = 'right' }
            remote = { auth = 'psk', id = '%any' }
            children.net = { local_ts = '10.1.0.0/16' }",
        );
        let end = configuration(&text);
        let start = |configuration: &Configuration, sockets: ike_tokio::Sockets| {
            let endpoint = configuration.unresolved(sockets.ports());
            let (drivers, mut wanted) =
                Builder::new(endpoint, controlled::crypto(), sockets).start();
            tokio::spawn(async move { while wanted.recv().await.is_some() {} });
            drivers
        };
        let (us, them) = (start(&end, left), start(&peer, right));
        let file = Arc::new(File { charon, ..File::default() });
        let (handle, plane) = (us.handle().clone(), Plane::none().capabilities());
        let program = Arc::<File>::clone(&file) as Arc<dyn Program>;
        let operator = Operator::new(handle, end, ports, plane, program);
        assert_eq!(operator.up_all().await, Ok(count));
        Self { operator, file, text, _drivers: [us, them] }
    }

    /// Puts the file with other words in force.
    async fn reload(&self, (from, to): (&str, &str), revoke: bool) -> Vec<String> {
        assert!(self.text.contains(from), "{from}");
        *self.file.text.lock().unwrap() = self.text.replace(from, to);
        let reloaded = self.operator.reload_file(Some(Path::new("file")), revoke).await;
        let Reloaded { live, .. } = reloaded.unwrap();
        live
    }

    async fn count(&self) -> usize {
        let views = self.operator.list().await.unwrap();
        views.iter().filter(|view| view.status.state == IkeState::Established).count()
    }
}

/// An IKE SA ends at once if no connection accepts its peer's identity any more, or if its secret was removed, also if a
/// secret for other identities would fit. If the secret was replaced, only `revoke` ends the IKE SA.
///
/// Faults, each by itself: in `excludes`, ask no connection about the identity; leave out `SecretsNow::Removed`; leave out
/// `names`; do not look at `revoke`. In `secrets_now`, return `Same` at the end.
#[tokio::test]
async fn an_ike_sa_that_a_reload_does_not_admit_ends_at_once() {
    let secret = "id-them = 'right', secret = 'correct horse'";
    for (change, revoke, why) in [
        (("id = 'right' }", "id = 'other' }"), false, Some("no connection accepts the identity")),
        ((secret, "id-them = 'other', secret = 'correct horse'"), false, Some("was removed")),
        ((secret, "secret = 'another'"), false, Some("was removed")),
        ((secret, "id-them = 'right', secret = 'another'"), false, None),
        ((secret, "id-them = 'right', secret = 'another'"), true, Some("was replaced")),
        ((secret, secret), true, None),
    ] {
        let site = Site::up(1, false).await;
        let live = site.reload(change, revoke).await;
        assert_eq!(site.count().await, usize::from(why.is_none()), "{change:?} {live:?}");
        match why {
            Some(why) => assert!(live.len() == 1 && live[0].contains(why), "{change:?} {live:?}"),
            None => assert!(live.is_empty(), "{change:?} {live:?}"),
        }
    }
}

/// With a file in swanctl.conf's format the same reload ends no IKE SA: the answer names the IKE SAs that stay, and the
/// command that ends them. In our own format the answer does the same for changes that exclude no peer.
///
/// Faults, each by itself: in `review_live`, do not ask `follows_charon`; in `differs`, do not compare the children, or the
/// connection.
#[tokio::test]
async fn ike_sas_that_stay_are_named_with_the_command_that_ends_them() {
    for (charon, change, command) in [
        (true, ("id = 'right' }", "id = 'other' }"), "`swanctl --terminate --ike c0`"),
        (true, ("[connections.c0]", "[connections.new]"), "`swanctl --terminate --ike c0`"),
        (false, ("10.1.0.0/16", "10.2.0.0/16"), "`ike-daemon down --ike c0`"),
        (false, ("keyingtries = 1", "dpd_delay = 7"), "`ike-daemon down --ike c0`"),
    ] {
        let site = Site::up(1, charon).await;
        let live = site.reload(change, false).await;
        assert_eq!(site.count().await, 1, "{change:?}");
        assert!(live.len() == 1 && live[0].contains(command), "{change:?} {live:?}");
        let target = Target { ike: Some("c0".to_owned()), ..Target::default() };
        assert_eq!(site.operator.take_down(&target).await, Ok(1), "{change:?}");
    }
}

/// A mistake in the file that would end most IKE SAs ends them slowly. The file is in force at once, and another reload keeps
/// the IKE SAs that are left.
///
/// Faults, each by itself: in `review_live`, let `few` be true; in `exclude_slowly`, do not look at `reloads`, or wait for no
/// tick.
#[tokio::test]
async fn more_than_half_of_the_ike_sas_end_slowly() {
    let site = Site::up(12, false).await;
    let wrong = ("id = 'right' }", "id = 'other' }");
    let begun = tokio::time::Instant::now();
    assert_eq!(site.reload(wrong, false).await.len(), 12);
    assert!(site.count().await > 6 || begun.elapsed() > Duration::from_millis(250));
    let same = ("id = 'right' }", "id = 'right' }");
    assert!(site.reload(same, false).await.is_empty());
    let left = site.count().await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(left > 0 && site.count().await == left, "{left}");
    site.reload(wrong, false).await;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if site.count().await == 0 {
            return;
        }
    }
    panic!("{} are still up", site.count().await);
}
