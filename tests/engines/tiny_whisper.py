#!/usr/bin/env python3
"""Make a Whisper-shaped model folder that real vLLM serves over /v1/audio/transcriptions.

The weights are drawn from a seed, so what it hears is nonsense. All else is as in a model worth serving: shapes, file
names, the special tokens of languages, tasks and timestamps, and the settings of the feature extractor.

    tiny_whisper.py OUT [--seed N]      needs tokenizers and numpy, nothing else
"""
import argparse
import json
import pathlib

import numpy
from tokenizers import AddedToken

from tiny_model import PAD, as_bfloat16, draw, train_tokenizer, write_json

# vLLM's CPU attention takes few head sizes; 64 is the smallest.
WIDTH, HEADS, MLP, LAYERS = 128, 2, 256, 2
MEL_BINS, RATE, HOP, WINDOW, CLIP_SECONDS = 80, 16000, 160, 400, 30
FRAMES = CLIP_SECONDS * RATE // HOP // 2  # the second convolution halves their number
MAX_OUTPUT = 448
TIMESTAMPS = [f"<|{index * 0.02:.2f}|>" for index in range(CLIP_SECONDS * 50 + 1)]
TASKS = ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
START = "<|startoftranscript|>"
# The languages that vLLM may choose from when a request names none.
LANGUAGES = """en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la
mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am
yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue""".split()


def weight_shapes(vocabulary):
    """Names and shapes of all tensors; those with one dimension are norms and biases."""
    yield "model.encoder.conv1.weight", (WIDTH, MEL_BINS, 3)
    yield "model.encoder.conv1.bias", (WIDTH,)
    yield "model.encoder.conv2.weight", (WIDTH, WIDTH, 3)
    yield "model.encoder.conv2.bias", (WIDTH,)
    yield "model.encoder.embed_positions.weight", (FRAMES, WIDTH)
    yield "model.decoder.embed_tokens.weight", (vocabulary, WIDTH)
    yield "model.decoder.embed_positions.weight", (MAX_OUTPUT, WIDTH)
    for side, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        for index in range(LAYERS):
            layer = f"model.{side}.layers.{index}"
            for attention in attentions:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    yield f"{layer}.{attention}.{part}.weight", (WIDTH, WIDTH)
                    if part != "k_proj":
                        yield f"{layer}.{attention}.{part}.bias", (WIDTH,)
                yield from norm(f"{layer}.{attention}_layer_norm")
            yield f"{layer}.fc1.weight", (MLP, WIDTH)
            yield f"{layer}.fc1.bias", (MLP,)
            yield f"{layer}.fc2.weight", (WIDTH, MLP)
            yield f"{layer}.fc2.bias", (WIDTH,)
            yield from norm(f"{layer}.final_layer_norm")
        yield from norm(f"model.{side}.layer_norm")


def norm(name):
    yield f"{name}.weight", (WIDTH,)
    yield f"{name}.bias", (WIDTH,)


def values(name, shape, random):
    if name.endswith("bias"):
        return numpy.zeros(shape, numpy.float32)
    if len(shape) == 3:  # a convolution: its fan-in is that of a row of the flat matrix
        return draw((shape[0], shape[1] * shape[2]), random).reshape(shape)
    return draw(shape, random)


def write_weights(path, vocabulary, seed):
    random = numpy.random.RandomState(seed)
    header, body = {"__metadata__": {"format": "pt"}}, bytearray()
    for name, shape in weight_shapes(vocabulary):
        begin = len(body)
        body += as_bfloat16(values(name, shape, random))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, len(body)]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(len(head).to_bytes(8, "little") + head + body)
    return len(body) // 2


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    out = given.out
    out.mkdir(parents=True, exist_ok=True)

    tokenizer = train_tokenizer()
    tokenizer.add_special_tokens([START, *(f"<|{language}|>" for language in LANGUAGES), *TASKS])
    # Whisper's timestamps are no special tokens, so that they can be decoded.
    tokenizer.add_tokens([AddedToken(time, normalized=False) for time in TIMESTAMPS])
    tokenizer.save(str(out / "tokenizer.json"))
    vocabulary = tokenizer.get_vocab_size()
    end, start = tokenizer.token_to_id(PAD), tokenizer.token_to_id(START)
    special_ids = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end, "decoder_start_token_id": start}
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": MAX_OUTPUT,
        "bos_token": PAD,
        "eos_token": PAD,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
    })
    write_json(out / "config.json", {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "torch_dtype": "bfloat16",
        "is_encoder_decoder": True,
        "vocab_size": vocabulary,
        "d_model": WIDTH,
        "num_mel_bins": MEL_BINS,
        "encoder_layers": LAYERS,
        "encoder_attention_heads": HEADS,
        "encoder_ffn_dim": MLP,
        "decoder_layers": LAYERS,
        "decoder_attention_heads": HEADS,
        "decoder_ffn_dim": MLP,
        "num_hidden_layers": LAYERS,
        "max_source_positions": FRAMES,
        "max_target_positions": MAX_OUTPUT,
        "max_length": MAX_OUTPUT,
        "activation_function": "gelu",
        "scale_embedding": False,
        **special_ids,
    })
    write_json(out / "preprocessor_config.json", {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": MEL_BINS,
        "sampling_rate": RATE,
        "hop_length": HOP,
        "n_fft": WINDOW,
        "chunk_length": CLIP_SECONDS,
        "n_samples": CLIP_SECONDS * RATE,
        "nb_max_frames": CLIP_SECONDS * RATE // HOP,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    })
    write_json(out / "generation_config.json", special_ids)
    parameters = write_weights(out / "model.safetensors", vocabulary, given.seed)
    print(f"{out}: {parameters / 1e6:.2f} M parameters, {vocabulary} tokens")


if __name__ == "__main__":
    main()
