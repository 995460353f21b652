"""Write ``facts.txt``, the expected facts of all recorded hosts.

Review the difference. With a directory as argument, write the whole facts of each host there too.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from recorded_hosts import EXPECTED, NAMES, distinct_facts, facts_bytes  # noqa: E402


def main() -> None:
    EXPECTED.write_text(distinct_facts())
    for directory in sys.argv[1:]:
        for name in NAMES:
            (Path(directory) / f"{name}.facts.json").write_bytes(facts_bytes(name))


if __name__ == "__main__":
    main()
