"""Models for other programs: ONNX, and plain tables of coefficients."""

from foldless.export.coefficients import write_coefficients
from foldless.export.onnx import register_with_skl2onnx, to_onnx, write_onnx

__all__ = ["register_with_skl2onnx", "to_onnx", "write_coefficients", "write_onnx"]
