from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import unknown
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.known_directives import seen_versions
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Names that no known nginx, fork or module has."""
    for directives, suggestion, exception in unknown(context):
        question = f'; did you mean "{suggestion}"?' if suggestion is not None else ""
        unless = f"; nginx rejects it unless {exception}" if exception else ""
        for directive in directives:
            # A file that is not a configuration may be a table of keys, so it is not quoted.
            name = directive.name if context.kinds or suggestion else ""
            shown = f'"{name}"' if name else "the first word"
            versions = Evidence(fact="nginx versions seen", value=", ".join(seen_versions()))
            named = Evidence(fact="directive", value=name, provenance="declared")
            yield Hit(
                directive,
                f"{shown} is not a directive of any known nginx or module{unless}{question}",
                [named, versions] if name else [versions],
                fix=f"Write {suggestion}, or load the module that provides it."
                if suggestion
                else "",
                severity="warning" if exception else None,
            )


RULE = Rule(
    id="cf-directive-unknown",
    severity="error",
    title="a directive that no known nginx or module has",
    why='nginx does not start with an unknown directive: emerg "unknown directive". The name is in '
    "none of the command tables of nginx 1.18 to 1.30 and the modules packaged with them, nor "
    "among the directives of the forks and well-known modules in our tables. The target's own "
    "nginx -t has the last word.",
    fix="Correct the name, or load the module that provides it (load_module). If a module built "
    "into its nginx provides it, give the facts of its host (--facts). For a table that a map, geo "
    "or types block includes, audit the main file.",
    sources=("nginx: src/core/ngx_conf_file.c, ngx_conf_handler",),
    proof="proven",
    proven_on=("1.22.1",),
    bad=Example("events {} http { sendfil on; }"),
    good=Example("events {} http { sendfile on; }"),
    check=check,
    about="In a whole configuration the finding is an error, with or without the facts of its "
    "host. It is a warning if a file that was not read may load the module. In a file that is only "
    "part of a configuration (a site, a snippet), and where an unknown module is loaded or built "
    "in, only names close to a known one are reported. In a part, such a name is an error if it is "
    "one keystroke away (two in a long name); otherwise it is a warning. A file without any known "
    "name does not count as a part: its first line is an error. Nothing is reported for a fork of "
    "nginx.",
)
