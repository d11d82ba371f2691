"""What both programs do as services: tell the service manager, and see how late their loop is."""
