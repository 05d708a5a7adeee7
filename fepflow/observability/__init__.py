"""What operators see of running processes: probes, metrics and logs."""
