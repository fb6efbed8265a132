#!/bin/sh
# Makes every table and picture of this folder again: five minutes on two cores.
set -eu
cd "$(dirname "$0")/../.."
cargo build --release -p ike-bench
bench=${CARGO_TARGET_DIR:-target}/release/ike-bench
for scenario in loss measuredswan setup wireless frodokem psk-rsa; do
    out=docs/links/$scenario
    "$bench" links $scenario --seed 1 --csv $out.csv --svg $out.svg > $out.txt
done
for scenario in rate rtt; do
    out=docs/links/$scenario
    "$bench" links $scenario --seed 1 --csv $out.csv > $out.txt
done
"$bench" links measuredswan --seed 1 --slot 1 --clock time --csv docs/links/measuredswan-1ms.csv \
    > docs/links/measuredswan-1ms.txt
"$bench" links pq-ipsec --seed 1 --runs 3000 --csv docs/links/pq-ipsec.csv --svg docs/links/pq-ipsec.svg \
    > docs/links/pq-ipsec.txt
docs/links/tables.py
