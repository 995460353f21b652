"""``cf-events-missing``."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """A main file without the section that every configuration must have."""
    tree = context.tree
    if tree.is_part or not tree.parsed or tree.main.first("events") is not None:
        return
    if tree.main.first("http") is None and _may_be_included(tree):
        return
    place = next(iter(tree.main), None)
    if place is None:
        message = "the configuration is empty: nginx does not start with it"
        place = Directive("", (), (), tree.parsed[0].source, (0, 0))
    else:
        message = 'the configuration has no "events" section: nginx does not start with it'
    count = sum(1 for _ in tree.main)
    yield Hit(
        place, message, [Evidence(fact="directives at the top", value=count, provenance="declared")]
    )


def _may_be_included(tree: ConfTree) -> bool:
    """True if the file holds nothing but stream or mail, and has no main file's name.

    Those sections are often files of their own, which the main one includes at its top.
    """
    names = {directive.name for directive in tree.main}
    return bool(names) and names <= {"stream", "mail"} and basename(tree.path) != "nginx.conf"


RULE = Rule(
    id="cf-events-missing",
    severity="error",
    title="a main configuration that is empty or has no events section",
    why='nginx does not start: emerg "no "events" section in configuration". A file that a '
    "failed template or a full disk left empty passes every check that looks for wrong lines.",
    fix="Write events {} at the top of the main file. For a file that another one includes, audit "
    "that other one.",
    sources=("nginx: src/event/ngx_event.c, ngx_event_init_conf",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    whole_tree=True,
    about="A file that holds server, location, upstream and the like at its top is taken for a "
    "part of a configuration, of which nothing of this kind is said. So is a file "
    "of stream or mail alone, unless its name is nginx.conf.",
    bad=Example("http { server { listen 8080; } }"),
    good=Example("events {} http { server { listen 8080; } }"),
    check=check,
)
