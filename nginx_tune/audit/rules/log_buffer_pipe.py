"""``log-buffer-pipe``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.logs import PIPE_BUFFER_BYTES, buffer_bytes, is_a_device
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Buffers larger than what a pipe takes in one piece."""
    for line in context.client_lines("access_log"):
        size = buffer_bytes(line) if is_a_device(line.value) else None
        if size is not None and size > PIPE_BUFFER_BYTES and line.value != "/dev/null":
            yield Hit(
                line,
                f"{line.value} of a container is a pipe, into which a buffer of {size} bytes goes "
                "in parts, between those of other workers",
                [
                    written(line),
                    Evidence(
                        fact="most bytes in one piece (PIPE_BUF)",
                        value=PIPE_BUFFER_BYTES,
                        unit="bytes",
                    ),
                ],
            )


_CONF = "events {} http { access_log /dev/stdout combined buffer=%s flush=1s; server { } }"

RULE = Rule(
    id="log-buffer-pipe",
    severity="advice",
    title="a log's buffer tears lines in a pipe",
    why="A buffer is one write(). A pipe takes no more than 4096 bytes in one piece: of a larger "
    "one parts of other workers' lines come in between, and whoever reads JSON there gets none.",
    fix="buffer=4k at most, or no buffer: whoever reads a container's output wants each line soon.",
    sources=(
        "pipe(7), PIPE_BUF",
        "nginx: src/http/modules/ngx_http_log_module.c, ngx_http_log_flush",
        "github.com/apache/apisix issue 1567",
    ),
    proof="source-only",
    about="nginx-tune plan gives such a log no buffer. Of one worker alone nothing comes between, "
    "but the reader gets lines in parts.",
    bad=Example(_CONF % "32k"),
    good=Example(_CONF % "4k"),
    check=check,
)
