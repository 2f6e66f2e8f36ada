"""Drafts: tokens that probably come next are computed with a sequence's last one, and kept where its draws agree."""
