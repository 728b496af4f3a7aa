# SPDX-License-Identifier: Apache-2.0
"""onnxfuse as an execution provider of ONNX Runtime.

    import onnxruntime, onnxfuse_ep

    onnxfuse_ep.register()
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(onnxfuse_ep.devices(), {"threads": "4"})
    session = onnxruntime.InferenceSession("model.onnx", options)
"""

from pathlib import Path

from onnxfuse_ep._version import VERSION as __version__

__all__ = ["EP_NAME", "library_path", "register", "devices", "__version__"]

EP_NAME = "OnnxfuseExecutionProvider"
_registered = False


def library_path():
    """The path of the provider's library, for onnxruntime.register_execution_provider_library."""
    return str(Path(__file__).resolve().parent / "libonnxfuse_ep.so")


def register(name="onnxfuse"):
    """Makes the provider known to ONNX Runtime in this process; again does nothing."""
    global _registered
    if not _registered:
        import onnxruntime

        onnxruntime.register_execution_provider_library(name, library_path())
        _registered = True


def devices():
    """The devices to give to SessionOptions.add_provider_for_devices; registers the provider where that was not done."""
    import onnxruntime

    register()
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == EP_NAME]
