# SPDX-License-Identifier: Apache-2.0
"""The libraries are machine code, but need no particular Python: the wheel is tagged py3-none-PLATFORM."""

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class WithLibraries(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(distclass=WithLibraries, cmdclass={"bdist_wheel": AnyPython})
