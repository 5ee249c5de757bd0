"""What the user gave, checked and made into a `Problem`, and its derivatives."""
