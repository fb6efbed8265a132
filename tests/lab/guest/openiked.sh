# OpenIKED behind the verbs.
# shellcheck shell=bash
