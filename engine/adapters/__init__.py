"""Adapters: PEFT folders, what the engine has loaded, and their weights in host memory and on the device."""
