"""Everything that an account or a host can hold or fill is on the list of operations.md.

A new slot, queue, room or table that is on no list fails here. Each entry names its bound's test.
"""

import ast
import re
from collections.abc import Iterator, Mapping

import pytest

from controlplane.storage.engine.migrations import MIGRATIONS
from tests.held_on_hosts import HOST, Held
from tests.support.source_trees import READS_SOURCES, ROOT, file_of, modules

pytestmark = READS_SOURCES

PAGE = ROOT / "docs" / "operations.md"
PROGRAMS = ("agent.", "controlplane.")
QUEUES = {"FairQueue", "LifoQueue", "PriorityQueue", "Queue"}
MAKERS = QUEUES | {
    "ByteRoom",
    "FairSlots",
    "Semaphore",
    "SpoolRoom",
    "StartSlots",
    "exceeds_share",
}
"""Calls that make something to hold or fill, or decide about a share of it."""


CONTROL_PLANE: Mapping[str, Held] = {
    "connections to the API": Held(
        {"controlplane/http/gate.py"}, {"test_caps_count_open_connections_and_close_further_ones"}
    ),
    "connections to `enrol_listen`, to `metrics_listen`": Held(
        {"controlplane/api/enrolling.py", "controlplane/metrics_endpoint/listener.py"},
        {"test_caps_count_open_connections_and_close_further_ones"},
    ),
    "requests that are processed": Held(
        {"controlplane/admission/request_slots.py"},
        {
            "test_requests_of_an_account_beyond_its_slots_wait",
            "test_fewer_are_worked_on_while_others_call",
        },
    ),
    "bytes of request bodies": Held(
        {"controlplane/admission/byte_room.py", "controlplane/http/listeners.py"},
        {"test_unfinished_bodies_take_half_of_the_room_at_most"},
    ),
    "bytes of responses that wait for their readers": Held(
        {"controlplane/admission/byte_room.py"},
        {"test_unread_responses_take_half_of_the_room_at_most"},
    ),
    "turns of the database": Held(
        {"controlplane/storage/engine/worker.py"},
        {"test_requests_queue_at_the_database_as_their_accounts"},
    ),
    "starts that wait for a slot": Held(
        {"controlplane/fleet/queue.py"},
        {"test_starts_beyond_a_share_of_the_queue_are_refused_at_once"},
    ),
    "start slots of hosts": Held(
        {
            "controlplane/domain/placement/placement.py",
            "controlplane/fleet/host/facts.py",
            "controlplane/fleet/host/start_slots.py",
        },
        {"test_starts_of_a_slow_image_leave_start_slots_to_other_accounts"},
    ),
    "rate of starts": Held(
        {"controlplane/domain/access/start_rate.py"},
        {"test_burst_passes_and_retry_after_is_accurate"},
    ),
    "waits of `Prefer: wait=ready`": Held(
        {"controlplane/sessions/wait_ready.py"}, {"test_answers_at_once_beyond_the_share_of_waits"}
    ),
    "streams of events": Held(
        {"controlplane/admission/stream_slots.py"},
        {"test_account_has_a_share_of_the_streams", "test_streams_of_a_token_are_limited"},
    ),
    "events in memory": Held(
        {"controlplane/events/recent_events.py"},
        {"test_oldest_events_go_beyond_the_number", "test_oldest_events_go_beyond_the_bytes"},
    ),
    "pulls to a host": Held(
        {"controlplane/fleet/host/images.py"},
        {"test_pulls_of_an_account_that_hang_delay_no_other_account"},
    ),
    "disk for images of a host": Held(
        {"controlplane/fleet/host/image_room.py"},
        {
            "test_images_of_an_account_take_at_most_half_of_what_others_leave_free",
            "test_pulls_under_way_reserve_what_their_images_are_expected_to_take",
        },
    ),
    "connections to a registry": Held(
        {"controlplane/registries/client.py"},
        {
            "test_an_account_holds_half_of_the_connections_to_a_registry",
            "test_list_of_tags_that_another_account_waits_for_is_read_at_once",
        },
    ),
    "attempts of webhooks": Held(
        {"controlplane/webhooks/attempts.py"},
        {
            "test_endpoints_of_an_account_that_hang_leave_attempts_to_others",
            "test_some_attempts_are_made_at_a_time",
            "test_accounts_take_turns_to_begin_attempts",
        },
    ),
    "tests of webhooks": Held(
        {"controlplane/webhooks/open_tests.py"}, {"test_account_has_some_tests_at_a_time"}
    ),
    "lookups of the names of webhooks": Held(
        {"controlplane/webhooks/resolver.py"},
        {"test_names_of_an_account_that_cannot_be_looked_up_leave_threads_to_others"},
    ),
    "lists of tags in memory": Held(
        {"controlplane/registries/tag_lists.py"},
        {"test_limits_cached_lists", "test_a_list_is_bounded"},
    ),
    "removals of images from a host": Held(
        {"controlplane/fleet/host/images.py"},
        {"test_few_images_are_removed_at_a_time_however_many_a_host_reports"},
    ),
    "stops, claims and orders that follow from reports": Held(
        {"controlplane/fleet/host/delivery.py"},
        {
            "test_false_reports_of_one_host_cause_few_stops_at_a_time",
            "test_waiting_calls_are_bounded",
        },
    ),
    "writes of reported sessions": Held(
        {"controlplane/fleet/host/watch.py"},
        {"test_many_reported_sessions_are_written_a_portion_at_a_time"},
    ),
    "bytes of reported sessions": Held(
        {"controlplane/fleet/host/state.py"},
        {"test_bytes_of_sessions_are_those_of_their_newest_reports"},
    ),
    "echoes of latency addresses": Held(
        {"controlplane/fleet/pinger.py"}, {"test_concurrent_echoes_are_limited"}
    ),
    "renewals of certificates": Held(
        {"controlplane/fleet/renewal.py"}, {"test_renewals_at_a_time_are_limited"}
    ),
    "rows of live sessions": Held(
        {"session", "live_label", "player"},
        {"test_bytes_of_labels_are_limited", "test_players_go_with_the_end_of_their_session"},
    ),
    "rows of ended sessions": Held(
        {"session"},
        {
            "test_oldest_ended_sessions_of_the_account_are_removed",
            "test_bytes_of_ended_sessions_are_bounded",
        },
    ),
    "rows of the audit log": Held(
        {"event", "event_counter", "event_start"},
        {"test_oldest_audit_entries_of_the_account_are_removed"},
    ),
    "rows of stop orders": Held(
        {"stop_order"},
        {
            "test_newest_confirmed_stop_orders_are_kept",
            "test_confirmed_order_without_a_row_is_kept_as_long_as_an_ended_session",
        },
    ),
    "tokens": Held(
        {"token"},
        {
            "test_valid_tokens_of_an_account_are_limited",
            "test_oldest_ended_tokens_of_the_account_are_removed",
        },
    ),
    "applications, warm pools": Held(
        {"application", "application_region", "warm_pool"},
        {"test_applications_of_an_account_are_limited", "test_pools_of_an_account_are_limited"},
    ),
    "webhooks": Held(
        {"webhook", "webhook_progress", "webhook_retry", "webhook_attempt"},
        {
            "test_webhooks_of_an_account_are_limited",
            "test_newest_attempts_are_kept",
            "test_number_of_failures_is_bounded",
            "test_webhook_with_many_failed_events_reads_no_further_ones",
        },
    ),
    "enabled tags": Held(
        {"tag", "tag_in_region", "tag_on_host"},
        {
            "test_enabled_tags_are_limited_over_all_applications_of_an_account",
            "test_withdrawn_tag_leaves_nothing",
        },
    ),
    "images of withdrawn tags": Held({"image"}, {"test_images_of_withdrawn_tags_are_limited"}),
    "what operators make": Held(
        {"account", "agent", "enrolment_token", "lost_time", "node_pool", "region", "registry"},
        {"test_enrolment_attempts_are_limited_per_address"},
    ),
}


