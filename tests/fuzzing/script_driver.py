"""Runs the programs beside it, each as a module; `alight run script_driver.py FILE NAME...`.

A line of FILE is what one of them logged: a program in which the process dies has none.
"""

import importlib
import json
import sys
import warnings


def main(names, out):
    warnings.simplefilter("ignore")
    for name in names:
        module = importlib.import_module(name)
        out.write(json.dumps(module.LOG) + "\n")
        out.flush()


if __name__ == "__main__":
    with open(sys.argv[1], "a", encoding="utf-8") as stream:
        main(sys.argv[2:], stream)
