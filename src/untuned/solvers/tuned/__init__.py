"""The methods the paper compares with, whose step sizes a user must choose."""
