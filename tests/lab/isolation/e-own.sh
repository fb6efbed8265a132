# As d-clock, and it does say so.
# BOOT: own
# US: none
# THEM: none
date -s '+1 hour' >/dev/null
