# A scenario of second-tries.sh, which never runs in a guest: each case is a first try that fails.
# AGAIN: a fault of the peer
# AGAIN_CASES: a-*
# AGAIN_FAILS: us could not bring up net
# AGAIN_SEEN: strongswan_ignores_smaller_pieces
# CASES: a-clear a-clear-alone a-panic a-former-panic a-leak a-died a-left a-complaint a-check a-checks
# MORE: a-hangs a-unfinished a-not-ignored a-older a-unanswered a-same-size a-not-reminded a-no-capture a-ours other
