# The Debian root that guests run, for setup.sh. Sourced, never run.
# shellcheck shell=sh

# In the root itself, so that the two are never of different ages.
ROOT_KEY=usr/lib/ike-lab.key

# root: kept as long as nothing that it is made of changes.
root() {
    key=$(say "$LAB_SUITE $LAB_PACKAGES" | cat - "$LAB_SRC/setup-root.sh" | sha256sum | cut -d ' ' -f 1)
    if root_complete "$LAB_ROOT" && [ "$(cat "$LAB_ROOT/$ROOT_KEY" 2>/dev/null)" = "$key" ]; then
        say "lab: $LAB_ROOT is complete"
        return
    fi
    build_root
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
    echo "$key" >"$new/$ROOT_KEY"
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
