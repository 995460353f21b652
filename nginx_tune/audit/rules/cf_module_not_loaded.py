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
    """Blocks of dynamic modules that no ``load_module`` line loads."""
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
                f'"{name}" is not compiled into this nginx, and no load_module line provides it',
                [Evidence(fact="nginx.flags", value=f"no {flag.partition('=')[0]}")],
            )
        elif flag in flags:
            yield Hit(
                place,
                f'"{name}" is a dynamic module of this build, and no load_module line loads it',
                [Evidence(fact="nginx.flags", value=flag)],
                fix=f"Add load_module modules/{module}.so; at the top of the main file.",
            )


_CONF = "events {} stream { server { listen 53; proxy_pass 10.0.0.1:53; } }"
_HOST = linux(flags=("--with-threads", "--with-stream=dynamic"))

RULE = Rule(
    id="cf-module-not-loaded",
    severity="error",
    title="stream or mail without its module",
    why='nginx does not start: emerg "unknown directive "stream"". Distributions package these '
    "modules separately.",
    fix="Install the module's package, and load the module at the top of the main file.",
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
