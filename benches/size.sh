#!/bin/sh
# Builds `ike-daemon` and compares its stripped size with the base in benches/size.txt. Fails where a size exceeds its
# base by more than 3 % and its allowance, or is more than 1 % below it, or where the ten largest crates of lean-dist are
# not those of benches/lean-dist.txt. See benches/README.md.
#   benches/size.sh [NAME...]             release, dist, lean, lean-dist; `release` if none is named
#   benches/size.sh --crates [BINARY]     the ten crates with the most octets of code and data
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
# Incremental builds have other sizes.
export CARGO_INCREMENTAL=0

if [ "${1:-}" = --crates ]; then
    exec python3 benches/crates.py "${2:-$target/release/ike-daemon}"
fi
[ $# -gt 0 ] || set -- release

out=$target/size
mkdir -p "$out"
: >"$out/bases.txt"
: >"$out/size.txt"
for name in "$@"; do
    profile=${name#lean-}
    case $name in
    release | dist) folder=$target parts= ;;
    # Apart, so that these builds and those with all parts do not replace each other's.
    lean | lean-dist) folder=$target/lean parts=--no-default-features ;;
    *) echo "size.sh: no build $name; there are release, dist, lean and lean-dist" >&2; exit 2 ;;
    esac
    [ "$profile" != lean ] || profile=release
    # units: build --locked -p ike-daemon --profile release
    # units: none, dist and lean builds are for .ci/run full
    # shellcheck disable=SC2086 # no word if there are all parts
    cargo build --locked --quiet -p ike-daemon --profile "$profile" --target-dir "$folder" $parts
    strip -o "$out/stripped" "$folder/$profile/ike-daemon"
    echo "$name $(wc -c <"$out/stripped")" >>"$out/size.txt"
    [ "$name" != lean-dist ] || python3 benches/crates.py "$folder/$profile/ike-daemon" benches/lean-dist.txt
    grep "^$name " benches/size.txt >>"$out/bases.txt" || { echo "size.sh: benches/size.txt has no $name" >&2; exit 1; }
done
cargo build --release --locked --quiet -p ike-test-lives --example guard
"$target/release/examples/guard" "$out/bases.txt" "$out/size.txt"
