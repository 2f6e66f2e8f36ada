"""Checks whether a model will load, and how much memory it takes, without loading it.

    check_model ──▶ contents     configuration, tensors, tokenizer, as the loader reads them
                ──▶ memory       weights, workspace and KV tokens, as an engine plans them
                ──▶ ModelReport

An error in a part becomes a problem in the report; the other parts are still checked.

An engine uses `sizing` as it starts, so that it plans its memory exactly as the report says.
"""
