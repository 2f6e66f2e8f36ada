"""What runs a planned step on the device."""
