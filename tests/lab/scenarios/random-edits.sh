# Ten connections to four peers, two of which are strongSwan. All carry traffic. Each round makes a random edit of selectors,
# children, connections, start_action, secrets or proposals, or runs a command. After each round the policies of the kernel, or the
# routes and nftables' rules, are those of a fresh start with the same file and the same commands. Every child that is to be up is up
# within 10 s. No flow that the edit does not touch loses a packet, and no packet leaves in clear. Two clients log in with every
# pre-shared key, user and certificate that the file has or had, at our daemon and at the fresh start: what the file has gets in, and
# nothing else does.
# IKE_LAB_ROUNDS sets the number of rounds, and IKE_LAB_SEED the seed. The cases of `MORE` have 200 rounds.
# Faults: in `begin` of the operator, leave out children that are up, by their names; in `reload` of the engine's traps, compare
# names alone; in `uninstall` of the operator, do not call `untrapped`.
# CASES: toml swanctl
# MORE: toml-200 swanctl-200
# PLANE: kernel userspace
# KERNELS: travel
# TIMEOUT: 3000
CLEARTEXT=yes
rounds=10
[[ $CASE != *-* ]] || rounds=${CASE#*-}
perl -I /lab/guest /lab/guest/edits/rounds.pl "${CASE%-*}" "$DATA_PLANE" "${ROUNDS:-$rounds}" "${SEED:-1}"
