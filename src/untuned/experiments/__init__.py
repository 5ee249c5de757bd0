"""Problems on real data, run by the command line."""
