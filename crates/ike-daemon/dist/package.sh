#!/bin/sh
# Makes the Debian package, by dpkg-deb: package.sh [--program IKE-DAEMON] [FILE.deb]
# Without a program it builds the release. The same input makes the same package, octet for octet, where
# SOURCE_DATE_EPOCH is the same; without it the date is that of the last commit.
set -eu
top=$(cd "$(dirname "$0")/../../.." && pwd)
dist=$top/crates/ike-daemon/dist
target=${CARGO_TARGET_DIR:-$top/target}
fail() {
    echo "package.sh: $*" >&2
    exit 1
}
program=
if [ "${1:-}" = --program ]; then
    program=$(realpath -e "${2:?no file}")
    shift 2
fi
for tool in dpkg-deb dpkg-shlibdeps strip; do
    command -v $tool >/dev/null || fail "there is no $tool; install dpkg-dev and binutils"
done

manifest() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" "$top/Cargo.toml"; }
version=$(manifest version)-1
architecture=$(dpkg --print-architecture)
deb=${1:-$target/debian/ike-daemon_${version}_$architecture.deb}
mkdir -p "$(dirname "$deb")"
deb=$(realpath "$deb")
if [ -z "$program" ]; then
    (cd "$top" && cargo build --release --locked -p ike-daemon)
    program=$target/release/ike-daemon
fi
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git -C "$top" log -1 --format=%ct)
fi
export SOURCE_DATE_EPOCH LC_ALL=C

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
umask 022
mkdir -p "$root/DEBIAN" "$work/debian"

# put MODE FOLDER FILE..., put_as MODE PATH FILE
put() {
    mode=$1 folder=$2
    shift 2
    install -D -m "$mode" -t "$root/$folder" "$@"
}
put_as() { install -D -m "$1" "$3" "$root/$2"; }

# Line tables for backtraces are twenty times as large as all the rest.
strip --strip-unneeded --remove-section=.comment --remove-section=.note -o "$work/ike-daemon" "$program"
"$program" man --out "$work/man"
gzip -9n "$work"/man/*
for shell in bash zsh fish; do
    "$program" completions $shell >"$work/$shell"
done
{
    sed "s|^Upstream-Name:.*|&\nSource: $(manifest repository)|" "$dist/debian/copyright"
    sed 's/^$/./; s/^/ /' "$top/LICENSE-MIT"
} >"$work/copyright"

doc=usr/share/doc/ike-daemon
put 755 usr/sbin "$work/ike-daemon"
put 644 usr/share/man/man8 "$work"/man/*.8.gz
put 644 usr/share/man/man5 "$work"/man/*.5.gz
put_as 644 usr/share/bash-completion/completions/ike-daemon "$work/bash"
put_as 644 usr/share/zsh/vendor-completions/_ike-daemon "$work/zsh"
put_as 644 usr/share/fish/vendor_completions.d/ike-daemon.fish "$work/fish"
put 644 usr/lib/systemd/system "$dist"/systemd/*.service "$dist"/systemd/ike-daemon.socket
put_as 644 usr/lib/tmpfiles.d/ike-daemon.conf "$dist/debian/ike-daemon.tmpfiles"
put 600 etc/ike "$dist/ike-daemon.toml"
put 644 $doc/grafana "$dist/grafana/ike-daemon.json"
put 644 $doc/examples "$top"/crates/ike-daemon/examples/*
put 644 $doc "$top/LICENSE-APACHE" "$top/LICENSE-MIT" "$work/copyright"

put 755 DEBIAN "$dist/debian/postinst" "$dist/debian/prerm" "$dist/debian/postrm"
echo /etc/ike/ike-daemon.toml >"$root/DEBIAN/conffiles"
(cd "$root" && find etc usr -type f | sort | xargs md5sum) >"$root/DEBIAN/md5sums"

# It reads the name of the package there.
printf 'Source: ike-daemon\n\nPackage: ike-daemon\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O "$root/usr/sbin/ike-daemon" | sed -n 's/^shlibs:Depends=//p')
case $depends in
*libc6*) ;;
*) fail "dpkg-shlibdeps finds '$depends', not libc6" ;;
esac
{
    sed '/^Description:/,$d' "$dist/debian/control"
    echo "Version: $version"
    echo "Architecture: $architecture"
    echo "Installed-Size: $(find "$root/etc" "$root/usr" -type f -printf '%s\n' | awk '{ sum += int(($1 + 2047) / 1024) } END { print sum }')"
    echo "Depends: $depends"
    echo "Homepage: $(manifest repository)"
    sed -n '/^Description:/,$p' "$dist/debian/control"
} >"$root/DEBIAN/control"

find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
# With more threads the octets would depend on their number.
dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$root" "$deb"
