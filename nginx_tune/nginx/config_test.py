"""The target's own judgement of a configuration: ``nginx -t``.

Not harmless (it loads modules, creates paths, binds free ports), so it runs only when asked.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from nginx_tune.errors import ConfigurationError, UsageError
from nginx_tune.host.door import Host, HostReadError

_NAME = "nginx.conf"


def test_configuration(host: Host, binary: str, text: str) -> None:
    """Nothing when ``BINARY -t`` accepts the text.

    Errors: ConfigurationError with nginx's message, UsageError when it cannot be run.
    Side effects: what nginx -t does; the text stands in a private directory meanwhile.
    """
    with tempfile.TemporaryDirectory(prefix="nginx-tune-") as folder:
        path = Path(folder) / _NAME
        path.write_text(text, encoding="utf-8")
        try:
            said = host.run([binary, "-t", "-c", str(path)], timeout_seconds=60)
        except HostReadError as error:
            raise UsageError(f"{binary}: cannot run nginx: {error.reason}") from None
        if said.status != 0:
            raise ConfigurationError(
                f"{binary} -t rejects it: {_message(said.stderr, folder)}",
                hint="nothing was written",
            )


def _message(stderr: str, folder: str) -> str:
    lines = [line.replace(f"{folder}/", "") for line in stderr.splitlines() if line.strip()]
    worst = [line for line in lines if "[emerg]" in line] or lines or ["no message"]
    return worst[0].removeprefix("nginx: ").strip()


test_configuration.__test__ = False  # type: ignore[attr-defined]  # no test of ours
