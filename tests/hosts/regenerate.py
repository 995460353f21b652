"""Write the captures and their expected facts again: ``python tests/hosts/regenerate.py``.

The captures are recorded from the machines in ``machines*.py``; review the difference.
"""

from __future__ import annotations

from pathlib import Path

import machines
import machines_more
from freebsd import freebsd

from nginx_tune.documents.base import encode
from nginx_tune.measure.inspection import record_host, replay

HERE = Path(__file__).resolve().parent


def main() -> None:
    (HERE / "golden").mkdir(exist_ok=True)
    (HERE / "freebsd.facts.json").write_bytes(encode(freebsd()))
    for name, build in {**machines.CAPTURES, **machines_more.CAPTURES}.items():
        capture = record_host(*build())
        (HERE / f"{name}.json").write_bytes(encode(capture))
        (HERE / "golden" / f"{name}.facts.json").write_bytes(encode(replay(capture)))


if __name__ == "__main__":
    main()
