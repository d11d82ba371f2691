"""Name resolution for HTTP requests to the outside."""
