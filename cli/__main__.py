"""`python -m cli` is `pidkeeper`."""

from cli.main import main

main()
