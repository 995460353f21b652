"""``workload``: what is asked for; every part says how it is known."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part, Provenance

Kind = Literal["static", "media", "cache", "proxy"]


class ServedData(Part, frozen=True, kw_only=True):
    """The bytes that can be asked for."""

    path: str | None = None
    files: int | None = None
    bytes: int | None = None
    provenance: Provenance = "assumed"


class CurveShare(Part, frozen=True, kw_only=True):
    """``bytes`` of the most popular objects receive ``requests_ratio`` of the requests."""

    requests_ratio: float
    bytes: int


class Popularity(Part, frozen=True, kw_only=True):
    """How requests spread over objects."""

    exponent: float | None = None
    """Zipf exponent; 0 is uniform."""
    curve: list[CurveShare] = []
    working_set_50_bytes: int | None = None
    working_set_90_bytes: int | None = None
    working_set_99_bytes: int | None = None
    provenance: Provenance = "assumed"


class ObjectSizes(Part, frozen=True, kw_only=True):
    """Sizes of requested objects, over requests."""

    mean_bytes: float | None = None
    p50_bytes: int | None = None
    p90_bytes: int | None = None
    p99_bytes: int | None = None
    provenance: Provenance = "assumed"


class Rate(Part, frozen=True, kw_only=True):
    """Requests a second, whole server."""

    mean_per_second: float | None = None
    peak_per_second: float | None = None
    provenance: Provenance = "assumed"


class Concurrency(Part, frozen=True, kw_only=True):
    """Requests in flight at once, whole server."""

    mean: float | None = None
    peak: float | None = None
    cold_peak: float | None = None
    """Peak number of transfers at once that miss the page cache."""
    think_seconds: float | None = None
    """Pause of a client between a response and its next request, where clients wait for each."""
    provenance: Provenance = "assumed"


class ConnectionReuse(Part, frozen=True, kw_only=True):
    """How long client connections live."""

    requests_per_connection: float | None = None
    provenance: Provenance = "assumed"


class Tls(Part, frozen=True, kw_only=True):
    """Whether clients speak TLS."""

    value: bool = False
    provenance: Provenance = "assumed"


class HttpVersion(Part, frozen=True, kw_only=True):
    """The HTTP version that most clients speak."""

    value: Literal["1.0", "1.1", "2", "3"] = "1.1"
    provenance: Provenance = "assumed"


class CpuPerRequest(Part, frozen=True, kw_only=True):
    """CPU time of nginx for one request."""

    mean_seconds: float | None = None
    stdev_seconds: float | None = None
    provenance: Provenance = "assumed"


class Objective(Part, frozen=True, kw_only=True):
    """A gate expression such as ``hot.p99 <= 50ms``."""

    expression: str
    provenance: Provenance = "declared"


class Workload(Document, frozen=True, kw_only=True, tag="nginx-tune/workload/1"):
    """What is served and asked for."""

    kind: Kind = "static"
    kind_provenance: Provenance = "assumed"
    dataset: ServedData = ServedData()
    popularity: Popularity = Popularity()
    sizes: ObjectSizes = ObjectSizes()
    rate: Rate = Rate()
    concurrency: Concurrency = Concurrency()
    connection_reuse: ConnectionReuse = ConnectionReuse()
    tls: Tls = Tls()
    http_version: HttpVersion = HttpVersion()
    cpu_per_request: CpuPerRequest = CpuPerRequest()
    objectives: list[Objective] = []
