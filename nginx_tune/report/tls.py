"""What TLS handshakes agreed on, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nginx_tune.documents.measured_class import TlsSessions
from nginx_tune.report.quantities import one_line


def sessions_text(sessions: Sequence[TlsSessions]) -> str:
    """``TLS 1.3 TLS_AES_256_GCM_SHA384``; of several each with its connections."""
    if len(sessions) == 1:
        return f"TLS {_agreed(sessions[0])}"
    said = (f"{_agreed(one)} ({one.connections:,} connections)" for one in sessions)
    return "TLS " + ", ".join(said)


def arms_text(by_arm: Mapping[str, Sequence[TlsSessions]]) -> str:
    """What both arms agreed on, or each where that is not the same; empty without TLS."""
    kinds = {tuple(sorted(map(_agreed, sessions))) for sessions in by_arm.values()}
    if len(kinds) == 1:
        agreed = sorted({_agreed(one) for sessions in by_arm.values() for one in sessions})
        return f"TLS {', '.join(agreed)}"
    return "; ".join(f"{one_line(arm)}: {sessions_text(one)}" for arm, one in by_arm.items())


def _agreed(one: TlsSessions) -> str:
    return f"{one_line(one.version)} {one_line(one.cipher)}".strip()
