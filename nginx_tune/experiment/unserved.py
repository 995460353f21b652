"""Why nginx may not serve who asks from here; pure."""

from __future__ import annotations

_COMES_FROM = {
    401: "auth_basic, auth_request or auth_jwt: who asks has no password",
    403: "deny, auth_request, a rule on headers or addresses, permissions, or a missing index",
    429: "limit_req, limit_conn, or a rule on headers or addresses",
}


def may_come_from(status: int | None) -> str:
    """What in a configuration makes such an answer; empty for one that says itself what it is.

    Who asks is this host, with no cookie, no referer and no password, by the probe's own name.
    """
    return _COMES_FROM.get(status or 0, "")


def said_of(status: int | None) -> str:
    """That a place answers so, and what it may come from."""
    cause = may_come_from(status)
    return f"answers {status}{f' (it may come from {cause})' if cause else ''}"
