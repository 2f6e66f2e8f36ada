"""The entailment model beside an engine: says of pairs of texts whether the one follows from the other.

backend    the engine's requests with pairs go to the verifier, all others to the engine
verifier   the verifier's process: starts it, sends it pairs, and starts another one when it hangs or dies
process    runs there: takes what waits, and computes it in batches
model      the model itself, with `transformers`
"""
