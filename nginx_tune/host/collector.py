"""The collector as one file, joined from modules of the package, that runs without the package."""

import re
from pathlib import Path

from nginx_tune import __version__
from nginx_tune.host.kernel import NETWORK_SYSCTLS, SYSCTLS
from nginx_tune.host.parse_nginx import COMMS, NAMES

_PARTS = ("redaction", "parse_elf", "trust", "programs", "lab_mark", "collect_here", "collect")
_TABLES = {
    "SYSCTLS": SYSCTLS,
    "NETWORK_SYSCTLS": NETWORK_SYSCTLS,
    "NAMES": NAMES,
    "COMMS": COMMS,
    "__version__": __version__,
}

_HEAD = '''\
#!/usr/bin/env python3
"""Records a host for nginx-tune {version}; needs Python 3.6 and nothing else.

    python3 collect.py -o host.json          here
    ssh HOST python3 - < collect.py > host.json
    nginx-tune inspect --host host.json      then, anywhere

It reads, and changes nothing. Serial numbers, addresses and command lines are redacted.
"""
'''
_FOOT = '\n\nif __name__ == "__main__":\n    sys.exit(main())\n'


def render_collector() -> bytes:
    """The text of the program in UTF-8.

    Errors: OSError when the package's source is not readable (a zip import, say).
    """
    here = Path(__file__).parent
    sources = [(here / f"{name}.py").read_text(encoding="utf-8") for name in _PARTS]
    tables = "".join(f"{name} = {value!r}\n" for name, value in _TABLES.items())
    head = _HEAD.format(version=__version__)
    imports = sorted({line for source in sources for line in _imports(source)})
    body = "\n\n".join(map(_body, sources))
    return f"{head}\n{''.join(imports)}\n{tables}\n{body}{_FOOT}".encode()


def _imports(source: str) -> list[str]:
    found = re.findall(r"^(?:import \w+|from typing import .+)\n", source, re.MULTILINE)
    return list(found)


def _body(source: str) -> str:
    """The module without its docstring and imports."""
    code = source.split('"""', 2)[2]
    code = re.sub(r"^(?:import|from) .*\n", "", code, flags=re.MULTILINE)
    return re.sub(r"  # noqa.*", "", code).strip("\n") + "\n"
