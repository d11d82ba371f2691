"""The host of a start, and the number of standbys that each host keeps. Pure."""
