"""The web console: the queue, its jobs and engines, for people with a browser.

Pages are rendered here and need no build step; htmx swaps parts of them, and one stream per page keeps it live. What
they show and change goes through the functions that the CLI uses.
"""
