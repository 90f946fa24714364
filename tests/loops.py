"""The loop that the tests run on, by the variable `AIOPRODUCER_TEST_LOOP`, and the tests left out there.

    (not set)    asyncio's own
    eager        asyncio's own, and every task begins within the call that makes it (`asyncio.eager_task_factory`, Python 3.12)
    uvloop       uvloop's own. Its timers cannot jump: a test that lasts for no more than some seconds runs in real time

asyncio's debug mode is its own variable, PYTHONASYNCIODEBUG.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import uvloop

from aioproducer.testing.jumping import JumpingLoop

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["jumping", "use", "why_left_out"]

KIND = os.environ.get("AIOPRODUCER_TEST_LOOP", "")
_ON_UVLOOP = {
    "it lasts for more than some seconds of real time": {
        "tests/engine/metadata/test_metadata_updater.py": """
            test_a_broker_may_ask_for_a_new_bootstrap
            test_a_broker_that_throttles_is_left_alone
            test_a_failed_bootstrap_names_every_address_and_its_reason
            test_a_hint_is_followed_without_a_request
            test_a_topic_is_in_one_question_at_a_time
            test_a_topic_that_nobody_needs_is_not_asked_for_again
            test_brokers_that_do_not_answer_for_long_are_forgotten
            test_brokers_that_move_are_found_again_at_the_bootstrap_addresses
            test_it_needs_no_bootstrap_of_its_own
            test_many_topics_are_asked_for_in_portions
            test_nobody_up_is_no_busy_loop
            test_stale_topics_are_asked_for_a_pause_after_the_last_answer
            test_what_is_old_is_asked_for
            test_what_nobody_needs_is_not_remembered
            test_without_topics_the_brokers_are_asked_for
        """,
        "tests/net/test_cluster.py": """
            test_nothing_is_dialled_before_somebody_asks
        """,
        "tests/net/test_connection.py": """
            test_a_request_without_an_answer_ends_the_connection
            test_an_answered_request_times_nobody_out
            test_an_idle_connection_stays
            test_the_next_request_times_out_in_its_own_time
            test_the_shortest_time_of_several_ends_the_connection
        """,
        "tests/net/test_handshake.py": """
            test_a_broker_that_does_not_answer
        """,
        "tests/net/test_idle.py": """
            test_a_close_that_takes_long_is_one_close
            test_a_connection_that_is_never_used_is_closed
            test_a_connection_with_a_request_on_its_way_is_not_idle
            test_each_use_begins_anew
            test_nor_is_one_whose_unanswered_requests_have_no_room_yet
            test_the_least_recently_used_lane_is_closed_first
        """,
        "tests/net/test_broker_connection.py": """
            test_a_broker_that_closes_at_our_newest_form_is_asked_in_the_oldest
            test_a_resolver_that_hangs_is_given_up
            test_after_a_loss_the_name_is_looked_up_again
            test_an_address_that_hangs_ends_the_attempt_and_another_is_next
            test_each_failure_gives_the_next_attempt_more_time
            test_a_connection_that_lasted_is_made_again_at_once
        """,
        "tests/net/test_broker_node.py": """
            test_a_call_that_takes_too_long
            test_a_lost_connection_is_made_again_at_the_next_request
            test_closing_ends_everything
            test_nothing_is_dialled_without_a_request
        """,
        "tests/net/test_broker_node_failures.py": """
            test_a_handshake_that_hangs_is_given_up
        """,
        "tests/net/test_throttle.py": """
            test_a_node_that_is_closed_throttles_no_more
            test_a_shorter_time_shortens_no_longer_one
            test_the_time_counts_for_no_request_on_its_way
        """,
        "tests/scenarios/test_token_endpoints.py": """
            test_a_token_file_is_read_anew
            test_an_endpoint_that_is_away_for_longer_than_the_token_lives
            test_an_endpoint_that_is_away_while_the_old_token_lives
            test_tokens_of_twenty_seconds_for_five_minutes
        """,
        "tests/scenarios/test_answers.py": """
            test_a_leader_that_the_answer_names_gets_the_records_at_once
            test_what_is_retried_in_vain_ends_with_its_name
        """,
        "tests/scenarios/test_backpressure.py": """
            test_fifty_tasks_against_a_stalled_broker_all_arrive_once_and_in_order
            test_no_memory_within_max_block_ms_fails_the_send_and_nothing_is_queued
            test_who_waits_for_memory_does_not_keep_the_loop_busy
        """,
        "tests/engine/circuit_breaker/test_manager.py": """
            test_a_slow_broker_that_heals_is_well_again_within_the_interval
            test_the_longest_pause_bounds_recovery
        """,
        "tests/scenarios/test_cluster_view.py": """
            test_a_strange_list_of_brokers_is_passed_over
            test_a_topic_that_no_longer_exists_fails_its_records_with_that_reason
        """,
        "tests/scenarios/test_delivering.py": """
            test_no_more_requests_than_allowed_are_in_flight
        """,
        "tests/engine/metadata/test_topic_expiry.py": """
            test_a_producer_whose_epochs_are_used_up_by_topics_that_come_back
            test_a_record_that_waits_for_memory_when_its_topic_is_forgotten
            test_a_send_in_the_moment_of_forgetting
            test_a_steady_refresh_asks_only_for_what_is_in_use
            test_a_topic_stays_while_its_records_are_on_their_way
            test_a_topic_that_comes_back_goes_on_in_its_log
            test_a_topic_that_is_gone_when_it_comes_back
            test_a_topic_that_is_sent_to_stays
            test_a_topic_that_was_made_anew_meanwhile
            test_a_transactional_producers_topics
            test_large_topics_are_forgotten_beside_records_that_flow
            test_nothing_is_left_of_a_topic_that_never_was
            test_nothing_is_left_of_an_idle_topic
            test_stopping_while_topics_are_forgotten
            test_the_epoch_of_a_topic_that_comes_back_is_one_that_no_broker_knows
        """,
        "tests/scenarios/test_idempotence.py": """
            test_after_a_silence_the_first_goes_alone
        """,
        "tests/scenarios/test_in_flight.py": """
            test_one_in_flight_never_reorders
        """,
        "tests/scenarios/test_large_topics.py": """
            test_one_that_is_made_anew_while_records_flow
        """,
        "tests/scenarios/test_made_anew.py": """
            test_records_of_a_partition_that_is_no_more_fail_with_the_reason
        """,
        "tests/scenarios/test_measuring.py": """
            test_a_record_that_is_overdue_is_no_health
            test_a_topic_that_is_forgotten_takes_its_metrics_along
            test_health_follows_the_brokers
            test_what_is_kept_waiting_shows
            test_who_waits_for_memory_is_counted_and_timed
        """,
        "tests/scenarios/test_telling.py": """
            test_an_outage_is_told_once_when_it_begins_and_ends
            test_throttles_and_forgotten_clusters_are_told
        """,
        "tests/scenarios/test_network.py": """
            test_a_black_hole_holds_up_no_other_broker
            test_a_broker_that_closes_idle_connections_costs_nothing
            test_a_cluster_that_moved_is_found_by_its_bootstrap_name
            test_a_connection_in_use_is_never_idle
            test_a_hanging_dial_for_records_holds_up_no_metadata_of_the_same_broker
            test_a_peer_that_vanishes_is_noticed_by_its_silence
            test_all_brokers_down_and_up_again
            test_an_advertised_address_that_is_wrong_is_in_the_error
            test_every_address_of_a_name_is_tried
            test_idle_connections_are_closed_here_first
            test_start_says_of_every_address_why_it_failed
        """,
        "tests/scenarios/test_order_property.py": """
            test_records_are_logged_in_call_order_whatever_their_sends_waited_for
        """,
        "tests/scenarios/test_retries.py": """
            test_a_delivery_that_times_out_in_flight_may_have_been_written
            test_an_answer_that_omits_a_partition_is_an_uncertain_attempt
            test_records_follow_a_leader_that_moved_while_its_old_broker_is_gone
        """,
        "tests/scenarios/test_rotation.py": """
            test_a_bundle_of_authorities_that_is_replaced
            test_a_certificate_that_kubernetes_swaps
            test_a_password_in_a_file
            test_a_password_that_changes_in_the_file_first
            test_a_token_in_a_file
            test_a_token_in_a_file_that_is_renewed_late
            test_a_user_who_is_renamed
            test_a_vault_that_is_sealed_for_a_minute
            test_a_vault_that_stays_sealed
            test_brokers_that_change_before_the_bundle_does
        """,
        "tests/net/test_msk.py": """
            test_an_hour_of_records
        """,
        "tests/test_recipes.py": """
            test_event_hubs_closes_idle_connections
        """,
        "tests/scenarios/test_shutdown.py": """
            test_failures_nobody_looks_at_are_told_now_and_then
        """,
        "tests/scenarios/test_starting.py": """
            test_a_start_that_lasts_says_what_it_waits_for
            test_a_stop_that_lasts_says_what_it_waits_for
        """,
        "tests/scenarios/test_too_large.py": """
            test_who_awaits_a_record_of_a_split_batch_is_woken_by_its_own_piece
        """,
        "tests/scenarios/test_unsent.py": """
            test_stop_does_not_wait_for_ever
            test_stop_waits_until_what_was_acknowledged_has_left
        """,
        "tests/engine/metadata/test_topic_waiters.py": """
            test_a_cancelled_wait_for_a_topic_ends_the_asking
            test_a_wait_for_one_topic_holds_up_no_other
            test_an_unknown_topic_is_asked_for_a_few_times_a_second
            test_metadata_is_asked_anew_when_it_is_old
        """,
        "tests/engine/transactions/test_producer_id.py": """
            test_an_id_that_is_refused_fails_what_waits_until_the_next_batch
        """,
    },
    "its times are exact, which only time that jumps is": {
        "tests/engine/transactions/test_transaction_manager.py": """
            test_begin_waits_for_the_id_for_max_block_ms
            test_giving_up_aborts_what_is_open_in_bounded_time
        """,
        "tests/engine/metadata/test_metadata_updater.py": """
            test_a_new_topic_does_not_wait_behind_a_refresh
            test_a_wanted_topic_is_asked_for_at_once_with_those_of_its_turn
            test_bootstrap_goes_on_to_the_next_address
            test_an_address_that_hangs_holds_up_the_next_for_a_moment_only
        """,
        "tests/net/test_broker_connection.py": """
            test_a_connection_that_hangs_delays_no_other
            test_all_addresses_of_a_name_are_tried
            test_only_a_usable_connection_ends_the_pauses
            test_patience_is_shorter_than_the_dial
        """,
        "tests/net/test_broker_node.py": """
            test_a_node_that_was_closed_while_it_dialled_is_never_connected
            test_a_call_waits_for_its_connection_no_longer_than_for_its_answer
            test_a_connection_that_ends_before_its_waiter_runs
            test_who_waits_when_a_node_is_closed_is_told
        """,
        "tests/net/test_broker_node_failures.py": """
            test_a_failed_dial_tells_those_who_wait
            test_failures_are_followed_by_pauses_that_grow
            test_a_dial_that_hangs_is_given_up
        """,
        "tests/scenarios/test_answers.py": """
            test_the_late_answer_of_an_expired_batch_is_dropped
            test_what_is_refused_for_good_fails_at_once
            test_records_expire_wherever_they_are_and_their_callbacks_may_send_again
            test_a_throttling_broker_is_left_alone_for_so_long
        """,
        "tests/scenarios/test_delivering.py": """
            test_linger_lets_a_batch_fill
        """,
        "tests/scenarios/test_linger_by_load.py": """
            test_a_lone_record_leaves_at_once
            test_full_batches_do_not_wait
            test_memory_that_is_short_lets_go
            test_two_halves_of_a_crowd_become_one
            test_what_comes_while_one_is_in_flight_gathers_and_leaves_with_the_answer
            test_who_flushes_does_not_wait_for_the_answer_first
        """,
        "tests/scenarios/test_face.py": """
            test_a_service_boots_while_kafka_is_down
            test_a_failure_explains_what_happened_to_its_batch
            test_it_stops_before_kafka_came
        """,
        "tests/scenarios/test_network.py": """
            test_a_broker_that_does_not_know_our_newest_handshake
            test_one_bootstrap_address_that_refuses_costs_no_time
        """,
        "tests/engine/append/test_interceptors.py": """
            test_one_that_holds_the_loop_is_named
        """,
        "tests/scenarios/test_measuring.py": """
            test_a_loop_that_is_held_shows
        """,
        "tests/engine/append/test_send_many.py": """
            test_a_slow_iterable_holds_the_loop_for_a_few_records_at_most
            test_records_of_others_in_the_same_batch_are_not_taken_for_these
        """,
        "tests/scenarios/test_shutdown.py": """
            test_a_crash_in_the_producers_own_task_fails_everything_with_its_cause
            test_start_names_every_address_that_refused
            test_stop_is_bounded_when_a_broker_hangs
        """,
        "tests/scenarios/test_too_large.py": """
            test_pieces_expire_when_their_batch_would_have
        """,
        "tests/scenarios/test_transaction_faults.py": """
            test_the_last_transaction_is_still_ending
            test_start_without_a_coordinator
        """,
        "tests/net/test_throttle.py": """
            test_a_throttled_node_is_not_ready_for_so_long
            test_a_call_waits_until_the_broker_may_be_asked
        """,
        "tests/scenarios/test_cluster_view.py": """
            test_a_name_that_no_topic_can_have_fails_at_once
            test_a_topic_that_may_not_be_used_fails_alone_and_recovers
            test_a_throttling_broker_is_asked_for_no_metadata_either
        """,
        "tests/scenarios/test_transaction_cancellation.py": """
            test_stop_is_bounded_with_a_transaction_open
        """,
        "tests/scenarios/test_unsent.py": """
            test_stop_is_quick_when_all_has_left
        """,
        "tests/test_mistakes.py": """
            test_a_mistake[topic_unknown]
            test_a_mistake[partition_2_of_2]
        """,
        "tests/engine/metadata/test_topic_waiters.py": """
            test_a_topic_that_never_comes_fails_the_send_after_max_block_ms
            test_a_topic_that_is_refused_fails_at_once
        """,
    },
    "it looks into asyncio's own loop": {
        "tests/engine/tasks/test_guarded_loop.py": """
            test_a_patient_one_can_be_stopped_while_it_waits_for_the_sockets
        """,
        "tests/net/test_addresses.py": """
            test_dns_gives_every_answer_once
            test_dns_knows_the_name_of_an_address
        """,
        "tests/net/test_idle.py": """
            test_a_lost_connection_leaves_no_timer
            test_never
        """,
        "tests/net/test_transport.py": """
            test_nobody_listens
            test_the_sizes_of_the_sockets_buffers
        """,
        "tests/scenarios/test_shutdown.py": """
            test_stop_sends_what_is_queued_and_leaves_nothing
        """,
    },
}
LEFT_OUT: dict[str, dict[str, str]] = {
    "": {},
    "eager": {},
    "uvloop": {
        f"{module}::{name}": reason for reason, modules in _ON_UVLOOP.items() for module, names in modules.items() for name in names.split()
    },
}
_DEADLINE = 20.0  # seconds of real time for what is not on the list


class RealLoop(uvloop.Loop):  # type: ignore[misc]
    """Replaces the loop with jumping time by one in real time. Tests that take long belong on the list."""

    def run_until_complete(self, future: Any) -> Any:
        """With a deadline for a task; without another task for that, as tests count them."""
        if not isinstance(future, asyncio.Task):
            return super().run_until_complete(future)
        timer = self.call_later(_DEADLINE, future.cancel, f"it took more than {_DEADLINE:g} s")
        try:
            return super().run_until_complete(future)
        finally:
            timer.cancel()


jumping: Callable[[], asyncio.AbstractEventLoop] = RealLoop if KIND == "uvloop" else JumpingLoop


def use() -> None:
    """Use the loop of this run for all tests."""
    if KIND == "uvloop":
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    elif KIND == "eager" and asyncio.BaseEventLoop.__init__ is not _eager:
        asyncio.BaseEventLoop.__init__ = _eager  # type: ignore[method-assign]


_plain = asyncio.BaseEventLoop.__init__


def _eager(self: asyncio.BaseEventLoop, *args: Any) -> None:
    _plain(self, *args)
    self.set_task_factory(_begin_at_once)


def _begin_at_once(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """Every task but those of two that must have stored them before they begin.

    aiokafka's consumer waits for ever otherwise; anyio sees to it itself, but knows asyncio's own factory only.
    """
    code = getattr(coroutine, "cr_code", None)
    if code is not None and any(f"{os.sep}{name}{os.sep}" in code.co_filename for name in ("aiokafka", "anyio")):
        return asyncio.Task(coroutine, loop=loop, **options)
    return asyncio.eager_task_factory(loop, coroutine, **options)  # type: ignore[attr-defined,no-any-return]


def why_left_out(node: str) -> str:
    """The reason why a test is not run on this loop; empty: it is."""
    left_out = LEFT_OUT[KIND]
    return left_out.get(node.replace(" ", "_")) or left_out.get(node.partition("[")[0], "")
