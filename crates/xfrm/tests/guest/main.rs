//! The kernel library and the data plane over a real kernel. `tests/lab/kernel-tests.sh` runs these on the lab's
//! kernels.
#![expect(clippy::unwrap_used, reason = "test code")]

#[path = "../common/plane.rs"]
mod common;
#[path = "../common/faults.rs"]
mod every_fault;
#[path = "../common/support.rs"]
mod support;

mod clock;
mod devices;
mod events;
mod kernel;
mod looks;
mod needs;
mod nsim;
mod offload;
mod plane;
mod policies;
mod priorities;
mod speed;
mod states;

use needs::{CLOCK, ESP, ETHTOOL, IP, IPTFS, MIGRATE, NAMESPACES, NETDEVSIM, PER_CPU, STRONGSWAN};

ike_test_namespace::harness! {
    IP => [devices::every_device_that_ip_lists_is_listed],
    ETHTOOL => [devices::features_are_those_that_ethtool_lists],
    NAMESPACES => [
        kernel::features_of_any_kernel,
        looks::a_minute_with_ten_thousand_policies_costs_little,
        policies::what_is_asked_for_is_installed,
        policies::kinds_of_policies,
        policies::sockets_policies_are_left_alone,
        policies::the_default_policy,
        policies::batches,
    ],
    ESP => [
        events::acquire,
        events::expire,
        events::deletions_and_losses,
        events::mapping,
        events::bitmaps_of_what_came,
        kernel::features,
        kernel::batches_of_states,
        offload::what_the_kernel_leaves_out_in_silence_is_noticed,
        plane::no_half_installed_sa_no_leak_no_plaintext,
        plane::packets_go_through_the_life_of_a_child,
        plane::a_trap_asks_and_asks_again,
        plane::limits_expire,
        plane::families_modes_and_marks,
        plane::what_passes_and_what_is_dropped,
        plane::an_sa_moves_under_traffic,
        plane::an_acquire_with_an_spi_makes_room,
        plane::beet_mode_carries_packets,
        speed::many_states_as_fast_as_ip_batch,
        states::what_is_asked_for_is_installed,
        states::the_suites_of_ike,
        states::modes_and_families,
        states::newer_features,
        states::sequence_numbers,
        states::reserved_spis_become_states,
        states::refusals_say_why,
    ],
    MIGRATE => [kernel::migration, kernel::migration_of_two],
    IPTFS => [plane::iptfs_mode_carries_packets],
    PER_CPU => [plane::an_sa_for_each_cpu],
    CLOCK => [
        clock::a_clock_that_is_set_ends_no_sa,
        clock::silence_is_measured_by_no_clock_that_is_set,
    ],
    STRONGSWAN => [priorities::as_strongswan_installs_them],
    NETDEVSIM => [
        offload::the_nic_is_found_by_its_address_and_its_features_are_ethtools,
        offload::crypto_offload_reaches_the_nic,
        offload::without_packet_offload_auto_takes_crypto_and_says_so,
        offload::what_no_offload_takes_auto_does_in_software_and_says_so,
        offload::a_mode_asked_for_by_name_fails_with_the_reason_and_leaves_nothing,
        offload::packet_offload_brings_policies_that_let_ike_pass,
        offload::a_device_that_goes_down_loses_its_sas_and_gets_its_policies_again,
        offload::no_failure_leaves_half_of_it,
        offload::extended_sequence_numbers_are_named_as_the_reason,
    ],
}
