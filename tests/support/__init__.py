"""Builders, fakes and drivers that tests share."""
