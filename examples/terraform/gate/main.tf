# Stops an apply when nginx-tune's audit finds a fault, or when the candidate fails its validation.
# Whatever deploys the configuration takes its path from this module's outputs, and so waits for it.

terraform {
  required_version = ">= 1.4"
}

locals {
  tree       = abspath(dirname(var.conf))
  conf       = abspath(var.conf)
  reports    = abspath(var.reports)
  audit_file = "${local.reports}/audit.json"
  # Of every file of the tree: a change in an included one is a change.
  sha256 = sha256(join("", [for name in sort(fileset(local.tree, "**")) : "${name}${filesha256("${local.tree}/${name}")}"]))
  # Where files are that the candidate names by absolute paths; nothing else of this machine is read for them.
  maps    = var.map == null ? ["/etc/nginx=${local.tree}"] : var.map
  compare = var.against != null || length(var.require) > 0
}

resource "terraform_data" "audit" {
  input            = local.audit_file
  triggers_replace = [local.sha256, var.facts == null ? "" : filesha256(var.facts), var.fail_on, var.test, var.nginx, local.maps, var.accept_missing]

  provisioner "local-exec" {
    interpreter = ["/bin/sh", "-euc"]
    command     = <<-EOT
      mkdir -p "$REPORTS"
      set --
      # nginx itself has the last word where there is one.
      if [ "$TEST" = true ] || { [ "$TEST" = auto ] && command -v "$NGINX" > /dev/null; }; then
        set -- --test --nginx "$NGINX"
      fi
      "$NGINX_TUNE" audit -c "$CONF" --facts "$FACTS" --fail-on "$FAIL_ON" "$@" -f console -f json="$REPORTS/audit.json"
    EOT
    # Values come as variables, never as text of the command: they cannot run anything.
    environment = {
      NGINX_TUNE = var.command
      REPORTS    = local.reports
      CONF       = local.conf
      # One to a line: they may hold spaces.
      NGINX_TUNE_AUDIT_MAP            = join("\n", local.maps)
      NGINX_TUNE_AUDIT_ACCEPT_MISSING = join("\n", var.accept_missing)
      FACTS                           = var.facts == null ? "none" : abspath(var.facts)
      FAIL_ON                         = var.fail_on
      TEST                            = var.test
      NGINX                           = var.nginx
    }
  }
}

resource "terraform_data" "validation" {
  count            = local.compare ? 1 : 0
  depends_on       = [terraform_data.audit]
  input            = "${local.reports}/verdict.json"
  triggers_replace = [local.sha256, var.against == null ? "" : filesha256(var.against), var.require, var.validate_options]

  provisioner "local-exec" {
    interpreter = ["/bin/sh", "-euc"]
    command     = <<-EOT
      set -- validate "$CONF" --accept-inconclusive -f console -f json="$REPORTS/verdict.json"
      [ -z "$AGAINST" ] || set -- "$@" --against "$AGAINST"
      "$NGINX_TUNE" "$@" $OPTIONS
    EOT
    environment = merge(
      {
        NGINX_TUNE = var.command
        REPORTS    = local.reports
        CONF       = local.conf
        AGAINST    = var.against == null ? "" : abspath(var.against)
        OPTIONS    = join(" ", var.validate_options)
      },
      # A gate to a line: they hold spaces.
      length(var.require) > 0 ? { NGINX_TUNE_VALIDATE_REQUIRE = join("\n", var.require) } : {},
    )
  }
}
