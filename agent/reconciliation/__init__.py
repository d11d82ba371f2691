"""Records of sessions compared with the containers of the engine, at the start and since."""
