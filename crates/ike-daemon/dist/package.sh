#!/bin/sh
# Makes the Debian package of the release build, by cargo-deb (cargo install cargo-deb): package.sh [FILE.deb]
set -eu
top=$(cd "$(dirname "$0")/../../.." && pwd)
cd "$top"
target=${CARGO_TARGET_DIR:-$top/target}
cargo build --release --locked -p ike-daemon
program=$target/release/ike-daemon
# Next to the binary, where the package's list of files finds it.
made=$target/release/package
rm -rf "$made"
mkdir -p "$made/completions"
"$program" man --out "$made/man"
gzip -9n "$made"/man/*
for shell in bash zsh fish; do
    "$program" completions "$shell" >"$made/completions/ike-daemon.$shell"
done
# Line tables for backtraces are twenty times as large as all the rest.
cargo deb -p ike-daemon --no-build --locked --strip --no-separate-debug-symbols ${1:+--output "$1"}
