"""What each account may use of the API at once: requests, and bytes in memory."""
