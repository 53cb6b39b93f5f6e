"""Whether an engine schedules its next step while the GPU works, and how that is known.

Rules of this file:

1. The server's own word stands (SGLang's server info; vLLM's, in its development mode only).
2. Else, for vLLM, the version decides. Asynchronous scheduling is its default since 0.14.0
   (vllm-project/vllm pull 27614). It stays off with speculation other than EAGLE and MTP (pull
   31998), on executors that cannot do it (Ray), for pooling models, and where the operator says
   `--no-async-scheduling`. Of these a page shows speculation only, so the others are said.
3. Without a version the page may tell its age: `prompt_tokens_by_source_total` is not in 0.14.1.
4. Not known counts as not overlapped: the step is then expected longer, and a floor errs low.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from monitor.model import ServerInfo

_FIRST_BY_DEFAULT = (0, 14)
_NEWER_SAMPLE = "prompt_tokens_by_source_total"
_UNLESS = "unless started with --no-async-scheduling or on Ray"
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})((?:\.\d+)*)(.*)", re.DOTALL)
_BEFORE_RELEASE = re.compile(r"(?:a|b|rc|dev)\d*")


class Overlap(NamedTuple):
    """Whether scheduling overlaps the GPU's work (None: not known), and how that is known."""

    overlapped: bool | None
    because: str


NOT_TOLD = Overlap(None, "not told")


def overlap_of(
    engine: str | None,
    info: ServerInfo | None,
    version: str | None,
    prompt_source: str | None,
    *,
    speculates: bool,
) -> Overlap:
    """Find out whether a server overlaps scheduling and the GPU's work.

    `version` is the engine's, from wherever it is known; `prompt_source` the sample that its
    page counts prompt tokens by; `speculates`: drafts were seen.
    """
    if info is not None and info.overlap_disabled is not None:
        return Overlap(not info.overlap_disabled, "as the server tells")
    if engine != "vllm":
        return NOT_TOLD
    if speculates:
        return Overlap(None, "not told, and with speculation it depends on the method")
    release = _release(version)
    if release is not None and release < _FIRST_BY_DEFAULT:
        return Overlap(False, f"vLLM {version} does so only when told to")
    if release is not None:
        return Overlap(True, f"vLLM {version} does so {_UNLESS}")
    if _NEWER_SAMPLE in (prompt_source or ""):
        return Overlap(True, f"its page is of vLLM 0.15 or later, which does so {_UNLESS}")
    return NOT_TOLD


def _release(version: str | None) -> tuple[int, int] | None:
    """Major and minor version; None for a build of before the release that changed it.

    Builds without a tag call themselves 0.1.dev1.
    """
    parts = _VERSION.fullmatch(version or "")
    if parts is None:
        return None
    release = int(parts[1]), int(parts[2])
    public = parts[4].split("+")[0]
    early = _BEFORE_RELEASE.search(public) is not None
    return None if early and release <= _FIRST_BY_DEFAULT else release
