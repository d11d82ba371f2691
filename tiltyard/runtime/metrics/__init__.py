"""What both programs measure of themselves."""
