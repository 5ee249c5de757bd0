"""The problems that methods are compared on."""
