from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.logs import PIPE_BUFFER_BYTES, buffer_bytes, is_a_device
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Log buffers larger than an atomic write to a pipe."""
    for line in context.access_logs:
        size = buffer_bytes(line) if is_a_device(line.value) else None
        if size is not None and size > PIPE_BUFFER_BYTES and line.value != "/dev/null":
            yield Hit(
                line,
                f"{line.value} is a pipe in a container: a buffer of {size} bytes is written in "
                "parts that mix with those of other workers",
                [
                    written(line),
                    Evidence(
                        fact="largest atomic write (PIPE_BUF)",
                        value=PIPE_BUFFER_BYTES,
                        unit="bytes",
                    ),
                ],
            )


_CONF = "events {} http { access_log /dev/stdout combined buffer=%s flush=1s; server { } }"

RULE = Rule(
    id="log-buffer-pipe",
    severity="advice",
    title="a log buffer splits lines in a pipe",
    why="A buffer is one write(). A pipe writes at most 4096 bytes atomically: a larger write can "
    "be mixed with parts of other workers' lines, and a JSON reader fails.",
    fix="Use buffer=4k at most, or no buffer: readers of a container's output want each line soon.",
    sources=(
        "pipe(7), PIPE_BUF",
        "nginx: src/http/modules/ngx_http_log_module.c, ngx_http_log_flush",
        "github.com/apache/apisix issue 1567",
    ),
    proof="source-only",
    about="nginx-tune plan adds no buffer to such a log. With a single worker nothing gets mixed, "
    "but the reader still gets lines in parts.",
    bad=Example(_CONF % "32k"),
    good=Example(_CONF % "4k"),
    check=check,
)
