#!/bin/sh
# Builds kernels from Debian's package of the source, each with config, config.KERNEL and the patches beside this:
# build.sh FOLDER PACKAGE KERNEL…, where FOLDER has the package as its one .deb. A kernel is FOLDER/KERNEL/linux afterwards.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$1 package=$2
shift 2
mkdir -p "$folder/source"

# Without what no user-mode kernel is made of, which is most of it; Kconfig and Makefiles are needed all the same.
dpkg-deb --fsys-tarfile "$folder"/*.deb | tar -xO "./usr/src/$package.tar.xz" |
    tar -xJ -C "$folder/source" --strip-components=1 --exclude='*/Documentation/*.rst' --exclude='*/tools/testing/*' \
        --exclude='*/arch/[a-tv-wyz]*.[chS]' --exclude='*.dts' --exclude='*.dtsi' --exclude='*/sound/*.[ch]' \
        --exclude='*/drivers/gpu/*.[ch]' --exclude='*/drivers/net/ethernet/*.[ch]' \
        --exclude='*/drivers/net/wireless/*.[ch]' --exclude='*/drivers/media/*.[ch]'
cd "$folder/source"
for patch in "$here"/*.patch; do patch -p1 --no-backup-if-mismatch <"$patch"; done
for kernel in "$@"; do
    build=$folder/build.$kernel
    mkdir -p "$build" "$folder/$kernel"
    cat "$here/config" "$here/config.$kernel" >"$build/wanted"
    make ARCH=um O="$build" KCONFIG_ALLCONFIG="$build/wanted" allnoconfig
    grep '^CONFIG_' "$build/wanted" | while read -r line; do
        grep -q -x "$line" "$build/.config" || echo "not in the kernel $kernel: $line"
    done >"$build/missing"
    cat "$build/missing"
    [ ! -s "$build/missing" ]
    make ARCH=um O="$build" -j "$(nproc)" linux
    strip -o "$folder/$kernel/linux" "$build/linux"
    rm -rf "$build"
done
rm -rf "$folder/source" "$folder"/*.deb
