variable "conf" {
  description = "The candidate's main configuration file; its directory is the tree."
  type        = string
}

variable "against" {
  description = "The baseline to validate against; null audits only, unless there are gates."
  type        = string
  default     = null
}

variable "facts" {
  description = "Facts of the host that it is for (nginx-tune inspect -f json); null audits by the text alone."
  type        = string
  default     = null
}

variable "map" {
  description = "Where files are that the candidate names by absolute paths, each \"PREFIX=DIR\"; null: /etc/nginx is the candidate's directory."
  type        = list(string)
  default     = null
}

variable "accept_missing" {
  description = "Patterns of includes that need not be there, such as \"/etc/nginx/modules-enabled/*.conf\"; any other that is missing stops."
  type        = list(string)
  default     = []
}

variable "fail_on" {
  description = "Stop on findings at least this bad."
  type        = string
  default     = "error"

  validation {
    condition     = contains(["error", "warning", "advice", "info"], var.fail_on)
    error_message = "One of error, warning, advice, info."
  }
}

variable "require" {
  description = "Gates of the validation, such as \"hot.p99 <= 50ms\"."
  type        = list(string)
  default     = []
}

variable "validate_options" {
  description = "More options of nginx-tune validate; words without spaces."
  type        = list(string)
  default     = ["--lab", "hdd"]

  validation {
    condition     = alltrue([for word in var.validate_options : can(regex("^[A-Za-z0-9_./:=-]+$", word))])
    error_message = "Plain words only."
  }
}

variable "reports" {
  description = "Where audit.json and verdict.json go."
  type        = string
  default     = "nginx-tune"
}

variable "command" {
  description = "The nginx-tune executable."
  type        = string
  default     = "nginx-tune"
}

variable "test" {
  description = "Whether nginx -t must accept the candidate, in the sandbox: auto (where there is an nginx), true or false."
  type        = string
  default     = "auto"
}

variable "nginx" {
  description = "The nginx that tests it; a name is searched on PATH."
  type        = string
  default     = "nginx"
}
