"""What was measured on this machine: probes of `trainwiz bench`, and finished runs."""
