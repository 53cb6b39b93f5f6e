"""What a GPU should give: figures with provenance -> floors with their derivation.

Pure: figures come in as frozen values (`monitor.sources.expectations` reads the files), and
floors go out with every step that led to them. A GPU or a precision that is not known gives
an `Unknown` with the reason, never a default.

`matching`: which catalogue entry a GPU is. `peaks`: the dense compute peak that a precision
runs at. `floors`: an operator's floor and the catalogue -> the floors of a target.
"""
