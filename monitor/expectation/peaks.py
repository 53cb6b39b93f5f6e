"""The compute peak that a precision runs at.

Rules of this file:

1. Serving is dense. Only dense peaks are denominators; a sparse (2:4) peak is kept to
   recognise a misquoted one and is never divided by.
2. A precision has a name (what the weights are) and a peak (what the tensor cores run):
   weight-only int4 multiplies in bf16, nvfp4 and mxfp4 run at the fp4 peak.
3. A precision or peak that is not known is an `Unknown`; no peak stands in for another,
   save bf16 and fp16, which every listed GPU that has both runs at one rate.
4. Where a GPU has no fp4 path, engines unpack 4-bit floats and multiply at 16 bit: `math_peak`.
"""

from __future__ import annotations

from monitor.model import Confidence, Density, Figure, GpuSpec, Step, Unknown

# Precision name -> the peaks it may run at, first choice first.
_PEAKS = {
    "bf16": ("bf16", "fp16"),
    "fp16": ("fp16", "bf16"),
    "fp8": ("fp8",),
    "fp4": ("fp4",),
    "nvfp4": ("fp4",),
    "mxfp4": ("fp4",),
    "int8": ("int8",),
    "int4": ("bf16", "fp16"),
}
# Bytes per weight with the scales of its block: nvfp4 one byte per 16, mxfp4 one per 32 (OCP
# Microscaling Formats 1.0), int4 two per group of 128. A bare fp4 is taken as nvfp4.
_BYTES_PER_WEIGHT = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5625,
    "nvfp4": 0.5625,
    "mxfp4": 0.53125,
    "int4": 0.515625,
}
_DOUBTED = "doubted: "
_FOUR_BIT_FLOATS = ("fp4", "nvfp4", "mxfp4")
_ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8_e4m3": "fp8",
    "w4a16": "int4",
}


def canonical(precision: str) -> str | Unknown:
    """Give the one name of a precision (`bfloat16` -> `bf16`)."""
    name = precision.strip().lower()
    name = _ALIASES.get(name, name)
    if name in _PEAKS:
        return name
    return Unknown(
        "precision", f"{precision!r} is not a known precision; known are {', '.join(_PEAKS)}"
    )


def same_precision(ours: str, theirs: str) -> bool:
    """Tell whether two canonical precisions move the same bytes at the same peak.

    `fp4` is what a source says that does not name its block format. nvfp4 (0.5625 bytes per
    weight) and mxfp4 (0.53125) differ by 6 %, so one does not stand for the other.
    """
    pair = {ours, theirs}
    return (
        ours == theirs or pair == {"bf16", "fp16"} or pair in ({"fp4", "nvfp4"}, {"fp4", "mxfp4"})
    )


def dense_peak(spec: GpuSpec, precision: str) -> Figure | Unknown:
    """Give the dense peak at which `spec` computes with weights of `precision`."""
    name = canonical(precision)
    if isinstance(name, Unknown):
        return name
    figure = next((spec.dense_peaks[key] for key in _PEAKS[name] if key in spec.dense_peaks), None)
    if figure is None:
        known = ", ".join(spec.dense_peaks) or "none"
        return Unknown("compute peak", f"{spec.id} has no dense {name} peak (listed: {known})")
    if figure.density is not Density.DENSE:
        return Unknown(
            "compute peak",
            f"the {name} peak {figure.value:g} {figure.unit} of {spec.id} is not marked dense: "
            "serving is dense, so it is refused as a denominator",
        )
    return figure


def bytes_per_weight(precision: str) -> float:
    """Give the bytes that a weight of a canonical precision takes, block scales included."""
    return _BYTES_PER_WEIGHT[precision]


def math_peak(spec: GpuSpec, precision: str) -> Figure | Unknown:
    """Give the dense peak at which `spec` multiplies, unpacking 4-bit floats where it must."""
    name = canonical(precision)
    if name in _FOUR_BIT_FLOATS and "fp4" not in spec.dense_peaks:
        return dense_peak(spec, "bf16")
    return dense_peak(spec, precision)


def share_of_peak(achieved_tflops: float, spec: GpuSpec, precision: str) -> Step | Unknown:
    """Give a dense kernel's share of the dense peak (0 to 1, rarely a little above).

    The step also tells what the sparse peak would have made of it, since that is the
    commonest misquotation.
    """
    peak = dense_peak(spec, precision)
    if isinstance(peak, Unknown):
        return peak
    because = f"{achieved_tflops:g} / {peak.value:g} {peak.unit}; {provenance(peak)}"
    sparse = spec.sparse_peaks.get(peak.precision or "")
    if sparse is not None:
        because += (
            f"; the sparse peak {sparse.value:g} would give {achieved_tflops / sparse.value:.1%},"
            " which is no measure of a dense kernel"
        )
    what = f"share of the dense {peak.precision} peak"
    return Step(what, achieved_tflops / peak.value, "", because)


def doubt_about(figure: Figure, words: str) -> str:
    """Give the `disagreement` of a figure that the very card, or how it was found, contradicts."""
    others = figure.disagreement
    if others is None:
        return f"{_DOUBTED}{words}"
    if not others.startswith(_DOUBTED):
        others = f"others say: {others}"
    return f"{_DOUBTED}{words}; {others.removeprefix(_DOUBTED)}"


def provenance(figure: Figure) -> str:
    """Say where a figure comes from: density and precision, confidence, sources, dispute."""
    what = f"{figure.density} {figure.precision}, " if figure.precision else ""
    others = figure.disagreement or ""
    doubted = others.startswith(_DOUBTED)
    confidence = "lowered to" if doubted else "confidence"
    confidence += " not verified" if doubted and unverified(figure) else f" {figure.confidence}"
    text = f"{what}{confidence}, source: {'; '.join(figure.sources)}"
    if others:
        text += f"; {others}" if doubted else f"; others say: {others}"
    return text


def unverified(figure: Figure) -> bool:
    """Tell whether a figure is too weak to gate an alarm."""
    return figure.confidence is Confidence.UNVERIFIED


def why_unverified(figure: Figure) -> str:
    """Say why such a figure is too weak: nobody checked it, or this card speaks against it."""
    others = figure.disagreement or ""
    if others.startswith(_DOUBTED):
        return f"is not verified for this GPU: {others.removeprefix(_DOUBTED)}"
    return "is from memory, not verified"
