from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, hit_at
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.logs import buffer_bytes
from nginx_tune.conf.values import parameter


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Log buffers that are written only when full."""
    lines = context.access_logs
    done = {line.value for line in lines if parameter(line.args, "flush") is not None}
    for line in lines:
        if line.value not in done and buffer_bytes(line) is not None:
            done.add(line.value)
            yield _hit(line)


def _hit(line: Directive) -> Hit:
    return hit_at(line, f"lines for {line.value} stay in each worker's buffer until it is full")


_CONF = "events {} http { access_log /var/log/a.log combined buffer=64k%s; server { } }"

RULE = Rule(
    id="log-buffer-no-flush",
    severity="advice",
    title="a log buffer without a flush time",
    why="Without flush= an idle worker keeps its last lines for hours, and a crash loses them. "
    "Readers of the log see requests late and out of order.",
    fix="Add flush=1s after buffer=.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_log_module.html#access_log",
        "nginx: src/http/modules/ngx_http_log_module.c, ngx_http_log_flush_handler",
        "github.com/filecoin-saturn/L1-node issue 99",
    ),
    proof="source-only",
    since="1.3.10",
    about="Workers write their buffers when a reload ends them, and on USR1.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % " flush=1s"),
    check=check,
)
