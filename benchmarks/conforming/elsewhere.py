"""The places of the conformance tests that need no quiet machine, or have a separate benchmark."""

import argparse
import re
from collections.abc import Iterator

from conforming.rows import REPOSITORY, Check, Row

ELSEWHERE: dict[str, tuple[str, list[str]]] = {
    "5": (
        "first byte and last byte apart; answers without a body have a first byte",
        [
            "probes/tests/probe/answers.rs::first_byte_and_last_byte_are_told_apart",
            "probes/tests/probe/receive.rs::the_kernel_tells_when_the_first_byte_came",
            "probes/tests/probe/answers.rs::every_framing_is_understood",
        ],
    ),
    "9": (
        "any cut, length and damage: the exact failure, nothing over-read",
        [
            "probes/tests/probe/receive.rs::a_response_may_be_cut_anywhere",
            "probes/tests/probe/receive.rs::heads_and_bodies_of_any_length_are_told_apart",
            "probes/tests/probe/receive.rs::one_byte_behind_a_body_of_any_length_is_seen_at_once",
            "probes/tests/probe/receive.rs::damaged_responses_are_counted_once_each",
            "probes/tests/probe/outcomes.rs::a_short_body_is_truncated",
            "probes/tests/probe/outcomes.rs::another_length_than_the_file_has_is_length",
            "probes/tests/probe/outcomes.rs::an_unexpected_status_is_status",
            "probes/tests/probe/outcomes.rs::a_reset_is_a_reset",
            "probes/tests/probe/bodies.rs::one_flipped_byte_is_a_hash_failure",
        ],
    ),
    "10": (
        "keepalive that ends: arrivals and intended times kept, reconnects counted",
        [
            "probes/tests/probe/answers.rs::a_keepalive_limit_costs_no_request",
            "probes/tests/probe/receive.rs::a_connection_that_is_closed_while_idle_costs_no_arrival",
            "probes/tests/probe/receive.rs::a_request_that_is_sent_again_keeps_its_intended_time",
            "probes/tests/probe/plans.rs::connections_are_kept_as_long_as_the_plan_says",
        ],
    ),
    "15": (
        "merged histograms are exact; the Python library reads them alike",
        [
            "tests/proof/test_prove_merge.py::test_merging_gives_what_one_recorder_of_everything_gives",
            "tests/examples/test_kubernetes.py::test_three_pods_are_one_load",
            "tests/probe/test_probe_nginx.py::test_histograms_read_the_same_in_the_public_library",
            "tests/proof/test_prove_histogram.py::test_adding_gives_what_recording_everything_gives",
        ],
    ),
    "16": ("verdicts: false ones, coverage, power", ["benchmarks/verdict_errors.py"]),
    "17": (
        "CPU a request beside wrk; memory small and flat",
        ["benchmarks/probe_vs_wrk.py", "benchmarks/probe_memory.py"],
    ),
    "18": (
        "refused before any packet; caps hold; ends at once with a signal or its parent",
        [
            "probes/tests/probe/process.rs::a_target_that_is_not_permitted_gets_no_packet",
            "tests/probe/test_probe_packets.py::test_a_target_that_is_not_allowed_gets_no_packet",
            "probes/tests/probe/plans.rs::redirects_are_not_followed",
            "probes/tests/probe/process.rs::the_caps_hold_during_the_run",
            "probes/tests/probe/process.rs::a_signal_ends_the_run_though_requests_wait_and_the_result_is_printed",
            "probes/tests/probe/process.rs::it_ends_with_its_parent",
            "probes/tests/probe/process.rs::it_ends_with_its_parent",
        ],
    ),
    "26": (
        "servers of HTTP/2 and HTTP/3 that mean harm: each its failure, bounded, an end",
        [
            "probes/tests/probe/hostile/http2.rs::servers_of_http2_that_mean_harm_have_their_names",
            "probes/tests/probe/hostile/http3.rs::servers_of_http3_that_mean_harm_have_their_names",
        ],
    ),
    "27": (
        "mutated frames and header blocks: nothing breaks, nothing grows",
        [
            "probes/src/http2/multiplex/tests/faults.rs::mutated_frames_break_nothing",
            "probes/src/http2/hpack/tests.rs::mutated_blocks_break_nothing",
            "probes/src/http3/answer/tests.rs::mutated_streams_never_panic_and_cost_no_more_than_a_block",
            "probes/src/http3/incoming/tests.rs::mutated_streams_never_panic",
            "probes/src/http3/multiplex/tests.rs::mutated_words_of_a_server_never_panic",
            "probes/src/http3/qpack.rs::mutated_blocks_break_nothing",
        ],
    ),
    "28": (
        "a server that stands still once: what waited is counted, over HTTP/2 and HTTP/3 too",
        [
            "probes/tests/probe/arrivals.rs::a_stalled_server_hides_no_arrival",
            "tests/probe/test_probe_http2.py::test_what_a_stopped_server_delays_stands_in_the_latencies",
            "tests/probe/test_probe_http3.py::test_what_a_stopped_server_delays_stands_in_the_latencies",
        ],
    ),
    "29": (
        (
            "1 % and 5 % of the packets lost, others late: all is answered, "
            "the round trip is the link's"
        ),
        [
            "tests/probe/test_probe_far.py::test_all_is_answered_in_spite_of_losses_and_reordering",
            "tests/probe/test_probe_far.py::test_the_round_trip_is_that_of_the_link",
        ],
    ),
}
"""By number: the requirement, and its tests (``file::function``) and benchmarks."""


def elsewhere(number: str) -> Check:
    """A row with the places where a number is tested."""
    asked, places = ELSEWHERE[number]

    def name(_options: argparse.Namespace) -> Iterator[Row]:
        gone = [place for place in places if not is_there(place)]
        if gone:
            yield Row(number, asked, f"gone: {', '.join(gone)}", held=False)
        else:
            yield Row(number, asked, ", ".join(f"`{place}`" for place in places), held=None)

    name.__doc__ = f"Elsewhere: {asked}."
    return name


def is_there(place: str) -> bool:
    """True if a file, and the named function in it, exist."""
    file, _, function = place.partition("::")
    path = REPOSITORY / file
    if not path.is_file():
        return False
    wanted = rf"\b(?:fn|def) {re.escape(function)}\("
    return not function or re.search(wanted, path.read_text()) is not None
