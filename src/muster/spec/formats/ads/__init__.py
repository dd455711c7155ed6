"""YAML of the ADS library (`oracle-ads`), read as a `JobSpec`."""
