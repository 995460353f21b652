# -*- coding: utf-8 -*-
# Copyright: nginx-tune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""How the modules run nginx-tune and read what it writes."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import os

INSTALLED = ["/opt/nginx-tune/bin", "/usr/local/bin"]
COMMON = {"executable": {"type": "str", "default": "nginx-tune"}}
"""Exit codes that come with a document on standard output."""
FINE, FOUND, UNPARSED, UNDECIDED = 0, 1, 3, 4


def find_tool(module):
    """Path of the executable; ends the module with a hint when there is none."""
    name = module.params["executable"]
    found = name if "/" in name else module.get_bin_path(name, required=False, opt_dirs=INSTALLED)
    if not found:
        module.fail_json(
            msg="%s is not on this host: install it with the role nginx_tune.nginx.install" % name
        )
    return found


def run_tool(module, arguments, accepted=(FINE,)):
    """Exit code, standard output and error; an exit code that is not accepted ends the module."""
    command = [find_tool(module), "-q"] + arguments
    status, output, errors = module.run_command(command)
    if status not in accepted:
        said = errors.strip() or output.strip()
        module.fail_json(msg=said or "exit code %d" % status, rc=status, cmd=command)
    return status, output, errors


def read_json(module, text):
    """The document in a tool's output; anything else ends the module."""
    try:
        return json.loads(text)
    except ValueError:
        module.fail_json(msg="nginx-tune printed no JSON")


def options(params, names):
    """Command-line options from parameters of the same names; lists repeat, true ones are flags."""
    found = []
    for name in names:
        value = params.get(name)
        flag = "--" + name.replace("_", "-")
        if value is None or value is False or value == []:
            continue
        if value is True:
            found.append(flag)
        elif isinstance(value, list):
            for one in value:
                found += [flag, str(one)]
        else:
            found += [flag, str(value)]
    return found


def read_text(path):
    """The text of a file; empty when there is none."""
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read()
