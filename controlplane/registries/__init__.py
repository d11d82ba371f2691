"""Image registries: client, credentials, and checks of manifests."""
