"""Documents as text, JSON, SARIF, Prometheus metrics and the formats of CI systems."""
