//! ESP in user space with the devices, routes and sockets of a real kernel, each test in a network namespace of its
//! own.

use ike_test_namespace::{Need, namespace};

#[path = "../common/mod.rs"]
mod common;

mod device;
mod forwarded;
mod leaving;
mod plain;
mod queues;
mod xfrm;

/// A namespace with TUN devices and nft.
const NFT: Need = Need { met: || namespace("nft", &["nft", "add", "table", "inet", "t"]) };

ike_test_namespace::harness! {
    ike_test_namespace::TUN => [
        device::packets_in_clear,
        device::packets_in_clear_that_are_forwarded,
        device::a_full_tunnel_and_the_networks_beside_it,
        device::traffic_of_a_child_that_is_not_up,
        device::addresses_that_come_and_go,
        device::many_policies,
        device::the_kernel_hears_that_a_packet_is_too_big,
        device::routes_have_the_size_of_the_path,
        leaving::what_is_protected_leaves_by_the_device_or_not_at_all,
        device::a_device_that_somebody_deletes,
        plain::runs_over_raw_sockets,
        plain::header_fields_of_transport_mode_over_raw_sockets,
        plain::packets_leave_without_a_flow_label_that_the_host_refuses,
        plain::the_size_of_a_path_reaches_the_inner_side,
        plain::the_size_of_the_own_link_reaches_the_inner_side,
        plain::a_stranger_who_says_too_big_slows_nothing,
        queues::flows_over_two_queues,
    ],
    NFT => [
        leaving::what_is_protected_does_not_leave_with_a_translated_address,
        xfrm::what_policies_protect_does_not_leave_without_them,
        xfrm::what_policies_protect_does_not_leave_with_a_translated_address,
        xfrm::what_an_sa_has_made_leaves_and_nothing_else_with_its_port,
        xfrm::a_mark_counts_as_it_is_when_the_packet_leaves,
        xfrm::ten_thousand_policies_are_one_rule,
        xfrm::the_table_of_an_earlier_run_stays_until_this_one_has_its_policies,
        xfrm::two_thousand_rules_are_made_again_without_a_gap,
        xfrm::a_table_that_the_kernel_refuses_leaves_nothing,
        xfrm::a_table_without_an_owner_is_put_back_and_outlives_its_process,
        xfrm::a_table_that_cannot_be_removed_is_an_error,
        forwarded::who_has_made_a_packet_is_told_before_postrouting,
        forwarded::a_forwarded_packet_with_an_address_of_this_host_is_not_of_this_host,
        forwarded::the_source_address_of_what_was_noted_is_not_looked_up,
        forwarded::a_table_that_was_refused_is_made_later_with_what_was_wanted_meanwhile,
        forwarded::what_the_table_of_an_earlier_run_blocks_is_told,
    ],
}
