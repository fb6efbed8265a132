#!/bin/bash
# Runs one scenario with the library loaded, then the checks every scenario ends with.
set -eu
. /out/env
. /lab/guest/lib.sh

trap 'rc=$?; trap - EXIT; on_exit $rc' EXIT
note "scenario $LAB_SCENARIO case ${CASE:--} us=$US them=$THEM"
. "$LAB_FILE"
final_checks
