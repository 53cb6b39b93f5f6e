"""Output: metrics, alerts, status page and API, terminal, recordings; no output decides."""
