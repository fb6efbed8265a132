//! Daemons on hosts of their own, which are network namespaces.

#[path = "../it/running.rs"]
mod running;

mod busy;
mod held;
mod mobike_shards;
mod names;
mod own_tunnel;
mod restart;

ike_test_namespace::harness! {
    ike_test_namespace::VETH => [mobike_shards::moves_of_either_end_keep_every_sa_on_its_shard],
    own_tunnel::VETH_AND_TUN => [
        busy::a_busy_daemon_answers_within_a_second_and_ends_within_five,
        held::a_full_tunnel_comes_back_although_the_kernel_checks_sources,
        held::a_gateway_is_found_by_name_outside_its_own_tunnel,
        held::certificates_by_url_are_fetched_outside_the_tunnel_that_is_down,
        held::revocation_is_asked_for_outside_the_tunnel_that_is_down,
        names::a_name_of_the_hosts_file_waits_for_one_round_of_silent_names,
        names::a_resolver_that_is_killed_or_stopped_holds_no_tunnel,
        own_tunnel::a_full_tunnel_of_both_families_is_up_where_ipv6_is_off,
        own_tunnel::a_resolver_file_behind_a_link_is_read_in_the_sandbox,
        own_tunnel::a_start_that_waits_follows_a_reload,
        own_tunnel::a_start_without_a_route_is_not_a_try,
        own_tunnel::ends_that_boot_while_name_servers_are_silent_have_the_addresses_of_before,
        own_tunnel::a_silent_name_server_holds_no_reload_and_no_other_connection,
        own_tunnel::changes_of_routes_do_nothing_to_an_ike_sa_of_a_loopback_address,
        own_tunnel::flows_to_a_peer_whose_name_server_is_silent_hold_no_other_tunnel,
        own_tunnel::list_says_what_a_child_waits_for,
        own_tunnel::the_source_towards_a_peer_is_asked_for_outside_its_own_tunnel,
        restart::a_restart_lets_nothing_out_in_clear_and_unblock_does,
        restart::a_stop_of_a_bare_daemon_blocks_nothing,
        restart::a_trap_that_was_never_up_is_blocked_over_a_restart,
    ],
}
