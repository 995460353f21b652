"""The templates, read from the package or from a checkout: the only I/O of this package."""

from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nginx_tune.change.generate.writing import comment, finalize

_PACKAGED = Path(__file__).resolve().parents[2] / "templates"
_CHECKOUT = Path(__file__).resolve().parents[3] / "templates"


def find_templates() -> Path:
    """The directory of the templates."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The Jinja environment: ``finalize`` quotes every value, and an unknown name is an error."""
    jinja = Environment(  # noqa: S701  # not HTML: finalize quotes for nginx
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
