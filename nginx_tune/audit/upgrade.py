"""What an upgrade of nginx changes for one configuration: defaults, directives, parameters.

The rule below is asked only with ``--upgrade-to``. It tells of defaults that move between the two
versions and that the configuration leaves to nginx; what the newer one refuses or warns of is said
by the other rules, which are asked for both versions.
"""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context, Version
from nginx_tune.audit.moved_defaults import CHANGES
from nginx_tune.audit.rule import Example, Hit, MissingFacts, Rule
from nginx_tune.documents.decisions import Evidence


def changes(context: Context, since: Version, until: Version) -> Iterator[Hit]:
    """The defaults that move for this configuration between two versions."""
    for change in CHANGES:
        if since < change.since <= until:
            for place in change.places(context):
                yield Hit(
                    place,
                    f"{change.directive} is not set, and its default moves from {change.before} "
                    f"to {change.after} with nginx {_text(change.since)}: {change.effect}",
                    [
                        Evidence(fact="nginx version", value=_text(since)),
                        Evidence(fact="upgrade to", value=_text(until), provenance="declared"),
                    ],
                )


def _check(_: object) -> Iterator[Hit | MissingFacts]:
    return iter(())


def _text(version: Version) -> str:
    return ".".join(map(str, version))


_CONF = "events {} http { %s server { listen 80; return 204; } }"

CHANGED = Rule(
    id="vr-default-changed",
    severity="info",
    title="a default that moves with an upgrade",
    why="The configuration leaves it to nginx, and the newer version does otherwise. Nothing is "
    "wrong before the upgrade, and nginx -t of neither version says a word.",
    fix="Write the value that is wanted, so that both versions do the same.",
    sources=(
        "nginx change log, of the version that is named",
        "the defaults in nginx's source, of each release from 1.4.0 to 1.31.4",
    ),
    proof="proven",
    proven_on=("1.22", "1.26", "1.30"),
    about="Asked only with --upgrade-to. Directives, parameters and values that the newer version "
    "refuses, and what it warns of, are findings of the other rules: those that both versions "
    "have are left out. tests/audit/test_proofs_upgrade.py shows some of the defaults on both "
    "sides.",
    seen="Packages may have taken a newer default over: nginx 1.18.0 of Debian 11 closes a "
    "connection after 1000 requests, though keepalive_requests was 100 before 1.19.10.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "keepalive_requests 1000;"),
    check=_check,
)
