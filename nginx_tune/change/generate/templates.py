"""The folder of the skeletons: inside the package, else beside it in a checkout.

The one file of this room that reads anything.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nginx_tune.change.generate.writing import comment, finalize

_PACKAGED = Path(__file__).resolve().parents[2] / "templates"
_CHECKOUT = Path(__file__).resolve().parents[3] / "templates"


def find_templates() -> Path:
    """The folder of skeletons."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Jinja with the one quoting function on every value; an unknown name is an error."""
    jinja = Environment(  # noqa: S701  # nginx.conf is no HTML: finalize quotes for nginx
        loader=FileSystemLoader(find_templates(), encoding="utf-8"),
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    jinja.filters["comment"] = comment
    return jinja
