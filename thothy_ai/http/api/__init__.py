"""Jobs over HTTP, for programs in any language: `/api`.

    models ── operations ── jobs, artifacts, batches, kinds ── document

An operation is declared once: its route and its part of the OpenAPI document are made from the same declaration.
"""
