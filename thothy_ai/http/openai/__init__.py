"""OpenAI's API: requests to generations, and generations to its objects and chunks."""
