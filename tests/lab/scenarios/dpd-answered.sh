# The side named asks whether the other lives, and is answered: the SA stays.
# CASES: us them
net_direct
site
ike "$CASE" dpd_delay 1s
start
up us
installed
case $CASE in
us) expect_log them 'parsed INFORMATIONAL request [0-9]+ \[ \]' ;;
them) expect_log them 'parsed INFORMATIONAL response [0-9]+ \[ \]' ;;
esac
sleep 3
installed
ping_both
