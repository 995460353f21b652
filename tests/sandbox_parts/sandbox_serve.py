"""Starts a configuration as ``validate`` does, asks it once for each of some URLs and ends it.

    python sandbox_serve.py CONF BINARY URL…

``PORT/URL`` and ``PORT raw:TEXT`` ask at another port than the first server's. Prints the status of
each answer and what nginx said as JSON. It runs by itself, with the package and ``sandbox_inside``
alone, as any user.
"""

import json
import re
import sys

import msgspec

from nginx_tune.cli.configurations import read_configuration
from nginx_tune.errors import NginxTuneError
from nginx_tune.experiment.operations import Question
from nginx_tune.experiment.session import bytes_below, has_files
from nginx_tune.experiment.validate.site import SiteFiles, read_site
from nginx_tune.experiment.validate.site_load import default_load
from nginx_tune.experiment.validate.workbench import open_workbench
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.nginx.lab.sandbox import Sandbox


def main(conf: str, binary: str, *urls: str) -> int:
    host = LiveHost()
    nginx, _ = read_nginx(host, binary=binary)
    tree = read_configuration(host, conf, nginx.prefix)
    site = read_site(
        tree, tree, default_load(), files=SiteFiles(has_files, bytes_below, makes_files=False),
        builds=(nginx, nginx), primary_metric=None, requires=(), objectives=(),
    )  # fmt: skip
    try:
        with Sandbox("sandbox_inside") as sandbox:
            workbench = open_workbench(sandbox, site, lab=None, prefixes=(None, None), scale=None)
            target = msgspec.structs.replace(site.entry.target, tls=None, proxy_protocol=None)
            questions = []
            for place in (*urls, "said:"):
                port, url = re.fullmatch(r"([0-9]*) ?(.*)", place, re.DOTALL).groups()
                there = msgspec.structs.replace(target, port=int(port or target.port))
                questions.append(Question(target=there, url=url))
            answers = workbench.session.survey(workbench.experiment.variants[0], questions)
    except NginxTuneError as error:
        sys.stdout.write(json.dumps({"error": error.message}))
        return int(error.status)
    found = [one.status or one.fault for one in answers[:-1]]
    sys.stdout.write(json.dumps({"answers": found, "said": answers[-1].fault}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
