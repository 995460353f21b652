#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: nginx-tune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: facts
short_description: Inspect a host that runs nginx
description:
  - Returns the facts document of C(nginx-tune inspect) as the fact V(nginx_tune).
  - Where C(nginx-tune) is not installed on the managed host, the one-file collector runs there instead
    (Python 3.6 or later, nothing installed, nothing left behind), and the controller makes the facts from
    what it recorded; for that, C(nginx-tune) is needed on the controller.
author:
  - nginx-tune authors (@nginx-tune)
version_added: 0.1.0
extends_documentation_fragment:
  - nginx_tune.nginx.common
options:
  datasets:
    description: Directories of served files to scan; needs C(nginx-tune) on the managed host.
    type: list
    elements: path
    default: []
  paths:
    description: Directories whose disks are looked for.
    type: list
    elements: path
    default: []
  cache_dirs:
    description: The same for cache directories.
    type: list
    elements: path
    default: []
  nginx:
    description: The nginx executable.
    type: path
  collector:
    description: V(auto) uses the collector where the tool is not installed, V(always) everywhere, V(never) nowhere.
    type: str
    choices: [auto, always, never]
    default: auto
  controller_executable:
    description: The C(nginx-tune) executable on the controller, for the collector.
    type: str
    default: nginx-tune
attributes:
  check_mode:
    description: Changes nothing in any mode.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
  facts:
    description: Returns facts.
    support: full
"""

EXAMPLES = r"""
- name: Inspect, with nothing installed on the host
  nginx_tune.nginx.facts:
    collector: always

- name: Inspect with the size and residency of what is served
  nginx_tune.nginx.facts:
    datasets: [/srv/media]
"""

RETURN = r"""
ansible_facts:
  description: The facts document.
  returned: always
  type: dict
  contains:
    nginx_tune:
      description: The document, as C(nginx-tune schema facts) describes it.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nginx_tune.nginx.plugins.module_utils.tool import (
    COMMON,
    INSTALLED,
    read_json,
    run_tool,
)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON,
            datasets=dict(type="list", elements="path", default=[]),
            paths=dict(type="list", elements="path", default=[]),
            cache_dirs=dict(type="list", elements="path", default=[]),
            nginx=dict(type="path"),
            collector=dict(type="str", choices=["auto", "always", "never"], default="auto"),
            controller_executable=dict(type="str", default="nginx-tune"),
        ),
        supports_check_mode=True,
    )
    params = module.params
    if params["collector"] == "auto" and "/" not in params["executable"]:
        if not module.get_bin_path(params["executable"], required=False, opt_dirs=INSTALLED):
            # The action plugin sees this and runs the collector.
            module.exit_json(changed=False, is_installed=False)
    arguments = ["inspect", "-f", "json"]
    for flag, name in (
        ("--dataset", "datasets"),
        ("--path", "paths"),
        ("--cache-dir", "cache_dirs"),
    ):
        for path in params[name]:
            arguments += [flag, path]
    arguments += ["--nginx", params["nginx"]] if params["nginx"] else []
    output = run_tool(module, arguments)[1]
    module.exit_json(changed=False, ansible_facts={"nginx_tune": read_json(module, output)})


if __name__ == "__main__":
    main()
