# The clock is the guest's: a scenario that sets it says BOOT: own.
# US: none
# THEM: none
date -s '+1 hour' >/dev/null
