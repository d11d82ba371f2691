"""What sessions write: followed while they live, sealed when they have ended."""
