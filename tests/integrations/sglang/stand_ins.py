"""Stands for the module ``sgl_kernel``, whose kernels no CPU has: mocks, for tests. SGLang itself is the wheel's."""

import importlib.abc
import importlib.machinery
import sys
from unittest.mock import MagicMock


class _Mocks(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == "sgl_kernel":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__spec__, module.__path__, module.__name__ = spec, [], spec.name
        return module

    def exec_module(self, module):
        pass


def install():
    if not any(isinstance(finder, _Mocks) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Mocks())
