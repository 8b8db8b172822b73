"""What an operator sees: counts that the job machine keeps in Redis, and their exposition for Prometheus."""
