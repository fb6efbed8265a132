//! Lists of every form in files, for other programs to judge: tests/lab/revoked.sh asks strongSwan.

use std::fs;
use std::path::Path;

use pki::RevocationPolicy;

use crate::common::use_the_real_time;
use crate::lists::{List, Outcome, Owner, SERIAL, by, entry, forms, outcome_of, reason, trusting};

/// Writes `ca.der`, `peer.der`, and for each list `NAME.crl`; in `verdicts.txt` our verdict stands before each name.
///
/// Fault: in `Lists::counted`, leave out lists that are past their nextUpdate.
#[test]
fn lists_of_every_form_are_written_with_our_verdict() {
    use_the_real_time();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lists");
    fs::create_dir_all(&folder).unwrap();
    let (ca, namesake) = (Owner::root("CA"), Owner::root("CA"));
    let peer = ca.peer();
    let revoking = forms(&ca);
    let removed = List { entries: vec![entry(SERIAL, &[reason(8)])], ..List::default() };
    let others = [
        ("of nobody", List::empty().by(&ca)),
        (
            "of another peer",
            List { entries: vec![entry(SERIAL + 1, &[])], ..List::default() }.by(&ca),
        ),
        ("removeFromCRL", removed.by(&ca)),
        ("by another CA of this name", List::default().by(&namesake)),
    ];
    let mut verdicts = String::new();
    for (name, list) in revoking.iter().chain(&others) {
        let mut trust = trusting(&[&ca]);
        trust.revocation.add_crl(list).unwrap();
        let verdict = outcome_of(&[&peer], &by(RevocationPolicy::Relaxed), &mut trust, &[]);
        let expected = if revoking.iter().any(|(form, _)| form == name) {
            Outcome::Revoked
        } else {
            Outcome::Accepted
        };
        assert_eq!(verdict, expected, "{name}");
        verdicts += &format!("{} {name}\n", format!("{verdict:?}").to_lowercase());
        fs::write(folder.join(format!("{name}.crl")), list).unwrap();
    }
    fs::write(folder.join("ca.der"), ca.certificate.der()).unwrap();
    fs::write(folder.join("peer.der"), peer.der()).unwrap();
    fs::write(folder.join("verdicts.txt"), verdicts).unwrap();
}
