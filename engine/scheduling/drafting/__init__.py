"""Drafts: tokens that probably come next, computed with a sequence's last one and kept if its draws agree."""
