output "conf" {
  description = "The candidate, once it passed: known only after the gate."
  value       = local.conf
  depends_on  = [terraform_data.audit, terraform_data.validation]
}

output "sha256" {
  description = "Of the tree that passed."
  value       = local.sha256
  depends_on  = [terraform_data.audit, terraform_data.validation]
}

output "audit_file" {
  description = "The findings."
  value       = terraform_data.audit.output
}
