"""What the kernel reports: processes, control groups, disks."""
