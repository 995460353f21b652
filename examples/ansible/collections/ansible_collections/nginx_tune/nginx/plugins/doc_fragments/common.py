# -*- coding: utf-8 -*-
# Copyright: nginx-tune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import absolute_import, division, print_function

__metaclass__ = type


class ModuleDocFragment(object):
    """What the modules of this collection have in common."""

    DOCUMENTATION = r"""
options:
  executable:
    description:
      - The C(nginx-tune) executable on the managed host.
      - A plain name is searched on C(PATH) and where the role R(nginx_tune.nginx.install,) puts it.
    type: str
    default: nginx-tune
"""
