# Ten connections to four peers, two of them strongSwan, with traffic on all, and rounds of edits by chance: selectors, children,
# connections, start_action, secrets, proposals, and commands. After each round the policies of the kernel, or the routes and
# nftables' rules, are those of a fresh start with the same file and the same commands; who is to be up is up within 10 s;
# no flow that the edit does not touch loses a packet, and none leaves in clear.
# IKE_LAB_ROUNDS and IKE_LAB_SEED name the rounds and the seed. `MORE` are 200 rounds.
# Faults: in `begin` of the operator, leave out children that are up, by their names (F30); in `reload` of the engine's traps,
# compare names alone (F1); in `uninstall` of the operator, do not call `untrapped`.
# CASES: toml
# MORE: toml-200
# PLANE: kernel userspace
# KERNELS: netdevsim
# TIMEOUT: 1500
CLEARTEXT=yes
rounds=10
[[ $CASE != *-* ]] || rounds=${CASE#*-}
perl -I /lab/guest /lab/guest/edits/rounds.pl "${CASE%-*}" "$DATA_PLANE" "${ROUNDS:-$rounds}" "${SEED:-1}"
