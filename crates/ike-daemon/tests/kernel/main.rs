//! Daemons on hosts of their own, which are network namespaces.

#[path = "../it/running.rs"]
mod running;

mod mobike_shards;

ike_test_namespace::harness! {
    ike_test_namespace::VETH => [mobike_shards::moves_of_either_end_keep_every_sa_on_its_shard],
}
