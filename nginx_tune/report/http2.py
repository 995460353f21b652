"""What the connections of a class with HTTP/2 or HTTP/3 came to, in words."""

from __future__ import annotations

from nginx_tune.documents.measured_class import Http2Streams, Http3Streams


def streams_text(streams: Http2Streams, connections: int) -> str:
    """Its connections and streams, and what the server refused or reset."""
    protocol = "HTTP/3" if isinstance(streams, Http3Streams) else "HTTP/2"
    said = [
        f"{protocol}, {connections:,} connections opened",
        f"streams at once {streams.mean_streams:.1f} on average, {streams.most_streams:,} at most",
    ]
    if streams.peer_limit is not None:
        said.append(f"the server takes {streams.peer_limit:,}")
    if streams.goaways:
        said.append(f"it left {streams.goaways:,} connections (GOAWAY)")
    if streams.refused:
        said.append(f"{streams.refused:,} requests that it had not looked at were sent again")
    if streams.resets:
        said.append(f"{streams.resets:,} streams reset")
    if streams.window_stalls:
        said.append(f"the probe's own windows ran low {streams.window_stalls:,} times")
    if isinstance(streams, Http3Streams):
        said.extend(_beneath(streams))
    return "; ".join(said)


def _beneath(streams: Http3Streams) -> list[str]:
    """Handshakes and datagrams."""
    said = [
        f"{streams.handshakes:,} handshakes",
        f"{streams.datagrams_sent:,} datagrams sent and {streams.datagrams_received:,} received",
    ]
    if streams.lost_packets:
        said.append(f"{streams.lost_packets:,} packets of the probe lost")
    if streams.dropped_datagrams:
        said.append(f"{streams.dropped_datagrams:,} datagrams found the probe's buffer full")
    return said
