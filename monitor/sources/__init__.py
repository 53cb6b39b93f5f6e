"""Input: HTTP pages, server info, NVML, discovery, recordings; every failure a named Problem."""
