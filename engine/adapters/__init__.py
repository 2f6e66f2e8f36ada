"""Adapters: reads PEFT folders, and keeps the loaded adapters' weights in host memory."""
