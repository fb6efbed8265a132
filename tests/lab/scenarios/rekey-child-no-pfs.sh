# A child is rekeyed without a key exchange of its own.
# CASES: us them
net_direct
site
net both esp_proposals aes256gcm16
start
up them
installed
ping_start
rekey "$CASE" child
ping_end
installed
