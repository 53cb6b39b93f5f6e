"""Floorwatch: sources -> observations -> rates -> expectation -> verdict -> outputs."""

__version__ = "0.1.0"
