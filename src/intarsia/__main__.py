"""`python -m intarsia`, which is also what `accelerate launch -m intarsia train ...` starts."""

from intarsia.cli import main

if __name__ == "__main__":
    main()
