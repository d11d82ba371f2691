"""What an agent keeps on disk: records, reports, drains, pools, tombstones."""
