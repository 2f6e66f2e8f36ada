"""Whether a model will load, and how much memory it takes, found out without loading it.

    check_model ──▶ contents     configuration, tensors, tokenizer, as the loader reads them
                ──▶ memory       weights, workspace and KV tokens, as an engine plans them
                ──▶ ModelReport

Each part with an error is a problem of the report; the other parts are checked all the same.
"""
