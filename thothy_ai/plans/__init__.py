"""Follows job kinds' plans: calls out, outputs in, a judgement at the end.

follow        runs a plan to its judgement on an engine client
advance       one step of a plan, pure; `judges` runs it in separate processes, `judge_process`
requests      a plan's calls as requests to the engine, and results as the plan's outputs
running_call  one call in flight, and its early stop
warm_up       loads what validators load, before a task needs it
"""
