"""`python -m bertsmith` is `bertsmith`."""

from bertsmith.cli import main

main()
