"""Modules and functions: loaded as C++."""

import cuda_on_cpu

functions: list["Function"] = []


class Function:
    """An entry point; ``ptr`` is its number."""

    def __init__(self, text: str, name: str) -> None:
        self.library = cuda_on_cpu.library(text)
        self.count = len(cuda_on_cpu.signature(text, name))
        self.launch = getattr(self.library, f"launch_{name}")
        functions.append(self)
        self.ptr = len(functions)


class Module:
    """A loaded text."""

    def load(self, data: bytes) -> None:
        self.text = data.decode()

    def get_function(self, name: str) -> Function:
        return Function(self.text, name)
