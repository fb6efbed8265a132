# Extended sequence numbers, as the first choice of both.
# CASES: us them
net_direct
site
net both esp_proposals aes256gcm16-esn
start
up "$CASE"
installed
expect them '.[0]."child-sas"[0].esn == "1" or .[0]."child-sas"[0].esn == true'
ping_both
rekey us child
rekey them child
ping_both
counted 6
