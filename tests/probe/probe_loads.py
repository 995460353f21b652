"""Load plans for the files that the scratch nginx serves."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Paths, Permit, Target

SIZES = {"/1k": 1024, "/100k": 102_400, "/4m": 4 << 20}


@dataclass(frozen=True)
class Nginx:
    port: int
    error_log: Path

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


StartNginx = Callable[..., Nginx]


def load_class(*paths: str, **changes: object) -> LoadClass:
    """A class of 200 arrivals a second for some of the files, each checked for its size."""
    parts: dict[str, object] = {
        "name": "c",
        "arrivals": Arrivals(kind="constant", rate_per_second=200),
        "paths": Paths(
            kind="uniform", paths=list(paths), bytes=[SIZES.get(path, 0) for path in paths]
        ),
        "connections": 20,
    }
    return LoadClass(**{**parts, **changes})  # type: ignore[arg-type]


def load_plan(nginx: Nginx, *classes: LoadClass, **changes: object) -> LoadPlan:
    """Half a second of load."""
    parts: dict[str, object] = {
        "target": Target(address="127.0.0.1", port=nginx.port),
        "classes": list(classes),
        "duration_seconds": 0.5,
        "permit": Permit(ports=[nginx.port]),
    }
    return LoadPlan(**{**parts, **changes})  # type: ignore[arg-type]
