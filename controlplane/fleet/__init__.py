"""The hosts in memory: capacity, placement, queues for start slots, latency, images."""
