# The candidate goes to where nginx reads it only when the gate lets it through.

variable "conf" {
  type    = string
  default = "etc/nginx/nginx.conf"
}

variable "against" {
  type    = string
  default = null
}

variable "facts" {
  type    = string
  default = null
}

variable "map" {
  type    = list(string)
  default = null
}

variable "accept_missing" {
  type    = list(string)
  default = []
}

variable "require" {
  type    = list(string)
  default = []
}

variable "validate_options" {
  type    = list(string)
  default = ["--lab", "hdd"]
}

variable "command" {
  type    = string
  default = "nginx-tune"
}

variable "test" {
  type    = string
  default = "auto"
}

variable "destination" {
  description = "Where the deploy step copies the configuration."
  type        = string
}

module "gate" {
  source           = "./gate"
  conf             = var.conf
  against          = var.against
  facts            = var.facts
  map              = var.map
  accept_missing   = var.accept_missing
  require          = var.require
  validate_options = var.validate_options
  command          = var.command
  test             = var.test
}

# Stands for whatever deploys: a remote-exec, an image build, a cloud-init template.
resource "terraform_data" "deploy" {
  triggers_replace = [module.gate.sha256, var.destination]

  provisioner "local-exec" {
    interpreter = ["/bin/sh", "-euc"]
    # A file that is there keeps its mode, a new one gets the candidate's.
    command = "cp -- \"$CONF\" \"$DESTINATION\""
    environment = {
      CONF        = module.gate.conf
      DESTINATION = var.destination
    }
  }

  lifecycle {
    precondition {
      condition     = !anytrue([for one in jsondecode(file(module.gate.audit_file)).findings : one.severity == "error"])
      error_message = "The audit has errors."
    }
  }
}

# Warnings are shown after each plan and apply, and stop nothing.
check "no_warnings" {
  assert {
    condition = !fileexists("${path.root}/nginx-tune/audit.json") ? true : length([
      for one in jsondecode(file("${path.root}/nginx-tune/audit.json")).findings : one if one.severity == "warning"
    ]) == 0
    error_message = "The audit has warnings: nginx-tune/audit.json."
  }
}
