"""Settings about packets, tried over a link whose packets are unlike a network's."""

from __future__ import annotations

import msgspec
import pytest

from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.documents.lab import Lab
from nginx_tune.validate.stage_notes import packet_warnings

LOOPBACK = Lab(name="l")
LINK = msgspec.structs.replace(LOOPBACK, topology="link")


def tree(lines: str) -> ConfTree:
    return parse_text(f"events {{}} http {{ {lines} server {{ location / {{ }} }} }}")


@pytest.mark.parametrize(
    ("baseline", "candidate", "named"),
    [
        ("sendfile on;", "sendfile on; tcp_nopush on;", "tcp_nopush"),
        ("sendfile on; tcp_nopush on;", "sendfile off;", "sendfile, tcp_nopush"),
        ("tcp_nodelay off;", "tcp_nodelay on;", "tcp_nodelay"),
        ("", "postpone_output 0;", "postpone_output"),
    ],
)
def test_it_is_told_what_the_link_may_turn_round(baseline: str, candidate: str, named: str) -> None:
    (said,) = packet_warnings(LOOPBACK, [tree(baseline), tree(candidate)])
    assert f"differ in {named}, and" in said
    assert packet_warnings(LINK, [tree(baseline), tree(candidate)]) == []


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        ("tcp_nopush on;", "tcp_nopush on; aio threads;"),
        ("", "tcp_nopush off; tcp_nodelay on; sendfile off; postpone_output 1460;"),
    ],
)
def test_nothing_is_told_of_other_differences(baseline: str, candidate: str) -> None:
    assert packet_warnings(LOOPBACK, [tree(baseline), tree(candidate)]) == []
