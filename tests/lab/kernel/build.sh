#!/bin/sh
# Builds the kernel netdevsim from Debian's package of the source, with the configuration and the patches beside this:
# build.sh FOLDER PACKAGE, where FOLDER has the package as its one .deb. The kernel is FOLDER/linux afterwards.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$1 package=$2
mkdir -p "$folder/source" "$folder/build"

# Without what no user-mode kernel is made of, which is most of it; Kconfig and Makefiles are needed all the same.
dpkg-deb --fsys-tarfile "$folder"/*.deb | tar -xO "./usr/src/$package.tar.xz" |
    tar -xJ -C "$folder/source" --strip-components=1 --exclude='*/Documentation/*.rst' --exclude='*/tools/testing/*' \
        --exclude='*/arch/[a-tv-wyz]*.[chS]' --exclude='*.dts' --exclude='*.dtsi' --exclude='*/sound/*.[ch]' \
        --exclude='*/drivers/gpu/*.[ch]' --exclude='*/drivers/net/ethernet/*.[ch]' \
        --exclude='*/drivers/net/wireless/*.[ch]' --exclude='*/drivers/media/*.[ch]'
cd "$folder/source"
for patch in "$here"/*.patch; do patch -p1 --no-backup-if-mismatch <"$patch"; done
make ARCH=um O="$folder/build" KCONFIG_ALLCONFIG="$here/config" allnoconfig
grep '^CONFIG_' "$here/config" | while read -r line; do
    grep -q -x "$line" "$folder/build/.config" || echo "not in this kernel: $line"
done >"$folder/missing"
cat "$folder/missing"
[ ! -s "$folder/missing" ]
make ARCH=um O="$folder/build" -j "$(nproc)" linux
strip -o "$folder/linux" "$folder/build/linux"
rm -rf "$folder/build" "$folder/source" "$folder/missing" "$folder"/*.deb
