"""`python -m tests.bench`: print every benchmark's table."""

from __future__ import annotations

from tests.bench import bench_parser, discovery

bench_parser.main()
discovery.main()
