#!/usr/bin/env python3
"""Turn the model of tiny_model.py into a cross-encoder, which scores a query together with a document.

It has the same weights, except that a head with one label replaces the one over the vocabulary. The scores
are nonsense; the tokens of a pair are those that a real cross-encoder of this shape would count.

    cross_encoder.py MODEL OUT        needs numpy, nothing else
"""
import argparse
import json
import pathlib
import shutil

import numpy
from tiny_model import as_bfloat16, draw, write_json

HEAD = "lm_head.weight"


def read_weights(path):
    """Names, shapes and bytes of all tensors, in the order of the file."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    for name, tensor in header.items():
        if name != "__metadata__":
            first, last = tensor["data_offsets"]
            yield name, tensor["shape"], data[begin + first:begin + last]


def write_weights(path, tensors):
    header, body = {"__metadata__": {"format": "pt"}}, bytearray()
    for name, shape, values in tensors:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(body), len(body) + len(values)]}
        body += values
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(len(head).to_bytes(8, "little") + head + body)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("model", type=pathlib.Path)
    arguments.add_argument("out", type=pathlib.Path)
    given = arguments.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)

    config = json.loads((given.model / "config.json").read_text())
    shape = (1, config["hidden_size"])
    tensors = [tensor for tensor in read_weights(given.model / "model.safetensors") if tensor[0] != HEAD]
    tensors.append(("score.weight", shape, as_bfloat16(draw(shape, numpy.random.RandomState(0)))))
    write_weights(given.out / "model.safetensors", tensors)
    write_json(given.out / "config.json", {
        **config, "architectures": ["Qwen3ForSequenceClassification"], "num_labels": 1, "id2label": {"0": "LABEL_0"},
        "label2id": {"LABEL_0": 0}})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(given.model / name, given.out / name)


if __name__ == "__main__":
    main()
