from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import storage_of
from nginx_tune.conf.directive import Directive
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import PathStorage, Storage
from nginx_tune.documents.facts_storage import is_shared_folder


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``sendfile on`` for files that a virtual machine's host changes behind the page cache."""
    reported: set[Directive] = set()
    missing: dict[str, None] = {}
    for served in context.served:
        line = served.scope.effective("sendfile")
        if line is None or line.value.lower() != "on" or line in reported:
            continue
        entry = storage_of(served.path, context.facts)
        if entry is None:
            missing[f"storage.paths[{served.root}]"] = None
        elif is_shared_folder(entry.filesystem):
            reported.add(line)
            yield Hit(
                line,
                f"{served.path} is a shared folder ({entry.filesystem}), where sendfile can serve "
                "stale or truncated files",
                [
                    written(line),
                    Evidence(fact=f"file system under {served.path}", value=entry.filesystem),
                ],
            )
    if missing:
        yield MissingFacts(tuple(missing))


_CONF = "events { } http { sendfile %s; server { listen 80; root /vagrant/public; } }"
_FOLDER = PathStorage(path="/vagrant", mount_point="/vagrant", filesystem="vboxsf")
_HOST = replace(linux(), storage=Storage(paths=[_FOLDER]))

RULE = Rule(
    id="io-sendfile-shared-folder",
    severity="warning",
    title="sendfile on a virtual machine's shared folder",
    why="The host changes these files without the guest's page cache noticing. sendfile reads from "
    "that cache: clients get the old file, truncated or padded with zeros.",
    fix="Set sendfile off; where these files are served.",
    sources=(
        "https://github.com/nginxinc/docker-nginx/issues/24",
        "https://developer.hashicorp.com/vagrant/docs/synced-folders/virtualbox#caveats",
    ),
    proof="source-only",
    bad=Example(_CONF % "on", _HOST),
    good=Example(_CONF % "off", _HOST),
    check=check,
)
