"""What the commands on a user's table do: read, fit, write a folder with a report."""
