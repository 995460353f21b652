from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.edits import Edit, set_arguments
from nginx_tune.conf.listeners import is_socket_option


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Addresses with socket options on two lines."""
    reported: set[Directive] = set()
    for listener in context.listeners if not context.tree.is_template else ():
        lines = listener.with_options
        for line in lines[1:]:
            if line in reported:
                continue  # a port range that overlaps at several ports
            reported.add(line)
            yield Hit(
                line,
                f'"{line}" sets options for {listener.address} again',
                [written(lines[0]), written(line)],
            )


def fixes(context: Context, hit: Hit) -> Iterator[Edit]:
    """Remove the line's options, if other lines set all of them for all its ports."""
    line = hit.place
    options = {arg for arg in line.args[1:] if is_socket_option(arg)}
    firsts = [address.with_options[0] for address in context.listeners if line in address.lines]
    if any(line.quotes) or not all(
        first is not line and options <= set(first.args) for first in firsts
    ):
        return
    yield set_arguments(line, " ".join(arg for arg in line.args if arg not in options))


_CONF = """
events { }
http {
    server { listen 80 reuseport; server_name a; root /srv/a; }
    server { listen 80%s; server_name b; root /srv/b; }
}
"""

RULE = Rule(
    id="ls-reuseport-twice",
    severity="error",
    title="the options of a listening socket are set twice",
    why='nginx does not start: emerg "duplicate listen options". Options such as reuseport, '
    "backlog or deferred belong to an address and port, and apply to every server there.",
    fix="Keep the options on one listen line of the address and remove them from the others.",
    sources=("nginx: src/http/ngx_http.c, ngx_http_add_addresses",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Addresses are compared as nginx compares them (cf-listen-twice); host names are not "
    "resolved.",
    bad=Example(_CONF % " reuseport"),
    good=Example(_CONF % ""),
    check=check,
    fixes=fixes,
)
