"""The drain report as one HTML file: no script, no request, plots as inline SVG, tables with the exact numbers."""

from __future__ import annotations
