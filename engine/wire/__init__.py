"""Messages between clients, the frontend's process and the core's process, and their encoding."""
