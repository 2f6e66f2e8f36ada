"""The entailment model of an engine: judges for pairs of texts whether the second follows from the first.

backend    sends requests with pairs to the verifier, and all others to the engine
verifier   starts the verifier's process, sends it pairs, and replaces it when it hangs or dies
process    runs in that process: takes waiting requests and computes them in batches
model      the model itself, with `transformers`
"""
