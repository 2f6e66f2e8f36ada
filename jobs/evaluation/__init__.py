"""Evaluation of models and prompts: bundled cases with facts or references, scores, and attempts at injection."""
