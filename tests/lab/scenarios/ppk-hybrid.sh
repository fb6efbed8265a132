# A post-quantum preshared key and additional key exchanges at once: the PPK is
# mixed into the keys of the last IKE_INTERMEDIATE (RFC 8784 after RFC 9370).
# CASES: us them
# TIMEOUT: 120
net_direct
site
ike both proposals aes256gcm16-prfsha384-x25519-ke1_mlkem768
net both esp_proposals aes256gcm16-x25519-ke1_mlkem768
ike both ppk_id quantum.example.org
ike both ppk_required yes
conf both secrets.ppk-site.id quantum.example.org
conf both secrets.ppk-site.secret 0x8f3c0e5b7a6d41f29c8b7e6d5c4b3a2918f7e6d5c4b3a291807f6e5d4c3b2a19
start
up "$CASE"
installed
expect us '.[0].ppk == true'
expect them '.[0].ppk == true'
expect_log them 'IKE_INTERMEDIATE response'
for side in us them; do
    rekey $side ike
    rekey $side child
done
ping_both
