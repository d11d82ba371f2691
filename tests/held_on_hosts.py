"""What an account can hold or fill on a host, with the tests of each bound."""

from collections.abc import Mapping
from typing import NamedTuple


class Held(NamedTuple):
    """Modules and tables that hold or fill something, and the names of tests of its bound."""

    where: set[str]
    shown_by: set[str]


HOST: Mapping[str, Held] = {
    "cores, memory, GPUs, ports": Held(
        {"agent/sessions/reservations.py"}, {"test_reservations_never_exceed_capacity"}
    ),
    "start slots": Held(
        {"agent/sessions/reservations.py", "agent/app/daemon.py"},
        {"test_one_account_holds_at_most_half_of_the_slots"},
    ),
    "prepared containers": Held(
        {"agent/domain/kept/preparation.py"},
        {
            "test_account_alone_has_at_most_half",
            "test_each_shape_gets_its_first_before_any_gets_its_second",
        },
    ),
    "pulls of images": Held(
        {"agent/images/images.py"},
        {
            "test_pulls_of_an_account_leave_slots_to_others",
            "test_pull_from_a_registry_that_trickles_ends_and_gives_its_slot_to_the_next",
        },
    ),
    "disk for images": Held(
        {"agent/images/images.py"},
        {
            "test_no_pull_begins_while_the_disk_is_low",
            "test_pulls_reserve_what_their_images_may_take",
        },
    ),
    "followers, and other readers, of logs": Held(
        {"agent/logs/reading.py"},
        {
            "test_followers_of_logs_are_limited_by_session_account_and_host",
            "test_readers_that_do_not_follow_are_limited_too",
        },
    ),
    "lines that followers read": Held(
        {"agent/logs/pace.py"},
        {
            "test_followers_of_floods_share_the_part",
            "test_follower_of_a_quiet_game_never_waits",
            "test_follower_of_a_flood_waits",
        },
    ),
    "artifacts in transit": Held(
        {"agent/artifacts/spool_room.py", "agent/app/daemon.py"},
        {
            "test_account_takes_half_of_the_rest",
            "test_readers_of_one_session_leave_room_for_others",
        },
    ),
    "output of games": Held(
        {"agent/domain/sessions/log_rate.py"},
        {
            "test_flood_ends_with_a_reason_of_its_own",
            "test_account_with_many_sessions_within_the_limits_is_held_to_its_share",
        },
    ),
    "disks of sessions": Held(
        {"agent/limits/disk_limits.py"}, {"test_session_over_its_limit_ends_and_others_do_not"}
    ),
    "containers and logs of ended sessions": Held(
        {"agent/domain/sessions/retention.py"},
        {"test_flood_from_one_account_evicts_nothing_of_another"},
    ),
    "calls to the engine": Held(
        {"agent/docker/calls.py", "agent/docker/listing.py", "agent/reconciliation/reconciler.py"},
        {"test_calls_about_many_containers_share_a_few_connections"},
    ),
    "claims in progress": Held(
        {"agent/rpc/claim_stream.py"}, {"test_claims_beyond_those_in_progress_wait"}
    ),
    "connections to TLS ports": Held(
        {"agent/network/tls_gate.py"}, {"test_closes_connections_over_limit"}
    ),
    "connections of control planes": Held(
        {"agent/rpc/tls_server.py"}, {"test_strangers_cannot_exhaust_open_files"}
    ),
    "connections to the metrics": Held(
        {"agent/metrics_endpoint/listener.py"}, {"test_held_connections_do_not_block_scrapes"}
    ),
}
