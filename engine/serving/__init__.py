"""The socket: frames, one connection's requests, and the client's half."""
