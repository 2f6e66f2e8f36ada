"""Reports of a time window: the drain report, its timeline, the bill, the check of the bill, and recorded drains."""
