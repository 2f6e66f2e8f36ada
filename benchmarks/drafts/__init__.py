"""What drafts would gain: recorded outputs are replayed through a drafter, and its steps are priced."""
