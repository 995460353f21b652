"""Documents as text, JSON, SARIF, Prometheus and the forms of CI systems."""
