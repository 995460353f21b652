"""What TLS handshakes agreed on, of several classes, blocks or load hosts together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from nginx_tune.documents.measured_class import TlsSessions
from nginx_tune.documents.measurement import Measurement


def add_sessions(parts: Iterable[Sequence[TlsSessions]]) -> list[TlsSessions]:
    """The connections of all parts by version and cipher suite, the most first."""
    total: Counter[tuple[str, str]] = Counter()
    for one in (one for part in parts for one in part):
        total[one.version, one.cipher] += one.connections
    return [
        TlsSessions(version=version, cipher=cipher, connections=count)
        for (version, cipher), count in sorted(total.items(), key=lambda item: (-item[1], item[0]))
    ]


def sessions_by_arm(measurements: Iterable[Measurement]) -> dict[str, list[TlsSessions]]:
    """The same of each arm that spoke TLS, all its blocks and classes together."""
    found: dict[str, list[list[TlsSessions]]] = {}
    for block in measurements:
        found.setdefault(block.arm, []).extend(one.tls_sessions for one in block.classes.values())
    added = {arm: add_sessions(parts) for arm, parts in found.items()}
    return {arm: sessions for arm, sessions in added.items() if sessions}
