"""Use cases of applications: tags, locations, warm pools."""
