"""The one way to NVML: a call gives an answer, None, or one of two failures.

Rules of this file:

1. "Not supported", "no permission", "not found", "invalid argument", "function not found" and
   "timeout" (no event) are None: the driver does not tell. They are everyday answers.
2. A lost GPU is `GpuFailed`, NVML gone is `NvmlFailed`; both say why in words, with the name
   that nvml.h has for it.
3. Any other error is None too, for one odd answer must not hide the rest of a GPU; it is kept
   in `trouble` for the case that there is no rest.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class NvmlFailed(Exception):
    """NVML as a whole cannot be used; the text says why."""


class GpuFailed(Exception):
    """One GPU cannot be read; the text says why."""


class Code(IntEnum):
    """The NVML return codes that decide something here (nvml.h; they never change)."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18


# Plain ints, since an error may carry a code that `Code` does not list.
_NVML_DOWN: frozenset[int] = frozenset(
    {Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH}
)
_GPU_DOWN: frozenset[int] = frozenset({Code.GPU_IS_LOST, Code.RESET_REQUIRED})
_NOT_TOLD: frozenset[int] = frozenset(
    {
        Code.INVALID_ARGUMENT,
        Code.NOT_SUPPORTED,
        Code.NO_PERMISSION,
        Code.NOT_FOUND,
        Code.TIMEOUT,
        Code.FUNCTION_NOT_FOUND,
    }
)
_WORDS: dict[int, str] = {
    Code.LIBRARY_NOT_FOUND: "libnvidia-ml.so not found: no NVIDIA driver in this container or host",
    Code.LIB_RM_VERSION_MISMATCH: (
        "libnvidia-ml.so and the loaded driver differ in version: reload the driver or reboot"
    ),
    Code.GPU_IS_LOST: "GPU is lost",
    Code.RESET_REQUIRED: "GPU requires reset",
}
NOT_AVAILABLE: frozenset[int] = frozenset({2**32 - 1, 2**64 - 1})
"""How NVML says "not available" where it has only an unsigned number to say it with."""


def text(value: bytes | str) -> str:
    """Text as NVML gives it: older versions of pynvml leave it as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class NvmlCalls:
    """Calls into the `pynvml` module given.

    `refusal` is the error code of the last call, None if it was answered. `trouble` is the
    last code that was more than "not told", until someone clears it.
    """

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml
        self.refusal: int | None = None
        self.trouble: int | None = None
        # pynvml's own complaint that a driver is too old, which is none of its NVMLErrors;
        # and a name that is not UTF-8.
        self._unreadable = (
            getattr(pynvml, "NVMLLibraryMismatchError", UnicodeDecodeError),
            UnicodeDecodeError,
        )

    def ask(self, function: str, *args: Any) -> Any:
        """Call an NVML function; None when the driver does not tell.

        Raises `GpuFailed` and `NvmlFailed`.
        """
        self.refusal = Code.FUNCTION_NOT_FOUND
        call = getattr(self.pynvml, function, None)
        if call is None:
            return None
        try:
            value = call(*args)
        except self._unreadable:
            return None
        except self.pynvml.NVMLError as error:
            self._refused(error.value)
            return None
        self.refusal = None
        if isinstance(value, int) and value in NOT_AVAILABLE:
            return None
        return text(value) if isinstance(value, bytes) else value

    def ask_first(self, functions: tuple[str, ...], *args: Any) -> Any:
        """Ask the first of these functions that this driver has."""
        for function in functions:
            value = self.ask(function, *args)
            if self.refusal != Code.FUNCTION_NOT_FOUND:
                return value
        return None

    def explain(self, code: int | None) -> str:
        """Say an NVML error code in words, with its name in nvml.h."""
        for name in dir(self.pynvml):
            if name.startswith("NVML_ERROR_") and getattr(self.pynvml, name) == code:
                words = name.removeprefix("NVML_ERROR_").lower().replace("_", " ")
                return f"{_WORDS.get(code or 0, words)} ({name})"
        return f"NVML error {code}"

    def _refused(self, code: int) -> None:
        self.refusal = code
        if code in _NVML_DOWN:
            raise NvmlFailed(self.explain(code))
        if code in _GPU_DOWN:
            raise GpuFailed(self.explain(code))
        if code not in _NOT_TOLD:
            self.trouble = code
