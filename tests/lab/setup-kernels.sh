# The kernels beside the root's own, for setup.sh. Sourced, never run.
# shellcheck shell=sh

BUILD_PACKAGES="gcc libc6-dev make flex bison bc patch xz-utils"

# trixie: the packaged kernel of another suite, without its user space.
kernel_trixie() {
    dir=$(kernel_dir trixie)
    if [ -x "$dir/linux" ] && [ -e "$dir/version" ]; then
        say "lab: kernel trixie is complete"
        return
    fi
    say "lab: kernel trixie into $dir"
    new=$dir.new
    rm -rf "$new"
    mkdir -p "$new"
    fetch user-mode-linux trixie "$new"
    dpkg-deb -x "$new"/*.deb "$new/package" || die "cannot unpack the kernel of trixie"
    mv "$new/package/usr/bin/linux.uml" "$new/linux"
    mv "$new/package/usr/lib/uml/modules" "$new/modules"
    deb_version "$new"/*.deb >"$new/version"
    rm -rf "$new/package" "$new"/*.deb "$dir"
    mv "$new" "$dir"
}

# netdevsim and travel: built here from forky's source, with the configuration, the
# patches and the recipe of tests/lab/kernel, which are their key. The same ones are
# not built again, even if the mirror has a newer source by now.
built_complete() {
    key=$(cat "$LAB_SRC"/kernel/* | sha256sum | cut -d ' ' -f 1)
    for kernel in $BUILT_KERNELS; do [ -x "$(kernel_dir "$kernel")/linux" ] || return 1; done
    [ "$(cat "$LAB_DIR/kernels/built/key" 2>/dev/null)" = "$key" ]
}

kernels_built() {
    if built_complete; then
        say "lab: kernels $BUILT_KERNELS are complete"
        return
    fi
    dir=$LAB_DIR/kernels/built
    say "lab: kernels $BUILT_KERNELS into $dir (about 8 minutes of two cores)"
    new=$dir.new
    rm -rf "$new"
    mkdir -p "$new"
    suite_packages forky
    package=$(lab_apt apt-cache search --names-only '^linux-source-[0-9.]*$' | cut -d ' ' -f 1 | sort -V | tail -n 1)
    [ -n "$package" ] || die "the mirror has no linux-source for forky"
    fetch "$package" forky "$new"
    deb_version "$new"/*.deb >"$new/version"
    # shellcheck disable=SC2086
    "$LAB_SRC/kernel/build.sh" "$new" "$package" $BUILT_KERNELS >"$LAB_DIR/kernel.log" 2>&1 || {
        tail -n 20 "$LAB_DIR/kernel.log" >&2
        die "the kernels $BUILT_KERNELS were not built (whole log: $LAB_DIR/kernel.log)"
    }
    # The folder of an earlier layout.
    rm -rf "$dir" "$LAB_DIR/kernels/netdevsim"
    echo "$key" >"$new/key"
    mv "$new" "$dir"
}

deb_version() { dpkg-deb -f "$1" Version; }

# Packages of other suites, by an apt that has nothing to do with this machine's
# own lists. Signatures are checked with the keys of the root.
lab_apt() { APT_CONFIG=$LAB_DIR/apt/conf "$@"; }

suite_packages() {
    apt=$LAB_DIR/apt
    rm -rf "$apt"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/parts"
    : >"$apt/status"
    uri=$(mirror_or_die)
    echo "deb [signed-by=$LAB_ROOT/usr/share/keyrings/debian-archive-keyring.gpg] $uri $1 main" >"$apt/sources"
    cat >"$apt/conf" <<CONF
Dir::State "$apt";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources";
Dir::Etc::sourceparts "$apt/parts";
Dir::Etc::preferencesparts "$apt/parts";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Sandbox::User "root";
CONF
    lab_apt apt-get update -q >"$LAB_DIR/apt.log" 2>&1 || {
        tail -n 20 "$LAB_DIR/apt.log" >&2
        die "no package lists of $1"
    }
}

# fetch PACKAGE SUITE DIR
fetch() {
    suite_packages "$2"
    (cd "$3" && lab_apt apt-get download -q "$1") >"$LAB_DIR/apt.log" 2>&1 || {
        tail -n 20 "$LAB_DIR/apt.log" >&2
        die "cannot get $1 of $2"
    }
}