def rows_below(heading: str) -> list[str]:
    """Return the first cells of the table below a heading of the page."""
    text = PAGE.read_text("utf-8")
    section = text.partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [line.split(" | ")[0].removeprefix("| ") for line in lines[1:] if "---" not in line]


def modules_that_hold() -> set[str]:
    """Return the modules of the programs that make or use something to hold."""
    found = {name for name, nodes in modules().items() if set(called_in(nodes)) & MAKERS}
    return {file_of(name) for name in found if name.startswith(PROGRAMS)}


def called_in(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        if isinstance(called, ast.Attribute):
            yield called.attr
        elif isinstance(called, ast.Name):
            yield called.id


def tables() -> set[str]:
    """Return the tables of the control plane's database."""
    return set(re.findall(r"CREATE TABLE (\w+)", "\n".join(map(str, MIGRATIONS))))


@pytest.mark.parametrize(
    ("heading", "listed"),
    [
        ("In the control plane", CONTROL_PLANE),
        ("On a host", HOST),
    ],
)
def test_page_lists_what_is_held(heading: str, listed: Mapping[str, Held]) -> None:
    assert rows_below(heading) == list(listed)


def test_every_slot_and_table_is_on_the_list() -> None:
    listed = [held.where for held in (*CONTROL_PLANE.values(), *HOST.values())]
    assert modules_that_hold() | tables() <= set().union(*listed)


def test_what_is_listed_exists() -> None:
    for held in (*CONTROL_PLANE.values(), *HOST.values()):
        for place in held.where - tables():
            assert (ROOT / place).is_file(), place


def test_each_bound_is_shown_by_a_test_that_exists() -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    known = set(re.findall(r"def (test_\w+)\(", "\n".join(texts)))
    for name, held in (*CONTROL_PLANE.items(), *HOST.items()):
        assert held.shown_by, name
        assert held.shown_by <= known, name
