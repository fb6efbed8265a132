#!/bin/sh
# Makes the folder the lab runs from: a Debian root with the peers, and three
# user-mode Linux kernels. Safe to run again; what is complete is kept. With --load
# also what load.sh needs.
set -eu
. "$(dirname "$0")/common.sh"
. "$LAB_SRC/kernels.sh"
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

HOST_PACKAGES="debootstrap debian-archive-keyring iproute2 iperf3 tcpdump jq mount util-linux"
APT_UPDATED=no

main() {
    [ "$(id -u)" = 0 ] || die "needs root (namespaces, mounts, debootstrap)"
    [ "$(uname -m)" = x86_64 ] || die "needs x86_64: user-mode Linux is not packaged elsewhere"
    mkdir -p "$LAB_DIR"
    exec 9>"$LAB_DIR/lock"
    flock -w 1200 9 || die "another setup holds $LAB_DIR/lock"

    # shellcheck disable=SC2086
    install_packages $HOST_PACKAGES
    if root_complete "$LAB_ROOT"; then
        say "lab: $LAB_ROOT is complete"
    else
        build_root
    fi
    libreswan
    kernel_trixie
    kernel_netdevsim
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
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing \
        </dev/null >"$LAB_DIR/apt.log" 2>&1 || {
        tail -n 20 "$LAB_DIR/apt.log" >&2
        die "apt-get could not install$missing"
    }
}

apt_update() {
    [ "$APT_UPDATED" = no ] || return 0
    apt-get update -q >"$LAB_DIR/apt.log" 2>&1 || {
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

build_root() {
    [ -e "$LAB_SCRIPT" ] || die "this debootstrap is too old: no ${LAB_SCRIPT##*/} script"
    uri=$(mirror_or_die)

    # Built aside and renamed, so an interrupted run never looks complete.
    new=$LAB_DIR/root.new
    rm -rf --one-file-system "$new"
    say "lab: debootstrap $LAB_SUITE into $LAB_ROOT"
    include=$(printf '%s' "$LAB_PACKAGES" | tr -s ' ' ,)
    timeout 900 debootstrap --variant=minbase --include="$include" \
        "$LAB_SUITE" "$new" "$uri" "$LAB_SCRIPT" </dev/null >"$LAB_DIR/debootstrap.log" 2>&1 || {
        tail -n 20 "$LAB_DIR/debootstrap.log" >&2
        die "debootstrap failed (whole log: $LAB_DIR/debootstrap.log)"
    }
    prepare_root "$new"
    root_complete "$new" || die "debootstrap ended well but $new is not complete: $WHY"
    [ ! -e "$LAB_ROOT" ] || rm -rf --one-file-system "$LAB_ROOT"
    mv "$new" "$LAB_ROOT"
}

prepare_root() {
    rm -f "$1"/var/cache/apt/archives/*.deb
    modules=$(cd "$1/usr/lib/uml/modules" && ls)
    # Relative, because it is followed from outside the root as well.
    mkdir -p "$1/usr/lib/modules"
    ln -sfn "../uml/modules/$modules" "$1/usr/lib/modules/$modules"
    # Mount points the guests need; the root itself is only read after this.
    mkdir -p "$1/lab" "$1/out" "$1/bin-under-test" "$1/etc/swanctl"
}

WHY=
root_complete() {
    [ -d "$1/usr" ] || { WHY="no root folder"; return 1; }
    for package in $LAB_PACKAGES; do
        grep -A1 -x "Package: $package" "$1/var/lib/dpkg/status" 2>/dev/null |
            grep -q -x 'Status: install ok installed' || { WHY="package $package"; return 1; }
    done
    for file in usr/bin/linux.uml usr/sbin/charon-systemd usr/sbin/swanctl usr/sbin/iked usr/sbin/nft lab out bin-under-test; do
        [ -e "$1/$file" ] || { WHY="$file"; return 1; }
    done
    ls -d "$1"/lib/modules/*/modules.dep >/dev/null 2>&1 || { WHY="kernel modules"; return 1; }
}

versions() {
    for package in strongswan-swanctl openiked user-mode-linux; do
        awk -v p="$package" '$0 == "Package: " p { on = 1 } on && /^Version:/ { print "lab: " p " " $2; exit }' \
            "$LAB_ROOT/var/lib/dpkg/status"
    done
    say "lab: libreswan $(cat "$LAB_ROOT$LIBRESWAN_TO/version")"
    for kernel in trixie netdevsim; do say "lab: kernel $kernel $(cat "$(kernel_dir $kernel)/version")"; done
}

main "$@"
