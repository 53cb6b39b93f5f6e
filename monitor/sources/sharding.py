"""Which of several daemons watches a discovered server: the parting of Prometheus' `hashmod`.

Rules of this file (pure):

1. What is hashed is the address as the list writes it (`__address__` before a default port is
   added), so that a relabelling rule over the same list parts it alike:

       - {source_labels: [__address__], modulus: 4, target_label: __tmp_shard, action: hashmod}
       - {source_labels: [__tmp_shard], regex: "1", action: keep}

2. Of the shards 0 to modulus - 1 exactly one has a given address.

The hash: the last 8 bytes of the address' MD5, big end first, modulo `modulus`
(Prometheus, model/relabel/relabel.go, case HashMod).
"""

from __future__ import annotations

import hashlib


def is_mine(address: str, modulus: int, index: int) -> bool:
    """Whether shard `index` of `modulus` has this address."""
    digest = hashlib.md5(address.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[8:], "big") % modulus == index


def address_of(url: str) -> str:
    """The `__address__` inside the URL of a discovered server: host and port as written there."""
    return url.partition("://")[2].partition("/")[0]
