#!/bin/sh
# Makes the folder the lab runs from: a Debian root with the peers, and three
# user-mode Linux kernels. Safe to run again, and behind other work; what is complete is kept. With --load
# also what load.sh needs.
set -eu
. "$(dirname "$0")/common.sh"
. "$LAB_SRC/kernels.sh"
. "$LAB_SRC/setup-root.sh"
. "$LAB_SRC/setup-kernels.sh"
. "$LAB_SRC/setup-libreswan.sh"
. "$LAB_SRC/setup-fake-kernel.sh"

LOAD=no
for option; do
    case $option in
    --load) LOAD=yes ;;
    -h | --help) say "usage: setup.sh [--load]" && exit ;;
    *) say "lab: setup.sh has no option $option; it has --load" >&2 && exit 2 ;;
    esac
done
skip_if_asked

HOST_PACKAGES="debootstrap debian-archive-keyring iproute2 iperf3 tcpdump jq mount util-linux \
procps bsdextrautils python3"
APT_UPDATED=no
# Another step of CI may install something at the same time.
APT_WAITS="-o DPkg::Lock::Timeout=600"

main() {
    [ "$(id -u)" = 0 ] || die "needs root (namespaces, mounts, debootstrap)"
    [ "$(uname -m)" = x86_64 ] || die "needs x86_64: user-mode Linux is not packaged elsewhere"
    mkdir -p "$LAB_DIR"
    exec 9>"$LAB_DIR/lock"
    flock -n 9 || {
        say "lab: another setup is at work; waiting for it"
        flock -w 1800 9 || die "another setup holds $LAB_DIR/lock"
    }

    # All that needs apt's locks of this machine comes first, so that none are held beside the work of others.
    # shellcheck disable=SC2086,SC2046
    install_packages $HOST_PACKAGES $(built_complete || say $BUILD_PACKAGES)
    root
    libreswan
    kernel_trixie
    kernels_built
    [ $LOAD = no ] || fake_kernel
    versions
}

install_packages() {
    missing=
    for package; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || die "not a Debian-like host, and these are missing:$missing"
    say "lab: installing$missing"
    apt_update
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get $APT_WAITS install -y -q --no-install-recommends $missing \
        </dev/null >"$LAB_DIR/apt.log" 2>&1 || {
        tail -n 20 "$LAB_DIR/apt.log" >&2
        die "apt-get could not install$missing"
    }
}

apt_update() {
    [ "$APT_UPDATED" = no ] || return 0
    apt-get $APT_WAITS update -q >"$LAB_DIR/apt.log" 2>&1 || {
        tail -n 20 "$LAB_DIR/apt.log" >&2
        die "apt-get update failed"
    }
    APT_UPDATED=yes
}

# Whatever mirror this machine uses for Debian itself, it also uses for the lab.
mirror() {
    if [ -n "${IKE_LAB_MIRROR:-}" ]; then
        say "$IKE_LAB_MIRROR"
        return
    fi
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(ORIGIN) $(LABEL) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" && $2 == "Debian" && $3 == "main" { print $4; exit }'
}

mirror_or_die() {
    uri=$(mirror)
    if [ -z "$uri" ]; then
        apt_update
        uri=$(mirror)
    fi
    [ -n "$uri" ] || die "no Debian mirror in this machine's apt sources; name one in IKE_LAB_MIRROR"
    say "$uri"
}

versions() {
    for package in strongswan-swanctl openiked user-mode-linux; do
        awk -v p="$package" '$0 == "Package: " p { on = 1 } on && /^Version:/ { print "lab: " p " " $2; exit }' \
            "$LAB_ROOT/var/lib/dpkg/status"
    done
    say "lab: libreswan $(cat "$LAB_ROOT$LIBRESWAN_TO/version")"
    say "lab: kernel trixie $(cat "$(kernel_dir trixie)/version")"
    say "lab: kernels $BUILT_KERNELS $(cat "$LAB_DIR/kernels/built/version")"
}

main "$@"
