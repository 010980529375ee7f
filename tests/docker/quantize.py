#!/usr/bin/env python3
"""Write the folder that tests/engines/tiny_model.py made as a GGUF file whose matrices are quantised to 8 bits (Q8_0).

    quantize.py MODEL OUT         needs gguf and numpy
"""
import pathlib
import sys

import gguf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "engines"))
import gguf_model

KIND = gguf.GGMLQuantizationType.Q8_0
plain = gguf.GGUFWriter.add_tensor


def quantized(writer, name, tensor, **options):
    if tensor.ndim != 2:
        return plain(writer, name, tensor, **options)
    return plain(writer, name, gguf.quants.quantize(tensor, KIND), raw_dtype=KIND)


gguf.GGUFWriter.add_tensor = quantized
gguf_model.main(*map(pathlib.Path, sys.argv[1:]))
