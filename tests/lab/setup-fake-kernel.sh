# What strongSwan needs to negotiate SAs that no kernel has, for setup.sh --load. Sourced, never run.
# Debian leaves the load-tester out, whose fake_kernel does that; it is built from the source of the
# package that is in the root, with a plugin of our own around it (fake-kernel/).
# shellcheck shell=sh

FAKE_KERNEL=$LAB_ROOT/usr/lib/ipsec/plugins/libstrongswan-fake-kernel.so

fake_kernel() {
    version=$(awk '$0 == "Package: libstrongswan" { on = 1 } on && /^Version:/ { print $2; exit }' \
        "$LAB_ROOT/var/lib/dpkg/status")
    key="$version $(cat "$LAB_SRC"/fake-kernel/* | sha256sum | cut -d ' ' -f 1)"
    if [ -e "$FAKE_KERNEL" ] && [ "$(cat "$LAB_DIR/fake-kernel.key" 2>/dev/null)" = "$key" ]; then
        say "lab: strongSwan's fake kernel is complete"
        return
    fi
    say "lab: strongSwan's fake kernel for $version (about a minute)"
    install_packages gcc libc6-dev make bzip2
    work=$LAB_DIR/fake-kernel.new
    rm -rf "$work"
    mkdir -p "$work"
    suite_packages $LAB_SUITE
    sed -i 'p; s/^deb /deb-src /' "$LAB_DIR/apt/sources"
    build_fake_kernel "$work" >"$LAB_DIR/fake-kernel.log" 2>&1 || {
        tail -n 20 "$LAB_DIR/fake-kernel.log" >&2
        die "strongSwan's fake kernel was not built (whole log: $LAB_DIR/fake-kernel.log)"
    }
    # Only those that ask for it by name load it.
    mv "$work/plugin.so" "$FAKE_KERNEL"
    echo "$key" >"$LAB_DIR/fake-kernel.key"
    rm -rf "$work"
}

build_fake_kernel() (
    set -e
    cd "$1"
    lab_apt apt-get update -q
    lab_apt apt-get source -q --download-only "strongswan=$version"
    mkdir source
    tar -xjf strongswan_*.orig.tar.bz2 -C source --strip-components=1
    cd source
    # The package has mediation, which changes what the objects look like; nothing else here does.
    ./configure --disable-defaults --enable-charon --enable-ikev1 --enable-ikev2 --enable-mediation \
        --enable-load-tester
    gcc -shared -fPIC -O2 -o "$1/plugin.so" -include config.h -Isrc/libstrongswan -Isrc/libcharon \
        "$LAB_SRC/fake-kernel/fake_kernel_plugin.c" src/libcharon/plugins/load_tester/load_tester_ipsec.c
)
