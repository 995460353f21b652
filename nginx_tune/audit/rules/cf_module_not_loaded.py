"""``cf-module-not-loaded``."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.documents.decisions import Evidence

_DYNAMIC = {
    "stream": ("--with-stream=dynamic", "ngx_stream_module"),
    "mail": ("--with-mail=dynamic", "ngx_mail_module"),
}


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Sections of modules that the build has as files, and that no line loads."""
    if context.facts.nginx.product not in {None, "nginx"}:
        return
    flags = context.facts.nginx.flags
    loaded = {
        posixpath.basename(line.value).removesuffix(".so")
        for line in context.tree.main.all("load_module")
    }
    for name, (flag, module) in _DYNAMIC.items():
        place = context.tree.main.first(name)
        if place is None or context.tree.is_part or module in loaded:
            continue
        if context.flags is None:
            yield MissingFacts(("nginx.flags",))
        elif flag.partition("=")[0] not in context.flags:
            yield Hit(
                place,
                f'"{name}" is not in this build, and no line loads a module that has it',
                [Evidence(fact="nginx.flags", value=f"no {flag.partition('=')[0]}")],
            )
        elif flag in flags:
            yield Hit(
                place,
                f'"{name}" is a module of its own in this build, and no line loads it',
                [Evidence(fact="nginx.flags", value=flag)],
                fix=f"load_module modules/{module}.so; at the top of the main file.",
            )


_CONF = "events {} stream { server { listen 53; proxy_pass 10.0.0.1:53; } }"
_HOST = linux(flags=("--with-threads", "--with-stream=dynamic"))

RULE = Rule(
    id="cf-module-not-loaded",
    severity="error",
    title="stream or mail without its module",
    why='nginx does not start: emerg "unknown directive "stream"". Packages build these modules as '
    "files of their own.",
    fix="Load the module at the top of the main file, and install its package.",
    sources=(
        "https://nginx.org/en/docs/ngx_core_module.html#load_module",
        "nginx: src/core/ngx_conf_file.c, ngx_conf_handler",
    ),
    proof="proven",
    proven_on=("1.22",),
    whole_tree=True,
    bad=Example(_CONF, _HOST),
    good=Example("events {}", _HOST),
    check=check,
)
