"""The forecast of the queue: when it is empty, which jobs will be late, and how wrong earlier forecasts were.

values, durations, learning, estimate, deadlines, outlook, accuracy     pure: frozen values in, frozen values out
memory, store, forecaster                                               the tables, and the dispatcher's thread
"""
