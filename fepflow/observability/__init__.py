"""Probes, metrics and logs of running processes, for operators."""
