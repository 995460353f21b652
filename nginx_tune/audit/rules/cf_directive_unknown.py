"""``cf-directive-unknown``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import unknown
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.known_directives import seen_versions
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Names that no nginx, fork or module known here has."""
    for directives, meant, doubt in unknown(context):
        guess = f'; is "{meant}" meant?' if meant is not None else ""
        unless = f"; nginx refuses it unless {doubt}" if doubt else ""
        for directive in directives:
            yield Hit(
                directive,
                f'no nginx or module known here has a directive "{directive.name}"{unless}{guess}',
                [
                    Evidence(fact="directive", value=directive.name, provenance="declared"),
                    Evidence(fact="nginx versions seen", value=", ".join(seen_versions())),
                ],
                fix=f"Write {meant}, or load the module that brings it." if meant else "",
                severity="warning" if doubt else None,
            )


RULE = Rule(
    id="cf-directive-unknown",
    severity="error",
    title="a directive that no known nginx or module has",
    why='nginx does not start with a directive that it does not know: emerg "unknown directive". '
    "The name is in none of the command tables of nginx 1.18 to 1.30 and of the modules packaged "
    "with them, nor among the directives of the forks and well-known modules listed here; the "
    "target's own nginx -t has the last word.",
    fix="Correct the name, or load the module that brings it (load_module).",
    sources=("nginx: src/core/ngx_conf_file.c, ngx_conf_handler",),
    proof="proven",
    proven_on=("1.22.1",),
    bad=Example("events {} http { sendfil on; }"),
    good=Example("events {} http { sendfile on; }"),
    check=check,
    about="""An error where the name is a keystroke from a known one (two in a long name), or where
the facts name the nginx and all its modules are known here. A warning where a module that nobody
named may bring it. Of a file that is only a part of a configuration (a site, a snippet), and where
a module is loaded or built in that is not known here, only names near a known one are told; beside
such a module as a warning. Nothing is said about a fork of nginx.""",
)
