"""The socket: the server and its connections, the frames, and the client's side."""
