"""What the connections of several load hosts with HTTP/2 came to together."""

import pytest

from nginx_tune.documents.measured_class import Http2Streams
from nginx_tune.measure.proof.merge import add_streams


def test_streams_add_and_the_mean_goes_by_their_number() -> None:
    few = Http2Streams(streams=10, most_streams=2, mean_streams=1.0, peer_limit=128, goaways=1)
    many = Http2Streams(streams=30, most_streams=9, mean_streams=5.0, refused=4, resets=2)
    added = add_streams([few, many])
    assert added is not None
    assert (added.streams, added.most_streams, added.peer_limit) == (40, 9, 128)
    assert (added.goaways, added.refused, added.resets, added.window_stalls) == (1, 4, 2, 0)
    assert added.mean_streams == pytest.approx(4.0)


def test_of_http_1_there_is_nothing_to_add() -> None:
    assert add_streams([]) is None
