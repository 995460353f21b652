"""Lines for people on standard error: one way out, past which no secret goes.

Every word that a command says beside its result passes :func:`shown_line`: what looks like a
secret is left out, what nginx said of a configuration is judged by the place of what it quotes,
and control characters are made visible.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from nginx_tune.host.secret_texts import redact_text
from nginx_tune.report.text import plain

if TYPE_CHECKING:
    from nginx_tune.conf.tree import ConfTree

_BY_NGINX = re.compile(
    r"nginx did not start: | -t rejects it: |nginx does not accept connections on |the stub ended: "
    r"|\[(?:emerg|alert|crit|error|warn)\]"
)
_PLACE = re.compile(r" in (/\S+?):[0-9]{1,9}$")
_MOST_BYTES = 4 << 20
"""Of a file that is read again to tell what a message quotes."""


def say(text: str, hint: str = "") -> None:
    """Print one line, ``nginx-tune: TEXT (HINT)``.

    Errors: OSError when nobody can read it.
    """
    ending = f" ({plain(redact_text(hint))})" if hint else ""
    click.echo(f"nginx-tune: {shown_line(text)}{ending}", err=True)


def shown_line(text: str) -> str:
    """The text as one line that may be shown."""
    line = " ".join(text.split())
    said = _BY_NGINX.search(line)
    if said is not None:
        from nginx_tune.conf.quoted import redact_message  # noqa: PLC0415  # only for such a line

        line = line[: said.end()] + redact_message(line[said.end() :], _tree_of(line))
    return plain(redact_text(line))


def _tree_of(line: str) -> ConfTree | None:
    """The file that a message of nginx names, if it can be read."""
    from nginx_tune.conf.tree import parse_text  # noqa: PLC0415  # only for such a line
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415

    place = _PLACE.search(line)
    if place is None:
        return None
    try:
        data = LiveHost().read_bytes(place[1])
    except Exception:  # noqa: BLE001  # an error is being told: whatever is wrong, tell it strictly
        return None
    if len(data) > _MOST_BYTES:
        return None
    return parse_text(data.decode("utf-8", "surrogateescape"), file=place[1])
