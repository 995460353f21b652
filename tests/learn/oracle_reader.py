"""The reader of access logs that needs nothing but Python: lines in, a tally out.

The executable's reader (probes/src/learn/) gives the same tally, many times faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec
import oracle_clock as clock
from oracle_line import (
    LineReader,
    content_range,
    milliseconds,
    number,
    path_of,
    requested_range,
    split_request,
    status_code,
)
from oracle_sketches import (
    DistinctNumbers,
    ObjectTable,
    RequestSample,
)
from oracle_timeline import TimelineCounter

from nginx_tune.documents.learning import (
    Connections,
    LearnPlan,
    RefusedLines,
    SampledRequest,
    Slot,
    Tally,
)

LONGEST_LINE_BYTES = 1 << 16
MOST_NTH = 1000
"""``keepalive_requests`` of nginx 1.19.10 and later."""
_LONGEST_TIME = 40
_NOTED_LINES = 3
_MOST_BYTES = 1 << 50
"""One PiB; no response is larger."""
_MOST_SUM = (1 << 64) - 1
_LONGEST_REQUEST_MILLISECONDS = 7 * 86_400_000
"""A week; no request takes longer."""
_LONGEST_ROUND_TRIP_MICROSECONDS = 120_000_000
_NONE = (b"", b"-")
_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH",
                      b"CONNECT", b"TRACE", b"PROPFIND"})  # fmt: skip
_PROTOCOLS = {b"HTTP/0.9": "0.9", b"HTTP/1.0": "1.0", b"HTTP/1.1": "1.1", b"HTTP/2.0": "2",
              b"HTTP/3.0": "3"}  # fmt: skip
_TLS = frozenset({b"SSLv2", b"SSLv3", b"TLSv1", b"TLSv1.1", b"TLSv1.2", b"TLSv1.3"})
_CACHE = frozenset({b"MISS", b"BYPASS", b"EXPIRED", b"STALE", b"UPDATING", b"REVALIDATED", b"HIT",
                    b"SCARCE"})  # fmt: skip
_CLOCKS = (
    ("msec", clock.epoch_time),
    ("time_iso8601", clock.iso_time),
    ("time_local", clock.local_time),
    ("time", clock.any_time),
)
_DATA_STATUSES = (None, 200, 206)
_PARTIAL = 206
_UNKNOWN = -1


class _Refused(Exception):  # noqa: N818  # an answer, not a failure
    """Why a line cannot be used."""


class LogReader:
    """Counts what the lines of a log say."""

    def __init__(self, plan: LearnPlan) -> None:
        self._plan = plan
        self._line = LineReader(plan.format)
        slots = plan.format.slots
        self._clocks = [(slot, read) for slot, read in _CLOCKS if slot in slots]
        self._has_status = "status" in slots
        self._lines = self._requests = self._unreadable = 0
        self._refused: dict[str, list[int]] = {}
        self._refused_counts: Counter[str] = Counter()
        self._methods: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._protocols: Counter[str] = Counter()
        self._tls: Counter[str] = Counter()
        self._cache: Counter[str] = Counter()
        self._upstream = self._sent = 0
        self._data_requests = self._data_bytes = self._partial = 0
        self._objects = ObjectTable(plan.most_objects, plan.most_heavy)
        self._timeline = TimelineCounter()
        self._connections = DistinctNumbers()
        self._numbered = self._later = 0
        self._nth = [0] * MOST_NTH
        self._round_trips: Counter[int] = Counter()
        self._manifest = RequestSample(plan.most_requests)
        self._places = RequestSample(plan.most_places)

    def add_lines(self, lines: Iterable[bytes]) -> None:
        """Count lines, each without its line feed."""
        for line in lines:
            self.add(line)

    def add(self, line: bytes) -> None:
        """Count a line."""
        self._lines += 1
        if line.endswith(b"\r"):
            line = line[:-1]
        try:
            self._count(self._fields_of(line))
        except _Refused as reason:
            name = str(reason)
            self._refused_counts[name] += 1
            noted = self._refused.setdefault(name, [])
            if len(noted) < _NOTED_LINES:
                noted.append(self._lines)

    def result(self) -> Tally:
        """What was counted."""
        last = max((at for at, count in enumerate(self._nth, 1) if count), default=0)
        return Tally(
            lines=self._lines,
            refused={
                name: RefusedLines(lines=self._refused_counts[name], first_lines=noted)
                for name, noted in self._refused.items()
            },
            requests=self._requests,
            unreadable_requests=self._unreadable,
            methods=dict(self._methods),
            statuses=dict(self._statuses),
            protocols=dict(self._protocols),
            tls=dict(self._tls),
            cache_statuses=dict(self._cache),
            upstream_requests=self._upstream,
            sent_bytes=min(self._sent, _MOST_SUM),
            data_requests=self._data_requests,
            data_bytes=min(self._data_bytes, _MOST_SUM),
            partial_requests=self._partial,
            objects=self._objects.result(),
            timeline=self._timeline.result(),
            connections=Connections(
                level=self._connections.level,
                distinct=len(self._connections),
                numbered=self._numbered,
                nth_requests=self._nth[:last],
                later_requests=self._later,
            ),
            round_trips=sorted(self._round_trips.items()),
            manifest=self._manifest.result(),
            places=self._places.result(),
        )

    def _fields_of(self, line: bytes) -> dict[Slot, bytes]:
        if not line:
            raise _Refused("empty")
        if len(line) > LONGEST_LINE_BYTES:
            raise _Refused("too_long")
        fields = self._line.fields(line)
        if fields is None:
            raise _Refused("format")
        return fields

    def _count(self, fields: dict[Slot, bytes]) -> None:
        agent = fields.get("user_agent", b"")
        if agent == b"nginx-tune" or agent.startswith(b"nginx-tune-probe/"):
            raise _Refused("own")
        end = self._end_of(fields)
        status = self._status_of(fields)
        sent = _sent_of(fields)
        self._requests += 1
        self._sent += sent
        if status is not None:
            self._statuses[f"{status:03}"] += 1
        method, target = self._request_of(fields)
        self._count_connection(fields)
        duration = milliseconds(fields.get("request_time", b""))
        if duration is not None and duration > _LONGEST_REQUEST_MILLISECONDS:
            duration = None
        is_in_time = end is None or self._timeline.add(end, duration)
        path = None if target is None else path_of(target, with_query=self._plan.with_query)
        if path is None:
            return
        server = self._line.text(fields.get("server", b"")).lower()
        server = b"" if server in _NONE else server
        is_data = status in _DATA_STATUSES and method in (None, b"GET")
        key, size, span = 0, _UNKNOWN, None
        if is_data:
            key = int.from_bytes(
                blake2b(server + b"\0" + path if server else path, digest_size=8).digest(), "big"
            )
            size, at_least, span = self._extent_of(fields, status, sent)
            self._data_requests += 1
            self._data_bytes += sent
            self._partial += status == _PARTIAL
            self._objects.add(key, max(size, at_least))
        if not is_in_time:
            return
        in_manifest = is_data and self._manifest.wants(self._lines)
        in_places = self._places.wants(self._lines)
        if not (in_manifest or in_places):
            return
        request = SampledRequest(
            number=self._lines,
            stretch=self._timeline.stretch,
            end_milliseconds=end or 0,
            duration_milliseconds=duration or 0,
            object=key,
            sent_bytes=sent,
            size_bytes=size,
            range=span,
            server="",
            path="",
        )
        text = path.partition(b"?")[0].decode(errors="replace")  # a query is nobody's business
        if in_manifest:
            kept = (
                msgspec.structs.replace(request, path=text) if self._plan.keeps_paths else request
            )
            self._manifest.add(kept)
        if in_places:
            name = server.decode(errors="replace")
            self._places.add(msgspec.structs.replace(request, server=name, path=text))

    def _end_of(self, fields: dict[Slot, bytes]) -> int | None:
        for slot, read in self._clocks:
            text = fields.get(slot)
            if text is not None:
                moment = read(text) if len(text) <= _LONGEST_TIME else None
                if moment is None:
                    raise _Refused("time")
                return moment
        if self._clocks:
            raise _Refused("time")
        return None

    def _status_of(self, fields: dict[Slot, bytes]) -> int | None:
        if not self._has_status:
            return None
        status = status_code(fields.get("status", b""))
        if status is None:
            raise _Refused("status")
        return status

    def _request_of(self, fields: dict[Slot, bytes]) -> tuple[bytes | None, bytes | None]:
        """Method and target, where they are known."""
        method, protocol = fields.get("method"), fields.get("protocol")
        target = fields.get("request_uri", fields.get("uri"))
        raw = fields.get("request")
        if raw is not None:
            line = split_request(self._line.text(raw))
            if line is None:
                self._unreadable += 1
            else:
                method = line.method if method is None else method
                protocol = line.protocol if protocol is None else protocol
            if "request_uri" not in fields:
                target = line.target if line is not None else target
            else:
                target = self._line.text(fields["request_uri"])
        elif target is not None:
            target = self._line.text(target)
        if protocol is None and "http3" in fields:
            protocol = b"other" if fields["http3"] in _NONE else b"HTTP/3.0"
        if method is not None:
            self._methods[method.decode() if method in _METHODS else "other"] += 1
        if protocol is not None and protocol not in _NONE:
            self._protocols[_PROTOCOLS.get(protocol, "other")] += 1
        return method, target

    def _count_connection(self, fields: dict[Slot, bytes]) -> None:
        tls, scheme = fields.get("ssl_protocol"), fields.get("scheme")
        if tls is not None:
            self._tls["none" if tls in _NONE else tls.decode() if tls in _TLS else "other"] += 1
        elif scheme is not None:
            self._tls["tls" if scheme == b"https" else "none"] += 1
        cache = fields.get("cache_status")
        if cache is not None:
            known = cache.decode() if cache in _CACHE else "other"
            self._cache["none" if cache in _NONE else known] += 1
        self._upstream += fields.get("upstream", b"") not in _NONE
        connection = number(fields.get("connection", b""))
        if connection is not None:
            self._numbered += 1
            self._connections.add(connection)
        trip = number(fields.get("round_trip", b""))
        if trip and trip <= _LONGEST_ROUND_TRIP_MICROSECONDS:
            step = 1 << max(0, trip.bit_length() - 6)
            self._round_trips[trip // step * step] += 1
        nth = number(fields.get("connection_requests", b""))
        if nth:
            if nth <= MOST_NTH:
                self._nth[nth - 1] += 1
            else:
                self._later += 1

    def _extent_of(
        self, fields: dict[Slot, bytes], status: int | None, sent: int
    ) -> tuple[int, int, tuple[int, int] | None]:
        """The object's size, where known; its size at least; the part that was asked for."""
        if status != _PARTIAL:
            ratio = milliseconds(fields.get("gzip_ratio", b""))
            size = min(sent * ratio // 1000, _MOST_BYTES) if ratio else sent
            return size, size, None
        answered = content_range(self._line.text(fields.get("content_range", b"")))
        if answered is not None and answered.last is not None:
            total = _UNKNOWN if answered.total is None else answered.total
            return total, max(total, answered.last + 1), (answered.first, answered.last)
        asked = requested_range(self._line.text(fields.get("range", b"")))
        if asked is None:
            return _UNKNOWN, sent, None
        last = asked.last
        if last is None:
            last = asked.first + sent - 1
        span = (asked.first, last) if last >= asked.first else None
        return _UNKNOWN, asked.first + sent, span


def _sent_of(fields: dict[Slot, bytes]) -> int:
    text = fields.get("bytes", b"")
    if text in _NONE:
        return 0
    sent = number(text)
    if sent is None or sent > _MOST_BYTES:
        raise _Refused("bytes")
    return sent


def tally_in_python(blocks: Iterator[bytes], plan: LearnPlan) -> Tally:
    """The tally of blocks of bytes, which end anywhere."""
    reader = LogReader(plan)
    rest = b""
    for block in blocks:
        *lines, tail = block.split(b"\n")
        if lines:
            lines[0] = rest + lines[0]
            reader.add_lines(lines)
            rest = tail
        else:
            rest += tail
        # Of a line that is too long its start says enough.
        rest = rest[: LONGEST_LINE_BYTES + 2]
    if rest:
        reader.add(rest)
    return reader.result()
