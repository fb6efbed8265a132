use super::*;

/// What comes of an Access-Accept with these attributes.
fn granted(attributes: &[(u8, &[u8])], sources: GroupSources) -> Grants {
    let octets = accept(attributes);
    let response = Response::parse(&octets, 3, &[7; 16], b"shared").expect("genuine");
    Grants::of(&response, sources)
}

/// As a server makes it.
fn accept(attributes: &[(u8, &[u8])]) -> Vec<u8> {
    crate::radius::fake::answer(2, (3, &[7; 16]), attributes, b"shared")
}

const BOTH: GroupSources = GroupSources { class: true, filter_id: true };
const NONE: GroupSources = GroupSources { class: false, filter_id: false };

#[test]
fn groups_are_in_class_and_filter_id_if_wanted() {
    let long = [b'x'; 44];
    let all: [(u8, &[u8]); 4] =
        [(25, b"Sales"), (25, &long), (64, &[0, 0, 0, 9]), (11, b"research")];
    let grants = granted(&all, BOTH);
    assert_eq!(grants.groups, [b"Sales".to_vec(), b"research".to_vec()]);
    let fits =
        |groups: &[&str]| grants.fit(&groups.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert!(fits(&[]) && fits(&["sales"]) && fits(&["x", "research"]));
    assert!(!fits(&["sale"]) && !fits(&["salesx"]) && !fits(&[""]) && !fits(&["*"]));
    assert!(granted(&all, NONE).groups.is_empty());
    // Filter-Id counts with an ESP tunnel alone.
    for tunnel in [&[0, 0, 0, 3][..], &[0, 0, 9], &[]] {
        assert!(granted(&[(11, b"research"), (64, tunnel)], BOTH).groups.is_empty());
    }
    // Long or not, it is for accounting.
    assert_eq!(classes(&grants.kept).collect::<Vec<_>>(), [&b"Sales"[..], &long]);
}

#[test]
fn what_counts_later_is_kept_and_nothing_else() {
    let vendor = |vendor: u32, kind: u8, value: &[u8]| {
        [&vendor.to_be_bytes()[..], &[kind, value.len() as u8 + 2], value].concat()
    };
    let dns = vendor(311, 28, &[10, 1, 0, 53]);
    let wins = vendor(3076, 7, &[10, 1, 0, 54]);
    let key = vendor(311, 16, &[0; 50]);
    let v6 = [0xfd, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    let grants = granted(
        &[
            (8, &[10, 9, 0, 7]),
            (9, &[255, 255, 255, 0]),
            (168, &v6),
            (169, &v6),
            (26, &dns),
            (26, &wins),
            (26, &key),
            (27, &[0, 0, 14, 16]),
            (85, &[0, 0, 0, 60]),
            (18, b"hello"),
        ],
        NONE,
    );
    assert_eq!(grants.lifetime, Some(Duration::from_secs(3600)));
    let v6_address = IpAddr::from(v6);
    let own: Vec<_> = addresses(&grants.kept).collect();
    assert_eq!(own, [[10, 9, 0, 7].into(), v6_address]);
    let told: Vec<_> = attributes(&grants.kept).collect();
    let wanted = [
        Attribute::Ip4Netmask(Some([255, 255, 255, 0].into())),
        Attribute::Ip6Dns(Some(v6.into())),
        Attribute::Ip4Dns(Some([10, 1, 0, 53].into())),
        Attribute::Ip4Nbns(Some([10, 1, 0, 54].into())),
    ];
    assert_eq!(told, wanted);
    assert_eq!(interim(&grants.kept), Some(Duration::from_secs(60)));
    let kinds: Vec<_> = all(&grants.kept).map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [8, 9, 168, 169, 26, 26, 85], "no key, nothing that has been done with");
}

/// Faults: in `Grants::of`, leave out the filter of 0. In `interim`, take every pause above 0.
#[test]
fn no_time_at_all_is_no_limit_and_too_short_a_pause_is_none() {
    let with = |timeout: u32, pause: u32| {
        let (timeout, pause) = (timeout.to_be_bytes(), pause.to_be_bytes());
        let grants = granted(&[(27, &timeout), (85, &pause)], NONE);
        (grants.lifetime.map(|time| time.as_secs()), interim(&grants.kept).map(|it| it.as_secs()))
    };
    assert_eq!(with(0, 0), (None, None));
    assert_eq!(with(1, 59), (Some(1), None));
    assert_eq!(with(2, 60), (Some(2), Some(60)));
}

#[test]
fn what_no_host_can_have_is_no_address() {
    for value in [
        &[255, 255, 255, 254][..],
        &[255, 255, 255, 255],
        &[0; 4],
        &[127, 0, 0, 1],
        &[224, 0, 0, 5],
        &[10, 9, 0],
        &[10, 9, 0, 7, 0],
    ] {
        let grants = granted(&[(8, value), (27, &[0; 3]), (85, &[0; 4])], NONE);
        assert_eq!(addresses(&grants.kept).count(), 0, "{value:?}");
        assert_eq!((grants.lifetime, interim(&grants.kept)), (None, None));
    }
}

proptest::proptest! {
    #[test]
    fn nothing_panics(octets in proptest::collection::vec(0..=255_u8, 0..80)) {
        classes(&octets).count();
        addresses(&octets).count();
        attributes(&octets).count();
        interim(&octets);
    }
}
