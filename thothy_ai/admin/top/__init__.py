"""The figures of `thothy top`: read again and again, each part on a thread of its own."""
