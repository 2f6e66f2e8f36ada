"""Webhooks: what is signed, where it may go, how it is sent, and the loop that delivers what is due."""
