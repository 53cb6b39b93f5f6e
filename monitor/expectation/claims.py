"""Peaks that people quote, held against the catalogue's.

Rules of this file:

1. The commonest misquotation is the sparse (2:4) peak, twice the dense one: a quoted figure
   within 3 % of it is taken to be that ("4 PFLOPS" is 4030.4 rounded).
2. Where the catalogue lists no sparse peak, twice the dense one stands for it.
3. A share is told of both peaks, so that a wrong percentage is recognised; only the dense one
   is a measure of a dense kernel. Where kernels were measured on the card, the best of them is
   told too: what a good kernel may still gain.
"""

from __future__ import annotations

from monitor.expectation.peaks import dense_peak, provenance, share_of_peak
from monitor.model import Confidence, Density, Figure, GpuSpec, Step, Unknown

TOLERANCE_RATIO = 0.03


def sparse_peak(spec: GpuSpec, precision: str) -> Figure | Unknown:
    """Give the sparse peak that `precision` would be quoted at, never to be divided by."""
    dense = dense_peak(spec, precision)
    return dense if isinstance(dense, Unknown) else _sparse_beside(dense, spec)


def density_of_claim(tflops: float, spec: GpuSpec, precision: str) -> Density | Unknown:
    """Tell which peak a quoted one is: the dense, the sparse, or (Unknown) neither."""
    dense = dense_peak(spec, precision)
    if isinstance(dense, Unknown):
        return dense
    if abs(tflops / dense.value - 1) <= TOLERANCE_RATIO:
        return Density.DENSE
    if abs(tflops / _sparse_beside(dense, spec).value - 1) <= TOLERANCE_RATIO:
        return Density.SPARSE
    return Unknown(
        "peak",
        f"{tflops:g} {dense.unit} is {tflops / dense.value:.2f} x the dense {dense.precision}"
        f" peak {dense.value:g} {dense.unit} and not its sparse peak either: check its source",
    )


def shares_of_peaks(
    achieved_tflops: float, spec: GpuSpec, precision: str
) -> tuple[Step, ...] | Unknown:
    """Give a kernel's share of the dense peak, then, to compare, of the sparse one.

    Last, where one is listed, of what kernels were measured to reach on the card.
    """
    share, sparse = share_of_peak(achieved_tflops, spec, precision), sparse_peak(spec, precision)
    if isinstance(share, Unknown) or isinstance(sparse, Unknown):
        return next(one for one in (share, sparse) if isinstance(one, Unknown))
    because = (
        f"{achieved_tflops:g} / {sparse.value:g} {sparse.unit}; no measure of a dense kernel:"
        " serving is dense"
    )
    what = f"share of the sparse {sparse.precision} peak"
    shares = (share, Step(what, achieved_tflops / sparse.value, "", because))
    reached = spec.measured_peaks.get(sparse.precision or "")
    if reached is None:
        return shares
    because = f"{achieved_tflops:g} / {reached.value:g} {reached.unit}; {provenance(reached)}"
    what = f"share of the measured dense {reached.precision}"
    return (*shares, Step(what, achieved_tflops / reached.value, "", because))


def _sparse_beside(dense: Figure, spec: GpuSpec) -> Figure:
    listed = spec.sparse_peaks.get(dense.precision or "")
    if listed is not None:
        return listed
    return Figure(
        value=2 * dense.value,
        unit=dense.unit,
        sources=(f"2 x the dense peak {dense.value:g} {dense.unit}", *dense.sources),
        confidence=max(dense.confidence, Confidence.DERIVED, key=list(Confidence).index),
        precision=dense.precision,
        density=Density.SPARSE,
    )
