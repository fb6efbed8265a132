# libreswan beside strongSwan, for setup.sh. Sourced, never run.
# Debian lets neither be installed where the other is, though they share no file: libreswan and what it
# needs that the root lacks are unpacked into a folder of their own below the root.
# shellcheck shell=sh

LIBRESWAN_TO=/opt/libreswan

libreswan() {
    key=$(say "$LAB_SUITE" | cat - "$LAB_SRC/setup-libreswan.sh" | sha256sum | cut -d ' ' -f 1)
    if libreswan_complete "$LAB_ROOT" && [ "$(cat "$LAB_ROOT$LIBRESWAN_TO/key" 2>/dev/null)" = "$key" ]; then
        say "lab: libreswan is complete"
        return
    fi
    say "lab: libreswan into $LAB_ROOT$LIBRESWAN_TO"
    suite_packages $LAB_SUITE
    # What the root has, but for the packages that libreswan conflicts with.
    awk 'BEGIN { RS = ""; ORS = "\n\n" } !/^Package: (strongswan|charon|libcharon|libstrongswan|openiked)/' \
        "$LAB_ROOT/var/lib/dpkg/status" >"$LAB_DIR/apt/status"
    lab_apt apt-get install -q -y --no-install-recommends --download-only libreswan >"$LAB_DIR/apt.log" 2>&1 || {
        tail -n 20 "$LAB_DIR/apt.log" >&2
        die "cannot get libreswan of $LAB_SUITE"
    }
    new=$LAB_ROOT$LIBRESWAN_TO.new
    rm -rf "$new" "$LAB_ROOT$LIBRESWAN_TO"
    mkdir -p "$new"
    for package in "$LAB_DIR"/apt/cache/archives/*.deb; do
        dpkg-deb -x "$package" "$new" || die "cannot unpack ${package##*/}"
    done
    deb_version "$LAB_DIR"/apt/cache/archives/libreswan_*.deb >"$new/version"
    rm -rf "$LAB_DIR"/apt/cache/archives/*.deb "$new/usr/share"
    # The paths that are compiled into it.
    mkdir -p "$LAB_ROOT/usr/libexec" "$LAB_ROOT/etc/ipsec.d"
    ln -sfn $LIBRESWAN_TO/usr/libexec/ipsec "$LAB_ROOT/usr/libexec/ipsec"
    ln -sfn $LIBRESWAN_TO/usr/sbin/ipsec "$LAB_ROOT/usr/sbin/ipsec"
    mv "$new" "$LAB_ROOT$LIBRESWAN_TO"
    # Not by LD_LIBRARY_PATH: pluto starts its helpers with a clean environment.
    echo "$LIBRESWAN_TO/usr/lib/x86_64-linux-gnu" >"$LAB_ROOT/etc/ld.so.conf.d/libreswan.conf"
    chroot "$LAB_ROOT" ldconfig || die "the libraries of libreswan are not found"
    libreswan_complete "$LAB_ROOT" || die "libreswan is unpacked but not complete: $WHY"
    echo "$key" >"$LAB_ROOT$LIBRESWAN_TO/key"
}

libreswan_complete() {
    for file in version usr/libexec/ipsec/pluto usr/libexec/ipsec/whack usr/libexec/ipsec/addconn usr/bin/certutil usr/bin/pk12util; do
        [ -e "$1$LIBRESWAN_TO/$file" ] || { WHY="$LIBRESWAN_TO/$file"; return 1; }
    done
    for link in usr/libexec/ipsec usr/sbin/ipsec; do
        [ -L "$1/$link" ] || { WHY="$link"; return 1; }
    done
    grep -q -a "$LIBRESWAN_TO/" "$1/etc/ld.so.cache" || { WHY=/etc/ld.so.cache; return 1; }
}
