"""`thothy bench service`: the same jobs through the whole service and straight to its engine, in one run."""
