"""Which nginx was meant, and why not another: the words for it in every output."""

from __future__ import annotations

from nginx_tune.documents.facts import Nginx, NginxCandidate
from nginx_tune.report.text import plain

MOST_OTHERS = 8


def choice_lines(nginx: Nginx) -> list[str]:
    """The one that was taken, and a line for each that was not."""
    others = [one for one in nginx.candidates if not one.chosen]
    lines = [plain(nginx.choice or "no nginx is taken; name one with --nginx")]
    lines += [plain(f"not taken: {_name(one)}: {one.reason}") for one in others[:MOST_OTHERS]]
    more = len(others) - MOST_OTHERS
    return [*lines, f"and {more} more"] if more > 0 else lines


def is_doubtful(nginx: Nginx) -> bool:
    """Whether another one could have been meant, where none was named."""
    is_named = any(one.chosen and one.source == "named" for one in nginx.candidates)
    return not is_named and any(not one.chosen for one in nginx.candidates)


def _name(one: NginxCandidate) -> str:
    of = f" of process {one.pid}" if one.pid else ""
    return f"{one.binary or 'the program'}{of}"
