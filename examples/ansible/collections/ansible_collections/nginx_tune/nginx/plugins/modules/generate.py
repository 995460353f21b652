#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: nginx-tune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: generate
short_description: Generate an nginx configuration for the host it runs on
description:
  - Writes an C(nginx.conf) in which every tuned line says why it is there.
  - The same inputs give the same bytes, so a second run changes nothing.
  - Before it is written it is tested in its place inside the whole tree, by C(nginx-tune audit --overlay --test).
    A result that C(nginx -t) rejects, or with findings at least as bad as O(fail_on), is not written.
author:
  - nginx-tune authors (@nginx-tune)
version_added: 0.1.0
extends_documentation_fragment:
  - nginx_tune.nginx.common
  - ansible.builtin.files
options:
  dest:
    description: The file that is written.
    type: path
    required: true
  conf:
    description:
      - The main configuration file of the tree that O(dest) belongs to.
      - Without it, O(dest) itself is the main file.
    type: path
  kind:
    description: What nginx serves.
    type: str
    choices: [static, media, cache, proxy]
  site:
    description: What only the operator knows, as in the site document (listen, server_names, roots and so on).
    type: dict
  workload:
    description: What is served and asked for, as in the workload document.
    type: dict
  facts:
    description:
      - Facts to decide from, such as C(ansible_facts.nginx_tune); without them the host is inspected now.
      - Facts of now hold values that move (available memory), so a generated file may differ from run to run; facts
        that are kept give the same bytes.
    type: dict
  roots:
    description: Directories of served files.
    type: list
    elements: path
    default: []
  cache_dirs:
    description: Cache directories.
    type: list
    elements: path
    default: []
  test:
    description: Run C(nginx -t) on the tree with the result in it, inside namespaces of its own; needs root.
    type: bool
    default: true
  fail_on:
    description: Findings at least this bad keep the result from being written.
    type: str
    choices: [error, warning, advice, info, never]
    default: error
  backup:
    description: Keep the old file beside the new one.
    type: bool
    default: false
attributes:
  check_mode:
    description: Says whether the file would change, and tests the result.
    support: full
  diff_mode:
    description: Shows the lines that change.
    support: full
notes:
  - Needs C(nginx-tune) on the managed host; see the role C(nginx_tune.nginx.install).
  - nginx is not reloaded; notify a handler.
"""

EXAMPLES = r"""
- name: Generate the configuration
  nginx_tune.nginx.generate:
    dest: /etc/nginx/nginx.conf
    kind: media
    roots: [/srv/media]
    facts: "{{ ansible_facts.nginx_tune }}"
  notify: Reload nginx
"""

RETURN = r"""
dest:
  description: The file.
  returned: always
  type: str
decisions:
  description: The decisions document that the file was written from.
  returned: always
  type: dict
backup_file:
  description: The old file.
  returned: when O(backup=true) and the file changed
  type: str
"""

import json
import os
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nginx_tune.nginx.plugins.module_utils.tool import (
    COMMON,
    FINE,
    FOUND,
    UNDECIDED,
    UNPARSED,
    options,
    read_json,
    read_text,
    run_tool,
)

SEVERITIES = ["error", "warning", "advice", "info", "never"]


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON,
            dest=dict(type="path", required=True),
            conf=dict(type="path"),
            kind=dict(type="str", choices=["static", "media", "cache", "proxy"]),
            site=dict(type="dict"),
            workload=dict(type="dict"),
            facts=dict(type="dict"),
            roots=dict(type="list", elements="path", default=[]),
            cache_dirs=dict(type="list", elements="path", default=[]),
            test=dict(type="bool", default=True),
            fail_on=dict(type="str", choices=SEVERITIES, default="error"),
            backup=dict(type="bool", default=False),
        ),
        supports_check_mode=True,
        add_file_common_args=True,
    )
    folder = tempfile.mkdtemp(dir=module.tmpdir)
    try:
        write(module, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write(module, folder):
    """Generate, test, and put the result in its place when its bytes differ."""
    params = module.params
    dest = os.path.realpath(params["dest"])
    fresh, decisions = generate(module, folder)
    before, after = read_text(dest), read_text(fresh)
    result = dict(dest=dest, decisions=decisions, changed=before != after)
    if result["changed"]:
        test(module, dest, fresh)
        if module._diff:  # else no result carries whole files
            result["diff"] = dict(
                before=before, after=after, before_header=dest, after_header="%s (generated)" % dest
            )
        if not module.check_mode:
            if params["backup"] and os.path.exists(dest):
                result["backup_file"] = module.backup_local(dest)
            if not os.path.exists(dest):
                os.chmod(fresh, 0o600 if params["mode"] else 0o644)  # until the mode is set
            module.atomic_move(fresh, dest)
    if os.path.exists(dest):
        attributes = module.load_file_common_arguments(dict(params, path=dest))
        result["changed"] = module.set_fs_attributes_if_different(attributes, result["changed"])
    module.exit_json(**result)


def generate(module, folder):
    """The generated file in the folder, and its decisions."""
    params = module.params
    fresh = os.path.join(folder, "nginx.conf")
    decided = os.path.join(folder, "decisions.json")
    arguments = ["generate", "-f", "nginx=" + fresh, "-f", "json=" + decided]
    for name, schema in (("facts", "facts"), ("workload", "workload"), ("site", "site")):
        if params[name] is not None:
            path = os.path.join(folder, name + ".json")
            document = dict({"schema": "nginx-tune/%s/1" % schema}, **params[name])
            with open(path, "w") as file:
                json.dump(document, file)
            arguments += ["--" + name, path]
    arguments += options(params, ["kind"])
    for flag, name in (("--root", "roots"), ("--cache-dir", "cache_dirs")):
        for path in params[name]:
            arguments += [flag, path]
    run_tool(module, arguments)
    return fresh, read_json(module, read_text(decided))


def test(module, dest, fresh):
    """End the module when the tree with the new file in it is faulty."""
    params = module.params
    main = params["conf"] or (dest if os.path.exists(dest) else fresh)
    arguments = ["audit", "-c", main, "-f", "json", "--fail-on", params["fail_on"]]
    if main != fresh:
        arguments += ["--overlay", "%s=%s" % (dest, fresh)]
    arguments += ["--test"] if params["test"] else []
    status, output, errors = run_tool(module, arguments, (FINE, FOUND, UNPARSED, UNDECIDED))
    if status == FINE:
        return
    document = read_json(module, output) if output.strip() else {}
    said = (document.get("nginx_test") or {}).get("messages") or [
        "%s:%s: %s [%s]" % (one["file"], one["line"], one["message"], one["rule"])
        for one in document.get("findings", [])
    ]
    module.fail_json(
        msg="not written, the tree would be faulty: %s" % ("; ".join(said) or errors.strip()),
        rc=status,
        document=document,
    )


if __name__ == "__main__":
    main()
