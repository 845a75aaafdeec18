"""`python -m pidkeeper.cli` is `pidkeeper`."""

from pidkeeper.cli.main import main

main()
