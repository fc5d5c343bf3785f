"""The release this code is."""

VERSION = "0.1.0.dev0"
