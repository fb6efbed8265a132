#!/bin/bash
# The inside of qrons.sh.
set -eu
. /out/env
US=none THEM=none
. /lab/guest/lib.sh

# shellcheck disable=SC2154
eval "options=($(cat "$OUT/options"))"
tenants "$TENANTS"
qrons "${options[@]}"
