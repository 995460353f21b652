"""Write the captures and their expected facts again: ``python tests/host/regenerate.py``.

The captures are recorded from the machines in ``machines*.py``; review the difference. Captures
of real hosts have no builder and stay as they are; only their facts are written again.
"""

from __future__ import annotations

from pathlib import Path

import machines
import machines_more
from freebsd import freebsd

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.capture import Capture
from nginx_tune.inspect.inspection import record_host, replay

HERE = Path(__file__).resolve().parent


def main() -> None:
    (HERE / "golden").mkdir(exist_ok=True)
    (HERE / "freebsd.facts.json").write_bytes(encode(freebsd()))
    for name, build in {**machines.CAPTURES, **machines_more.CAPTURES}.items():
        (HERE / f"{name}.json").write_bytes(encode(record_host(*build())))
    for path in sorted(HERE.glob("*.json")):
        if ".facts" not in path.name:
            facts = replay(decode(Capture, path.read_bytes(), source=path.name))
            (HERE / "golden" / f"{path.stem}.facts.json").write_bytes(encode(facts))


if __name__ == "__main__":
    main()
