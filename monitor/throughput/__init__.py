"""Throughput: cumulative counters -> tokens per second per server, replica and GPU."""
