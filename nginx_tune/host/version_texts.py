"""What an nginx program says of itself, without running it.

nginx prints texts that were compiled into it whole. A program that must not be run, because it
comes out of a container or belongs to somebody else, can so be asked all the same.

Source: src/core/nginx.c ngx_show_version_info(), NGX_CONFIGURE in objs/ngx_auto_config.h.

This file is part of the collector: standard library, Python 3.6.
"""

import re

_TEXTS = re.compile(
    rb"\w{1,20} version: [\w-]{1,40}/[0-9][ -~]{0,80}"
    rb"|built with \w{0,20}SSL [ -~]{1,60}?(?= \(running|\0|\n)"
    rb"|configure arguments: ?[ -~]{0,65536}"
)


def version_texts(program: bytes) -> str:
    """Lines as ``nginx -V`` prints them; empty for a program that has none."""
    found = []
    for match in _TEXTS.finditer(program):
        line = match.group().decode()
        if line not in found:
            found.append(line)
    return "".join(line + "\n" for line in found)
