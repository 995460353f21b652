from collections.abc import Iterator
from posixpath import basename

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """A main file without the mandatory ``events`` block."""
    tree = context.tree
    if tree.is_part or not tree.parsed or tree.main.first("events") is not None:
        return
    if tree.main.first("http") is None and _may_be_included(tree):
        return
    place = next(iter(tree.main), None)
    if place is None:
        message = "the configuration is empty, so nginx does not start"
        place = Directive("", (), (), tree.parsed[0].source, (0, 0))
    else:
        message = 'the configuration has no "events" block, so nginx does not start'
    count = sum(1 for _ in tree.main)
    yield Hit(
        place, message, [Evidence(fact="directives at the top", value=count, provenance="declared")]
    )


def _may_be_included(tree: ConfTree) -> bool:
    """True if the file has only stream or mail, and not the name of a main file.

    These blocks are often files of their own that the main file includes.
    """
    names = {directive.name for directive in tree.main}
    return bool(names) and names <= {"stream", "mail"} and basename(tree.path) != "nginx.conf"


RULE = Rule(
    id="cf-events-missing",
    severity="error",
    title="a main configuration that is empty or has no events block",
    why='nginx does not start: emerg "no "events" section in configuration". A file that a failed '
    "template or a full disk left empty passes every check that looks for wrong lines.",
    fix="Add events {} at the top of the main file. For a file that another one includes, audit "
    "that other file.",
    sources=("nginx: src/event/ngx_event.c, ngx_event_init_conf",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    whole_tree=True,
    about="A file with server, location, upstream or the like at the top level is taken to be part "
    "of a configuration and is not reported. Nor is a file with only stream or mail, unless it is "
    "named nginx.conf.",
    bad=Example("http { server { listen 8080; } }"),
    good=Example("events {} http { server { listen 8080; } }"),
    check=check,
)
