"""Access logs whose truth is known: made from a seed."""

import heapq
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

FULL = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
    '"$http_referer" "$http_user_agent" $msec $request_time $connection $connection_requests '
    "$ssl_protocol $upstream_cache_status"
)
_FIRST_SECOND = 1_790_000_000


@dataclass(frozen=True)
class Truth:
    """What a log is made of."""

    seed: int = 1
    requests: int = 40_000
    objects: int = 3_000
    exponent: float = 0.9
    rate: float = 80.0
    duration_mean: float = 0.25
    """Seconds that a request takes, exponentially distributed."""
    stop_ratio: float = 0.2
    """Chance that a connection ends after a request: 1 / requests per connection."""
    tls_ratio: float = 0.75
    hit_ratio: float = 0.6


@dataclass(frozen=True)
class Request:
    end: float
    duration: float
    object: int
    size: int
    connection: int
    nth: int
    is_tls: bool
    is_hit: bool


def size_of(rank: int) -> int:
    """Sizes that have nothing to do with popularity."""
    return 500 + (rank * 2_654_435_761 % 1_000_003) % 60_000


def requests_of(truth: Truth) -> Iterator[Request]:
    """Requests in the order in which they end."""
    chance = random.Random(truth.seed)
    weights = list(accumulate(rank**-truth.exponent for rank in range(1, truth.objects + 1)))
    pending: list[tuple[float, int, Request]] = []
    start = float(_FIRST_SECOND)
    open_connections: list[tuple[int, int]] = []
    connections = 0
    for number in range(truth.requests):
        start += chance.expovariate(truth.rate)
        if open_connections and chance.random() < 0.95:
            connection, nth = open_connections.pop(chance.randrange(len(open_connections)))
        else:
            connections += 1
            connection, nth = connections, 0
        nth += 1
        if chance.random() >= truth.stop_ratio:
            open_connections.append((connection, nth))
        rank = chance.choices(range(1, truth.objects + 1), cum_weights=weights)[0]
        duration = chance.expovariate(1 / truth.duration_mean)
        end = start + duration
        request = Request(
            end, duration, rank, size_of(rank), connection, nth,
            chance.random() < truth.tls_ratio, chance.random() < truth.hit_ratio,
        )  # fmt: skip
        heapq.heappush(pending, (end, number, request))
        while pending and pending[0][0] <= start:
            yield heapq.heappop(pending)[2]
    while pending:
        yield heapq.heappop(pending)[2]


def lines_of(truth: Truth) -> Iterator[str]:
    """The log of those requests in the format FULL."""
    for request in requests_of(truth):
        local = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(request.end))
        yield (
            f"192.0.2.{request.connection % 250} - - [{local}] "
            f'"GET /files/{request.object}.bin?token=secret{request.nth} HTTP/1.1" 200 '
            f'{request.size} "-" "Agent/1.0" {request.end:.3f} {request.duration:.3f} '
            f"{request.connection} {request.nth} {'TLSv1.3' if request.is_tls else '-'} "
            f"{'HIT' if request.is_hit else 'MISS'}"
        )
