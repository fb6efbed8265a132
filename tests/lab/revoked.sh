#!/bin/bash
# strongSwan judges the lists of every form that crates/pki's tests make, beside our verdict: `pki --verify --online`
# fetches each list from the URL in the certificate. Fails where a verdict is not that of revoked.txt, or where we take a
# peer whom strongSwan calls revoked, and no reason stands behind the line.
# usage: revoked.sh
set -eu
. "$(dirname "$0")/common.sh"
skip_if_asked

# The host in the URL of the certificate.
host=ca.example.org
work=${2:-}
if [ "${1:-}" != inside ]; then
    [ -x "$LAB_ROOT/usr/bin/pki" ] || die "no strongSwan in $LAB_ROOT; run tests/lab/setup.sh"
    lists=${CARGO_TARGET_DIR:-$LAB_TOP/target}/tmp/lists
    rm -rf "$lists"
    (cd "$LAB_TOP" && cargo test --locked --quiet -p ike-pki --test it lists_of_every_form >/dev/null)
    work=$(mktemp -d "$LAB_ROOT/tmp/revoked.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cp "$lists"/* "$work/"
    unshare --net --mount --pid --fork --kill-child bash "$0" inside "$work"
    exit
fi

# From here on in namespaces of its own.
ip link set lo up
echo "127.0.0.1 $host" >"$work/hosts"
[ -e "$LAB_ROOT/etc/hosts" ] || : >"$LAB_ROOT/etc/hosts"
mount --bind "$work/hosts" "$LAB_ROOT/etc/hosts"
mkdir "$work/served"
python3 -m http.server --bind 127.0.0.1 --directory "$work/served" 80 >"$work/server.log" 2>&1 &
until (: </dev/tcp/127.0.0.1/80) 2>/dev/null; do sleep 0.05; done

inside=${work#"$LAB_ROOT"}
while read -r ours name; do
    cp "$work/$name.crl" "$work/served/ca.crl"
    said=$(chroot "$LAB_ROOT" pki --verify --online --in "$inside/peer.der" --cacert "$inside/ca.der" 2>&1) || true
    case $said in
    *"certificate was revoked"*) theirs=revoked ;;
    *"certificate status is good"*) theirs=accepted ;;
    *"certificate status is not available"* | *"certificate status is unknown"*) theirs=unknown ;;
    *) die "strongSwan on '$name': $said" ;;
    esac
    printf '%-9s %-9s %s\n' "$ours" "$theirs" "$name"
    [ "$ours,$theirs" != accepted,revoked ] || grep -q "^accepted  revoked   $name  *# ." "$LAB_SRC/revoked.txt" ||
        die "strongSwan calls a peer revoked by '$name', we take it, and revoked.txt has no reason"
done <"$work/verdicts.txt" >"$work/table.txt"
cat "$work/table.txt"
sed '/^#/d; s/ *# .*//' "$LAB_SRC/revoked.txt" | diff - "$work/table.txt" || die "revoked.txt has other verdicts (its lines: <)"
chroot "$LAB_ROOT" pki --verify --help 2>/dev/null | head -n 1
say "$(wc -l <"$work/table.txt") lists judged by both"
