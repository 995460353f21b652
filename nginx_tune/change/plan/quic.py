"""HTTP/3 in a configuration that stands: its own listeners of QUIC, and none that is made up."""

from __future__ import annotations

from msgspec.structs import replace

from nginx_tune.change.plan.connection_headers import connection_header
from nginx_tune.change.plan.multiplexing import OF_A_CONNECTION
from nginx_tune.conf.listeners import listeners
from nginx_tune.conf.scopes import http_directives, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.decisions import Decision

_HEADER = "add_header"
_BY_HAND = "a listener of QUIC goes in by hand, in the server that is to have it"


def with_own_quic(decision: Decision, tree: ConfTree) -> Decision:
    """The decision as it may be held against a tree.

    Which server gets a listener is the operator's choice, and so is where a header goes: one in
    http is undone by any ``add_header`` further in (ngx_http_headers_config).
    """
    if not decision.settings:
        return decision
    found = listeners(tree)
    if not any(one.is_quic for one in found):
        secure = {server for one in found if one.is_tls for server in one.servers}
        line = connection_header(one for one in scopes(tree) if one.server in secure)
        if line is not None:
            reason = f"{line.file}:{line.line} {line} {OF_A_CONNECTION} (RFC 9114, 4.2)"
            return replace(
                decision,
                verdict="keep",
                summary=f"Not written: {reason}. {decision.summary}",
                withheld=reason,
                settings=[],
                risks=[],
            )
        return replace(
            decision,
            verdict="not_enough_evidence",
            summary=f"Not written: {_BY_HAND}. {decision.summary}",
            withheld=_BY_HAND,
            settings=[],
            proposed=decision.settings,
            confidence="low",
        )
    risks = list(decision.risks)
    if not _is_announced(tree):
        risks.append(
            "nothing here says Alt-Svc, so that browsers come over QUIC by DNS alone (audit: "
            "ls-quic-not-announced)"
        )
    settings = [one for one in decision.settings if one.directive != _HEADER]
    return replace(decision, settings=settings, risks=risks)


def _is_announced(tree: ConfTree) -> bool:
    return any(
        line.name == _HEADER and line.value.lower() == "alt-svc" for line in http_directives(tree)
    )
