"""Write the expected facts of every host again: ``python tests/host/regenerate.py``.

Review the difference. Machines of ``machines*.py`` are recorded anew each time; recordings of real
hosts stay as they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from freebsd import freebsd  # noqa: E402
from recorded_hosts import NAMES, read_capture  # noqa: E402

from nginx_tune.documents.base import encode  # noqa: E402
from nginx_tune.observe.inspect.inspection import replay  # noqa: E402


def main() -> None:
    (HERE / "golden").mkdir(exist_ok=True)
    (HERE / "freebsd.facts.json").write_bytes(encode(freebsd()))
    for name in NAMES:
        facts = encode(replay(read_capture(name)))
        (HERE / "golden" / f"{name}.facts.json").write_bytes(facts)


if __name__ == "__main__":
    main()
