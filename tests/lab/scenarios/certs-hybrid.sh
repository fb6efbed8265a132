# ECDSA certificates and a hybrid key exchange, with rekeys; IKE_AUTH in
# fragments.
# CASES: us them
# TIMEOUT: 120
net_direct
site
ca ours ca ecdsa384
certificate ours us ecdsa384 ca
certificate ours them ecdsa384 ca
by_certificate
give us x509ca ca.pem
give them x509ca ca.pem
conf both charon.fragment_size 600
ike both proposals aes256gcm16-prfsha384-ecp384-ke1_mlkem1024
net both esp_proposals aes256gcm16-ecp384-ke1_mlkem1024
start
up "$CASE"
installed
ping_both
rekey us ike
rekey them child
ping_both
expect_log them 'splitting IKE message'
